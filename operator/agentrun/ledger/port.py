"""What the ledger can do, as both planes see it: requests, answers and the protocols.

Implemented twice: ``agentrun.ledger.redis_ledger`` (Lua on Redis or Valkey) and ``agentrun.ledger.memory_ledger`` (in
memory, for virtual time and simulation); one suite holds them equal. Every method is one atomic step. Every method
recognises its own repetition after a lost reply: calling it again with the same arguments gives the same answer and
has no second effect. Times are the ledger's own clock; answers carry remaining milliseconds.

All methods may raise :class:`LedgerUnavailableError` (try again later; whether the step happened is unknown).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.failures import Effect
from agentrun.contract.orders import Amount, AttemptOutcome, Order, Report
from agentrun.contract.run import Priority
from agentrun.contract.tool import IdempotencyScope, SideEffect


class LedgerUnavailableError(Exception):
    """The ledger did not answer, or refused for a passing cause; whether the step happened is unknown. Retry it."""


class LedgerFormatError(Exception):
    """The ledger's layout is newer than this program knows. Give up; upgrade the program."""


# --- runs, sessions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunRegistration:
    """What the ledger needs to know about a run before it is admitted."""

    namespace: str
    name: str
    uid: str
    spec_digest: str
    """Digest of the immutable part of the spec (rerunToken included)."""
    session: str
    """Empty: the run has no session."""
    holder: str
    """``<run uid>/<token>``; the same after a restart of the scheduler."""
    budget: Amount | None
    """None: unlimited. A field of -1 is unlimited; 0 allows nothing."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that the ledger has not done with."""

    uid: str
    name: str
    ended: bool
    """Its outcome stands; a claim of it lived when it was closed."""


class AdmissionVerdict(StrEnum):
    """What the ledger answers to a run that asks to be admitted."""

    ADMITTED = "Admitted"
    """New, or this very uid asked before."""
    ALREADY_FINISHED = "AlreadyFinished"
    """A run of this name and content has finished: copy its outcome."""
    ADOPT = "Adopt"
    """Admitted; a run of this name and content under another uid never finished: adopt its finished nodes."""
    SESSION_BUSY = "SessionBusy"


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to :meth:`SchedulerLedger.admit_run`."""

    verdict: AdmissionVerdict
    other_uid: str = ""
    """The run that finished, is adopted, or holds the session."""
    other_name: str = ""
    """Its name, with SessionBusy."""
    outcome: JsonObject | None = None
    """With AlreadyFinished: what :meth:`SchedulerLedger.finish_run` recorded."""


@dataclass(frozen=True, slots=True)
class RunCounters:
    """What a run has spent and holds. Invariant: ``settled`` = sum over its nodes; ``held`` = sum of live holds."""

    settled: Amount
    held: Amount
    nodes: dict[str, Amount] = field(default_factory=dict)
    """Settled amounts by node uid."""


# --- dispatch and withdraw -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotLimit:
    """One counted limit an order must fit into: ``name`` is ``global``, ``namespace``, ``tool:<t>`` or ``pool:<p>``."""

    name: str
    limit: int


class RefusalKind(StrEnum):
    """Why an order was not dispatched."""

    STALE_EPOCH = "StaleEpoch"
    """Another scheduler leads."""
    STALE_SEQ = "StaleSeq"
    """The node's current seq is not the one before this order's."""
    CLAIMED = "Claimed"
    """The node's current order is claimed."""
    RUN_CLOSED = "RunClosed"
    """The run is cancelled, finished or unknown."""
    NO_SLOT = "NoSlot"
    """``limit`` names the slots that are all taken."""
    BUDGET_HELD = "BudgetHeld"
    """Only live holds stand in the way: wait."""
    BUDGET_EXHAUSTED = "BudgetExhausted"
    """Settled plus this hold exceeds the limit: it will never fit."""
    LEDGER_CLOSED = "LedgerClosed"


@dataclass(frozen=True, slots=True)
class DispatchAnswer:
    """``refusal`` None: the order stands in its stream (whether by this call or an earlier equal one)."""

    refusal: RefusalKind | None = None
    limit: str = ""
    """With NoSlot the name of the limit; with a budget refusal ``node`` or ``run`` and the unit: ``run money``."""


class WithdrawVerdict(StrEnum):
    """The answer to taking an order back."""

    WITHDRAWN = "Withdrawn"
    """The seq is stale now; slots and hold are returned. Also when there was no such order any more, unreported."""
    CLAIMED = "Claimed"
    """A worker holds it: it will report."""
    ENDED = "Ended"
    """It has been reported on already: read the reports."""
    LOST = "Lost"
    """It is asked what became of the order: the ledger knows neither it nor its run, having lost its data, or a former
    leader has begun to ask."""


@dataclass(frozen=True, slots=True)
class NodeLedgerState:
    """What the ledger knows about a node; read after a restart, and before acting on silence."""

    seq: int = 0
    attempt: int = 0
    queued: bool = False
    """The order stands in its stream, unclaimed."""
    claimed: bool = False
    """A claim is live or silent; not ended."""
    claim_silent_ms: int = 0
    """How long the claim has not been heard of (0 when unclaimed)."""
    worker: str = ""
    last_report: Report | None = None
    """The last report made about the current seq."""
    recovers: bool = False
    """The order of the current seq is a recovery."""


# --- records -------------------------------------------------------------------------------------------------------


class RecordStatus(StrEnum):
    """Where an idempotency record stands."""

    PROCESSING = "PROCESSING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    EXECUTED = "EXECUTED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class RecordView:
    """An idempotency record as it stands."""

    key: str
    status: RecordStatus
    version: int
    """Grows by one with every change."""
    owner: str
    """``<namespace>/<run name>/<node path>``."""
    owner_run_uid: str
    owner_node_uid: str
    attempt: int
    params_digest: str
    claim_live: bool
    """A claim, a recovery, or a reservation for one is running (its lease has not passed)."""
    in_inbox: bool
    """The owner waits for a human."""
    first_at_ms: int
    last_at_ms: int
    outcome: AttemptOutcome | None = None


class AnswerVerdict(StrEnum):
    """What became of a human's answer to a record."""

    APPLIED = "Applied"
    MOVED = "Moved"
    """The record's version is another one now, or the record is gone; it was left untouched."""


@dataclass(frozen=True, slots=True)
class LedgerSight:
    """The state of the ledger as a whole."""

    generation: str
    """Empty: it has lost everything, or is new."""
    is_open: bool
    """False: the gate is closed until a rebuild has ended."""
    same_server: bool
    """False: the server's replication id is another one than when the gate was opened: it was restarted, restored from
    a copy or replaced, and may have lost what came last."""
    epoch: int = 0
    """The epoch that was taken last; 0: none, or it was lost."""

    @property
    def is_sound(self) -> bool:
        """Tell whether what stands in it may be relied on."""
        return bool(self.generation) and self.is_open and self.same_server


@dataclass(frozen=True, slots=True)
class RestoredRecord:
    """An idempotency record as the resources prove it."""

    key: str
    status: RecordStatus
    params_digest: str
    side_effect: SideEffect
    scope: IdempotencyScope
    window_ms: int
    outcome: AttemptOutcome | None = None
    version: int = 1
    in_inbox: bool = False


@dataclass(frozen=True, slots=True)
class RestoredNode:
    """What the resources prove about a node: where its orders stand, what it has cost, what its call has done."""

    namespace: str
    run_uid: str
    node_uid: str
    path: str
    owner: str
    """``<namespace>/<run name>/<node path>``."""
    seq: int
    attempt: int
    tool: str
    in_flight: bool
    """Its order was out: whether it was claimed, and what came of it, is not known any more."""
    settled: Amount
    record: RestoredRecord | None
    estimates: tuple[tuple[int, int], ...] = ()
    """Attempt and micros of what in ``settled`` is a worst case, until somebody knows."""
    stake_micros: int = 0
    """The worst case of the call under way, booked when that is decided lost."""


# --- worker side ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who a worker is. ``incarnation`` is new for every process under the same ``name``."""

    namespace: str
    pool: str
    name: str
    incarnation: str
    slots: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """An order as it was taken from a stream; acknowledged by claim, hand-back or commit, never by reading."""

    stream: str
    entry_id: str
    order: Order


class ClaimVerdict(StrEnum):
    """What the gate says."""

    EXECUTE = "Execute"
    RECOVER = "Recover"
    """A recovery order was claimed: look up, commit; never execute."""
    REPORTED = "Reported"
    """Not to be executed; the gate has reported why (``report_kind``) and acknowledged the order."""
    STALE = "Stale"
    """An old or already claimed order, or its run is closed; acknowledged, nothing was reported."""
    WAIT_RATE = "WaitRate"
    """The tool's rate allows it in ``wait_ms``; nothing changed."""
    LEDGER_CLOSED = "LedgerClosed"
    """The ledger is being rebuilt; the order stays pending, try again."""


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The gate's answer."""

    verdict: ClaimVerdict
    report_kind: str = ""
    token: str = ""
    remaining_ms: int = 0
    """For the whole attempt or recovery."""
    lease_ms: int = 0
    """Until the claim counts as silent, unless heartbeats extend it."""
    wait_ms: int = 0
    previous: RecordView | None = None
    """With Recover: the record as the recovery found it."""
    previous_worker_gone: bool = False
    """With Recover: the old claim's worker is proven gone (a later incarnation registered, or it retired)."""
    evidence: AttemptOutcome | None = None
    """With Recover: what a fenced late commit brought."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A held claim, as heartbeat and commit need it."""

    order: Order
    token: str
    stream: str
    entry_id: str


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """``fenced``: the claim is no longer this worker's; stop, its commit will be kept as evidence only."""

    fenced: bool
    cancelled: bool = False
    remaining_ms: int = 0
    lease_ms: int = 0


class CommitVerdict(StrEnum):
    """What became of a commit."""

    COMMITTED = "Committed"
    FENCED = "Fenced"
    """The claim was decided lost, or another one holds the record: kept as evidence, billed once."""


class WorkerLedger(Protocol):
    """What workers may do."""

    async def register_worker(self, worker: WorkerIdentity, contract_version: int) -> None:
        """Announce the worker and its slots; proves earlier incarnations of the same name gone."""
        ...

    async def retire_worker(self, worker: WorkerIdentity) -> None:
        """Say goodbye: the worker is gone and executes nothing any more."""
        ...

    async def take_orders(self, worker: WorkerIdentity, count: int, block_ms: int) -> Sequence[Delivery]:
        """Take up to ``count`` orders of the pool in priority order; wait up to ``block_ms`` for the first.

        Entries of other consumers that were delivered but never claimed and whose consumer is dead are taken over in
        bounded batches (reclaim); after ``MAX_DELIVERIES`` deliveries an order is poison: reported and removed. Entries
        that cannot be read are removed (the scheduler sends a lost order again). Vanished streams and groups are made
        again.
        """
        ...

    async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
        """Pass the gate: the last step before the side effect. ``token`` is the caller's fresh random claim token."""
        ...

    async def hand_back(self, worker: WorkerIdentity, delivery: Delivery, reason: str) -> None:
        """Give an unclaimed order back: reported HandedBack, acknowledged, slot and hold returned."""
        ...

    async def abandon_claim(self, claim: Claim, reason: str) -> bool:
        """Undo a claim under which nothing was executed (drain before start): record freed, reported HandedBack.

        Of a claim that was decided lost meanwhile the estimate is taken back, and reported CostKnown. True: undone.
        """
        ...

    async def heartbeat(self, worker: WorkerIdentity, claim: Claim) -> HeartbeatAnswer:
        """Extend claim, slots and worker registration."""
        ...

    async def adopt(self, claim: Claim) -> bool:
        """Report (Adopted, once) that the lookup of this recovery found the call still running; it polls on.

        False: the recovery is fenced.
        """
        ...

    async def keep_alive(self, worker: WorkerIdentity) -> None:
        """Extend the registration of a worker that holds no claim."""
        ...

    async def commit(self, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        """End the attempt in one step: record, cost, audit, report, acknowledge, slots, hold.

        A recovery commits the outcome it found: succeeded, failed with NotExecuted, or failed with Unknown.
        After a cancel, outcome, cost and audit are stored all the same.
        """
        ...

    async def fetch_tool(self, namespace: str, digest: str) -> JsonObject | None:
        """Return a tool's definition (AgentToolSpec on the wire) or None when the ledger has lost it."""
        ...


class SchedulerLedger(Protocol):
    """What the scheduler may do."""

    async def open(self, namespaces: Sequence[str]) -> str:
        """Prepare the layout, open the gate when it was never closed, and return the generation id.

        Raises :class:`LedgerFormatError` when the layout is newer than this program.
        """
        ...

    async def look(self) -> LedgerSight:
        """Look at the ledger as a whole."""
        ...

    async def close_gate(self) -> None:
        """Have every claim and dispatch refused until :meth:`open_gate`."""
        ...

    async def open_gate(self) -> None:
        """Say that what stands here may be relied on, on the server as it is now."""
        ...

    async def restore_node(self, node: RestoredNode) -> None:
        """Put what the resources prove where the ledger knows nothing: never over what it knows, and nothing twice."""
        ...

    async def take_epoch(self, seen: int) -> int:
        """Return ``max(ledger, seen) + 1`` and store it; orders of older epochs are refused from now on."""
        ...

    async def admit_run(self, registration: RunRegistration) -> Admission:
        """Check tombstone and session and register the run, in one step.

        The session is free when nobody holds it, or its holder run is finished or unknown and no claim or recovery
        of that session is live.
        """
        ...

    async def set_budget(self, namespace: str, run_uid: str, budget: Amount | None) -> None:
        """Change a run's budget."""
        ...

    async def cancel_run(self, namespace: str, run_uid: str) -> None:
        """Refuse claims and dispatches of the run from now on; running attempts learn it by heartbeat."""
        ...

    async def finish_run(self, namespace: str, run_uid: str, outcome: JsonObject | None, keep_ms: int) -> None:
        """Record the outcome in the tombstone, close the run, release its session, sweep its dead claims.

        No outcome is recorded (None) of a run that was deleted before its end: one of the same content adopts it.

        Dead PROCESSING records of the run become UNKNOWN (Once) or FAILED; a live claim keeps the session busy until
        it ends. Records of scope Run expire; waiters of the run's freed records are told.
        """
        ...

    async def find_namespaces(self) -> Sequence[str]:
        """Return every namespace that a run was ever admitted in."""
        ...

    async def find_open_runs(self, namespace: str) -> Sequence[OpenRun]:
        """Return the runs that are not wound up: not finished, or finished with a claim that lived then.

        For the latter :meth:`finish_run` again (without an outcome, which stays) sweeps what has died since.
        """
        ...

    async def put_pins(self, namespace: str, run_uid: str, pins: JsonObject) -> None:
        """Keep what a run was admitted with."""
        ...

    async def fetch_pins(self, namespace: str, run_uid: str) -> JsonObject | None:
        """Return what a run was admitted with, or None; whoever reads it has it kept on."""
        ...

    async def put_tool(self, namespace: str, digest: str, definition: JsonObject) -> None:
        """Store a tool's definition by its digest."""
        ...

    async def dispatch(
        self, order: Order, limits: Sequence[SlotLimit], node_budget: Amount | None, sending: int = 0
    ) -> DispatchAnswer:
        """Set seq-1 to seq by comparison, remove an earlier entry, take slots and hold, append to the stream.

        ``sending`` numbers what is sent under one epoch, upwards from 1; 0: nobody counts. A ``Once`` order that found
        no slot or no budget is stale from then on under that number, so that a copy which comes late is not let in.

        An order of kind Recover takes no hold, is not refused for a cancelled run (recovery tells the truth) nor for
        full slots (the attempt holds them already); the dead claim that it recovers does not count as claimed.
        """
        ...

    async def withdraw(self, namespace: str, run_uid: str, node_uid: str, seq: int) -> WithdrawVerdict:
        """Take an order back, unless it is claimed."""
        ...

    async def renew_slots(self, namespace: str, holders: Sequence[tuple[str, int]]) -> None:
        """Extend the slots of the (node uid, attempt) pairs that are Queued or TimedOut."""
        ...

    async def release_slots(self, namespace: str, holders: Sequence[tuple[str, int]]) -> None:
        """Free what the (node uid, attempt) pairs hold, the global slot included: commit leaves it to the scheduler."""
        ...

    async def fence_attempt(self, namespace: str, node_uid: str, seq: int) -> bool:
        """Decide a silent or late attempt lost: its claim is dead, its heartbeats and commits are fenced.

        A None or Idempotent tool's record becomes FAILED; a Once tool's stays PROCESSING, reserved for the node's own
        recovery. Slots stay (released by ``release_slots``); a paid call's hold is settled as an estimate. True: fenced
        (now or before). False: the attempt had ended already, read its report.
        """
        ...

    async def abandon_recovery(self, namespace: str, node_uid: str, seq: int) -> bool:
        """End a recovery that nobody carried out in time: record UNKNOWN, order stale, late commits fenced.

        False: the recovery had ended already, read its report.
        """
        ...

    async def find_record(self, namespace: str, key: str) -> RecordView | None:
        """Return an idempotency record, or None."""
        ...

    async def mark_inbox(self, namespace: str, key: str, node_uid: str, open_inbox: bool) -> None:
        """Say that the record's owner waits for a human (or no longer does): others who ask are *busy*.

        Closing the inbox of a record that is still UNKNOWN or EXECUTED tells the next waiter in line.
        """
        ...

    async def answer_record(
        self, namespace: str, key: str, version: int, effect: Effect, result: JsonValue, has_result: bool
    ) -> AnswerVerdict:
        """Apply a human's answer to the record as it was asked about.

        NotExecuted: FAILED (free). Executed with a result: SUCCESS. Executed without one: EXECUTED. Waiters are told by
        RecordFreed reports. Recognises its own repetition (the same answer to the same version).
        """
        ...

    async def stop_waiting(self, namespace: str, key: str, node_uid: str) -> None:
        """Take a node out of the record's line of waiters: it ends, or goes on without that record.

        Who passes the gate leaves the line there, and all nodes of a run leave at its end.
        """
        ...

    async def read_reports(
        self, namespaces: Sequence[str], consumer: str, count: int, block_ms: int
    ) -> Sequence[tuple[str, Report]]:
        """Return unread reports as (id, report) in order; the first calls give all that are still unacknowledged."""
        ...

    async def acknowledge_reports(self, namespace: str, ids: Sequence[str]) -> None:
        """Say that the cluster has what these reports said."""
        ...

    async def find_node(self, namespace: str, node_uid: str) -> NodeLedgerState:
        """Return what the ledger knows about a node (zeros when nothing)."""
        ...

    async def find_counters(self, namespace: str, run_uid: str) -> RunCounters:
        """Return what the run spent and holds."""
        ...

    async def find_backlog(self, namespace: str, pool: str, tool: str) -> dict[Priority, int]:
        """Return how many orders stand unclaimed in the tool's streams."""
        ...

    async def find_pool_slots(self, namespace: str, pool: str) -> int:
        """Return the slots that live workers of the pool announce together."""
        ...

    async def find_slots_in_use(self, namespace: str, name: str) -> int:
        """Return the number of live holders of a limit."""
        ...


class Ledger(WorkerLedger, SchedulerLedger, Protocol):
    """Both sides together, with an end."""

    async def close(self) -> None:
        """Give connections back."""
        ...
