"""What the in-memory ledger holds, and its rules in one namespace: the counterpart of the Lua libraries.

Every function is one step of plain Python without an await, so it is atomic. The rules equal those of ``lua/lib``; one
suite runs against both.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.orders import Amount, AttemptOutcome, Order, OrderKind, Report, ReportKind
from agentrun.contract.tool import IdempotencyScope, SideEffect
from agentrun.ledger.port import RecordStatus, RecordView, RefusalKind, SlotLimit, WorkerIdentity

CLAIMED_CONSUMER = "~claimed"
UNITS = ("micros", "tokens", "model_calls")
_UNIT_NAMES = {"micros": "money", "tokens": "tokens", "model_calls": "modelCalls"}
_FORGOTTEN_AFTER_MS = 86_400_000


@dataclass(slots=True)
class LeaseTimes:
    """How long things hold, in milliseconds."""

    claim: int
    slot: int
    reserve: int
    least_keep: int


@dataclass(slots=True)
class RunState:
    """A run as the ledger knows it."""

    uid: str
    name: str
    digest: str
    session: str
    holder: str
    adopts: str
    limit: Amount
    state: str = "open"
    settled: dict[str, int] = field(default_factory=lambda: dict.fromkeys(UNITS, 0))
    held: dict[str, int] = field(default_factory=lambda: dict.fromkeys(UNITS, 0))
    nodes: dict[str, None] = field(default_factory=OrderedDict)
    expires: int | None = None
    wound_up: bool = False
    """Closed, and no claim of it lived when that was looked at last."""


@dataclass(slots=True)
class NodeState:
    """A node's order: where it stands, what it holds, how it ended."""

    uid: str
    order: Order | None = None
    seq: int = 0
    state: str = ""
    """queued, claimed, ended, withdrawn, fenced, closed."""
    kind: OrderKind = OrderKind.EXECUTE
    request: str = ""
    epoch: int = 0
    attempt: int = 0
    stream: str = ""
    entry: str = ""
    claim_by: int = 0
    run_deadline: int = 0
    token: str = ""
    worker: str = ""
    incarnation: str = ""
    deadline: int = 0
    heard: int = 0
    lease: int = 0
    lost: bool = False
    adopted: bool = False
    gate_token: str = ""
    gate_kind: str = ""
    found: tuple[RecordView | None, bool, AttemptOutcome | None] | None = None
    held: bool = False
    hold: Amount = field(default_factory=Amount)
    hold_attempt: int = 0
    settled: dict[str, int] = field(default_factory=lambda: dict.fromkeys(UNITS, 0))
    costs: dict[int, tuple[Amount, bool]] = field(default_factory=dict)
    """By attempt: what was booked, and whether it is an estimate."""
    slots: dict[int, tuple[SlotLimit, ...]] = field(default_factory=dict)
    done: dict[int, str] = field(default_factory=dict)
    abandoned: dict[int, str] = field(default_factory=dict)
    fenced: dict[int, str] = field(default_factory=dict)
    """By seq: the tokens of executions that were decided lost."""
    at_stake: int = 0
    """What the call under way may have cost, where the node was restored."""
    evidence: AttemptOutcome | None = None
    evidence_attempt: int = 0
    report: Report | None = None
    run: str = ""
    """The run it belongs to, where its order is not known any more."""
    unbooked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(UNITS, 0))
    """What a late commit has cost while the run was not known: booked there when one of the two is known again."""

    refused: tuple[int, int] = (0, 0)
    """Epoch and number of the last sending that found no slot or no budget, of an order that may happen only once."""

    def book_late(self, settled: dict[str, int]) -> None:
        """Book to the run's counters what late commits have booked on the node alone. Safe to repeat."""
        for unit in UNITS:
            settled[unit] += self.unbooked[unit]
            self.unbooked[unit] = 0

    @property
    def run_uid(self) -> str:
        """The run it belongs to."""
        return self.order.run_uid if self.order else self.run


@dataclass(slots=True)
class RecordState:
    """An idempotency record."""

    key: str
    status: RecordStatus
    digest: str
    side: SideEffect
    scope: IdempotencyScope
    window: int
    owner: str
    owner_run: str
    owner_node: str
    attempt: int
    first: int
    last: int
    version: int = 0
    token: str = ""
    lease: int = 0
    inbox: bool = False
    reserved_for: str = ""
    reserved_until: int = 0
    exec_token: str = ""
    exec_pool: str = ""
    exec_worker: str = ""
    exec_incarnation: str = ""
    outcome: AttemptOutcome | None = None
    evidence: AttemptOutcome | None = None
    answered: str = ""
    expires: int | None = None


@dataclass(slots=True)
class WorkerState:
    """A registered worker."""

    heard: int
    slots: int
    retired: bool
    incarnation: str


@dataclass(slots=True)
class Stream:
    """The orders of one tool and priority."""

    entries: dict[str, Order] = field(default_factory=dict)
    unread: deque[str] = field(default_factory=deque)
    pending: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By entry: consumer and number of deliveries."""

    def drop(self, entry: str) -> None:
        """Acknowledge and remove an entry."""
        self.entries.pop(entry, None)
        self.pending.pop(entry, None)


@dataclass(slots=True)
class ReportLog:
    """The reports of a namespace, until they are acknowledged."""

    entries: dict[str, Report] = field(default_factory=dict)
    unread: deque[str] = field(default_factory=deque)
    pending: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Tombstone:
    """The recorded outcome of a run's name."""

    uid: str
    digest: str
    outcome: JsonObject | None = None
    expires: int | None = None


@dataclass(slots=True)
class Session:
    """Who holds a session, and the claims made in it."""

    run: str = ""
    name: str = ""
    claims: dict[str, int] = field(default_factory=dict)


class NamespaceState:
    """All of one namespace, and the rules over it."""

    def __init__(
        self,
        namespace: str,
        now: Callable[[], int],
        started: int,
        times: LeaseTimes,
        global_slots: dict[str, int],
        next_id: Callable[[], str],
        on_report: Callable[[], None],
    ) -> None:
        self.namespace = namespace
        self.now = now
        self.times = times
        self._started = started
        self._global_slots = global_slots
        self._next_id = next_id
        self._on_report = on_report
        self.runs: dict[str, RunState] = {}
        self.nodes: dict[str, NodeState] = {}
        self.records: dict[str, RecordState] = {}
        self.waiters: dict[str, list[str]] = {}
        self.streams: dict[str, dict[str, Stream]] = {}
        """By pool, then ``<tool> <priority>``."""
        self.slots: dict[str, dict[str, int]] = {}
        self.rates: dict[str, float] = {}
        self.tools: dict[str, JsonObject] = {}
        self.pins: dict[str, JsonObject] = {}
        self.workers: dict[str, dict[str, WorkerState]] = {}
        self.sessions: dict[str, Session] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.claims: dict[str, int] = {}
        self.reports = ReportLog()

    # --- time

    def up_ms(self) -> int:
        """Return how long the ledger has been up: silence never counts beyond it."""
        return self.now() - self._started

    def lease_lives(self, until: int) -> bool:
        """Tell whether a lease that was last extended to ``until`` still counts."""
        return until > 0 and (until > self.now() or self.up_ms() < self.times.claim)

    # --- nodes and streams

    def node(self, uid: str) -> NodeState:
        """Return the node, made when it is not there."""
        return self.nodes.setdefault(uid, NodeState(uid))

    def stream_of(self, name: str) -> Stream | None:
        """Return the stream of that full name (``<pool> <tool> <priority>``)."""
        pool, _, rest = name.partition(" ")
        return self.streams.get(pool, {}).get(rest)

    def append(self, order: Order) -> tuple[str, str]:
        """Append an order to its stream; return the stream's name and the entry's id."""
        name = f"{order.tool} {order.priority}"
        stream = self.streams.setdefault(order.pool, {}).setdefault(name, Stream())
        entry = self._next_id()
        stream.entries[entry] = order
        stream.unread.append(entry)
        return f"{order.pool} {name}", entry

    def ordered_streams(self, pool: str, turn: int) -> list[tuple[str, Stream]]:
        """Return a pool's streams by priority; inside a priority they take turns."""
        found = self.streams.get(pool, {})
        ordered: list[tuple[str, Stream]] = []
        if not any(stream.entries for stream in found.values()):
            return ordered
        for priority in ("P0", "P1", "P2", "P3"):
            same = [name for name in sorted(found) if name.endswith(priority)]
            ordered.extend(
                (f"{pool} {same[(at + turn) % len(same)]}", found[same[(at + turn) % len(same)]])
                for at in range(len(same))
            )
        return ordered

    def stands(self, name: str, stream: Stream, entry: str) -> bool:
        """Tell whether an entry's order is still unclaimed; put it away when it is not."""
        order = stream.entries.get(entry)
        if order is not None:
            node = self.node(order.node_uid)
            if node.seq == order.seq and node.entry == entry and node.stream == name:
                if node.state == "queued":
                    return True
                if node.state == "claimed":
                    stream.pending[entry] = (CLAIMED_CONSUMER, stream.pending.get(entry, ("", 1))[1])
                    return False
        stream.drop(entry)
        return False

    def drop_entry(self, name: str, entry: str) -> None:
        """Acknowledge and remove an entry; safe to repeat."""
        stream = self.stream_of(name)
        if stream is not None:
            stream.drop(entry)

    def close_unclaimed(self, node: NodeState, state: str, *, skip_global: bool) -> None:
        """Take an unclaimed order out of circulation: its entry goes, its hold and slots come back."""
        self.drop_entry(node.stream, node.entry)
        self.give_back(node)
        self.free_slots(node, node.attempt, skip_global=skip_global)
        node.state = state

    def end_unclaimed(
        self,
        node: NodeState,
        kind: ReportKind,
        *,
        worker: str = "",
        holder: str = "",
        reason: str = "",
        record_version: int = 0,
        outcome: AttemptOutcome | None = None,
        gate_token: str = "",
    ) -> None:
        """End an unclaimed order with a report."""
        self.close_unclaimed(node, "ended", skip_global=True)
        if gate_token:
            node.gate_token, node.gate_kind = gate_token, str(kind)
        self.send(
            node, kind, worker=worker, holder=holder, reason=reason, record_version=record_version, outcome=outcome
        )

    def drop_claim(self, node: NodeState) -> None:
        """Forget the claim: nobody is waited for, and the session does not count it."""
        self.claims.pop(node.uid, None)
        session = self.sessions.get(node.order.session if node.order else "")
        if session is not None:
            session.claims.pop(node.uid, None)

    def extend_claim(self, node: NodeState) -> None:
        """Extend the claim's lease wherever it stands."""
        now = self.now()
        node.heard, node.lease, node.lost = now, now + self.times.claim, False
        self.claims[node.uid] = node.lease
        if node.order is not None and node.order.session:
            self.sessions.setdefault(node.order.session, Session()).claims[node.uid] = node.lease

    def holds_claim(self, node: NodeState, seq: int, token: str, record: RecordState | None) -> bool:
        """Tell whether the token is the current claim's: the node's own, and not overtaken on the record."""
        if node.seq != seq or node.state != "claimed" or node.token != token:
            return False
        return record is None or record.token == token

    # --- money

    def refusal(
        self, run: RunState, node: NodeState, hold: Amount, budget: Amount | None
    ) -> tuple[RefusalKind, str] | None:
        """Return why a hold does not fit; the node's own live hold would be replaced."""
        for unit in UNITS:
            limit = getattr(run.limit, unit)
            if limit >= 0:
                settled = run.settled[unit]
                own = getattr(node.hold, unit) if node.held else 0
                if settled + getattr(hold, unit) > limit:
                    return RefusalKind.BUDGET_EXHAUSTED, f"run {_UNIT_NAMES[unit]}"
                if settled + run.held[unit] - own + getattr(hold, unit) > limit:
                    return RefusalKind.BUDGET_HELD, f"run {_UNIT_NAMES[unit]}"
        for unit in UNITS:
            limit = getattr(budget, unit) if budget else -1
            if limit >= 0 and node.settled[unit] + getattr(hold, unit) > limit:
                return RefusalKind.BUDGET_EXHAUSTED, f"node {_UNIT_NAMES[unit]}"
        return None

    def take_hold(self, node: NodeState, hold: Amount) -> None:
        """Hold an amount for the node's attempt."""
        run = self.runs.get(node.run_uid)
        for unit in UNITS:
            if run is not None:
                run.held[unit] += getattr(hold, unit)
        node.held, node.hold, node.hold_attempt = True, hold, node.attempt

    def give_back(self, node: NodeState) -> None:
        """Return the node's live hold; safe to repeat."""
        if not node.held:
            return
        run = self.runs.get(node.run_uid)
        if run is not None:
            for unit in UNITS:
                run.held[unit] -= getattr(node.hold, unit)
        node.held = False

    def settle_cost(
        self, node: NodeState, attempt: int, usage: Amount | None, *, estimated: bool, only_replace: bool = False
    ) -> bool:
        """Book what an attempt cost, once; an estimate is replaced at most once. None stands for the hold.

        Return whether an estimate was replaced.
        """
        known = node.costs.get(attempt)
        books = not (only_replace and known is None)
        old = Amount()
        if known is not None:
            old, guess = known
            books = guess and not estimated
        if books:
            if usage is None:
                usage = node.hold if node.held and node.hold_attempt == attempt else Amount()
            run = self.runs.get(node.run_uid)
            if run is not None:
                # It may have been sent before the loss alone, and by nothing on record.
                run.nodes[node.uid] = None
            for unit in UNITS:
                change = getattr(usage, unit) - getattr(old, unit)
                node.settled[unit] += change
                if run is not None:
                    run.settled[unit] += change
                else:
                    node.unbooked[unit] += change
            node.costs[attempt] = (usage, estimated)
        if node.hold_attempt == attempt:
            self.give_back(node)
        return known is not None and books

    def correct_cost(
        self, node: NodeState, attempt: int, seq: int, usage: Amount, outcome: AttemptOutcome | None
    ) -> None:
        """Take back what a lost attempt was estimated to cost, in favour of what its worker said late; report it."""
        if self.settle_cost(node, attempt, usage, estimated=False, only_replace=True):
            self.send_late(node, ReportKind.COST_KNOWN, attempt, seq, outcome)

    # --- slots

    def slot_holders(self, name: str) -> dict[str, int]:
        """Return the holders of a limit by the end of their lease."""
        return self._global_slots if name == "global" else self.slots.setdefault(name, {})

    def full_limit(
        self, limits: Sequence[SlotLimit], node: NodeState, attempt: int, *, skip_global: bool
    ) -> str | None:
        """Return the first limit without room for the holder."""
        now, holder = self.now(), _holder(node, attempt)
        for limit in limits:
            if skip_global and limit.name == "global":
                continue
            holders = self.slot_holders(limit.name)
            if holders.get(holder, 0) <= now and sum(until > now for until in holders.values()) >= limit.limit:
                return limit.name
        return None

    def take_slots(self, limits: Sequence[SlotLimit], node: NodeState, attempt: int, *, skip_global: bool) -> None:
        """Take or extend every slot; room has been checked before."""
        now, holder = self.now(), _holder(node, attempt)
        for limit in limits:
            if skip_global and limit.name == "global":
                continue
            holders = self.slot_holders(limit.name)
            holders[holder] = now + self.times.slot
            for name in [name for name, until in holders.items() if until <= now]:
                del holders[name]

    def free_slots(self, node: NodeState, attempt: int, *, skip_global: bool) -> None:
        """Free what an attempt holds."""
        for limit in node.slots.get(attempt, ()):
            if not (skip_global and limit.name == "global"):
                self.slot_holders(limit.name).pop(_holder(node, attempt), None)

    # --- records

    def record(self, key: str) -> RecordState | None:
        """Return the record; one that has expired is none."""
        found = self.records.get(key)
        if found is None or (found.expires is not None and found.expires <= self.now()):
            return None
        return found

    def is_live(self, record: RecordState) -> bool:
        """Tell whether a claim or recovery holds it, or it is reserved for one."""
        if record.token and self.lease_lives(record.lease):
            return True
        return bool(record.reserved_for) and record.reserved_until > self.now()

    def is_busy_for(self, record: RecordState, node_uid: str) -> bool:
        """Tell whether another than this node keeps it from being taken."""
        if record.token and self.lease_lives(record.lease):
            return True
        if record.reserved_for not in ("", node_uid) and record.reserved_until > self.now():
            return True
        return record.inbox and record.owner_node != node_uid

    def reserve(self, record: RecordState, node_uid: str) -> None:
        """Reserve it for the node's own recovery."""
        record.reserved_for, record.reserved_until = node_uid, self.now() + self.times.reserve

    def wait(self, key: str, node_uid: str) -> None:
        """Put a node into the record's line."""
        line = self.waiters.setdefault(key, [])
        if node_uid not in line:
            line.append(node_uid)

    def leave(self, key: str, node_uid: str) -> None:
        """Take a node out of the record's line: it has had its turn, or wants none any more."""
        line = self.waiters.get(key)
        if line is not None and node_uid in line:
            line.remove(node_uid)

    def tell(self, record: RecordState, *, only_next: bool) -> None:
        """Tell those who wait that they may try again: all, or the first whose run still goes on."""
        line = self.waiters.get(record.key, [])
        while line:
            uid = line.pop(0)
            waiter = self.nodes.get(uid)
            run = self.runs.get(waiter.run_uid) if waiter else None
            if waiter is not None and run is not None and run.state == "open":
                self.send(waiter, ReportKind.RECORD_FREED, holder=record.owner, record_version=record.version)
                if only_next:
                    return

    def settle_record(
        self, record: RecordState, status: RecordStatus, outcome: AttemptOutcome | None, node_uid: str
    ) -> None:
        """Give the record its status after an end, and tell or reserve as that status demands."""
        record.status, record.outcome = status, outcome
        record.token, record.lease, record.last, record.inbox = "", 0, self.now(), False
        record.reserved_for, record.reserved_until, record.expires, record.answered = "", 0, None, ""
        record.version += 1
        if status in (RecordStatus.SUCCESS, RecordStatus.FAILED):
            if record.scope is not IdempotencyScope.RUN:
                record.expires = self.now() + record.window
            self.tell(record, only_next=False)
        elif record.side is SideEffect.ONCE:
            self.reserve(record, node_uid)
        else:
            self.tell(record, only_next=False)

    def view(self, record: RecordState, *, live: bool) -> RecordView:
        """Return the record as callers see it."""
        return RecordView(
            key=record.key,
            status=record.status,
            version=record.version,
            owner=record.owner,
            owner_run_uid=record.owner_run,
            owner_node_uid=record.owner_node,
            attempt=record.attempt,
            params_digest=record.digest,
            claim_live=live,
            in_inbox=record.inbox,
            first_at_ms=record.first,
            last_at_ms=record.last,
            outcome=record.outcome,
        )

    # --- fencing

    def fence(self, node: NodeState, *, ends: bool) -> None:
        """Take the claim (or the unclaimed order) away from whoever has it; later commits are evidence only."""
        order = node.order
        record = self.record(order.record.key) if order else None
        mine = record is not None and (
            (record.token != "" and record.token == node.token)
            or (record.owner_node == node.uid and not record.token and record.status is RecordStatus.PROCESSING)
            or record.reserved_for == node.uid
        )
        claimed = node.state == "claimed"
        if claimed and node.kind is not OrderKind.RECOVER:
            self.settle_cost(node, node.attempt, None, estimated=True)
        else:
            self.give_back(node)
        self.drop_entry(node.stream, node.entry)
        self.drop_claim(node)
        if ends:
            self.free_slots(node, node.attempt, skip_global=False)
        node.state = "fenced"
        if claimed and node.kind is not OrderKind.RECOVER:
            node.fenced[node.seq] = node.token
        if record is None or not mine or order is None:
            return
        if order.side_effect is not SideEffect.ONCE:
            if claimed or record.status is RecordStatus.PROCESSING:
                self.settle_record(record, RecordStatus.FAILED, None, node.uid)
        elif node.kind is OrderKind.RECOVER or ends:
            if record.status in (RecordStatus.PROCESSING, RecordStatus.UNKNOWN):
                self.settle_record(record, RecordStatus.UNKNOWN, record.outcome, node.uid)
            else:
                record.token, record.lease = "", 0
                record.version += 1
                self.reserve(record, node.uid)
        elif claimed:
            record.token, record.lease, record.last = "", 0, self.now()
            record.version += 1
            self.reserve(record, node.uid)
        if ends:
            self.let_go(node, record)

    def let_go(self, node: NodeState, record: RecordState) -> None:
        """The record's owner will do nothing more about it: the next in line may."""
        if record.inbox:
            return
        if record.reserved_for == node.uid:
            record.reserved_for, record.reserved_until = "", 0
        if record.status in (RecordStatus.UNKNOWN, RecordStatus.EXECUTED):
            self.tell(record, only_next=True)

    def report_lost(self, limit: int) -> None:
        """Report claims that have not been heard of for a lease, each once; sweep those of ended runs."""
        now = self.now()
        silent = sorted((until, uid) for uid, until in self.claims.items() if until <= now)[:limit]
        if not silent or self.up_ms() < self.times.claim:
            return
        for _, uid in silent:
            del self.claims[uid]
            node = self.node(uid)
            if node.state == "claimed" and not node.lost:
                run = self.runs.get(node.run_uid)
                if run is None or run.state == "finished":
                    self.fence(node, ends=True)
                else:
                    node.lost = True
                    self.send(node, ReportKind.LOST, worker=node.worker)

    # --- reports

    def send(
        self,
        node: NodeState,
        kind: ReportKind,
        *,
        worker: str = "",
        holder: str = "",
        reason: str = "",
        record_version: int = 0,
        deadline_ms: int = 0,
        outcome: AttemptOutcome | None = None,
    ) -> None:
        """Append a report about the node's current order and remember it as its last."""
        report = Report(
            kind=kind,
            namespace=self.namespace,
            run_uid=node.run_uid,
            node_uid=node.uid,
            attempt=node.attempt,
            seq=node.seq,
            epoch=node.epoch,
            recovering=node.kind is OrderKind.RECOVER,
            worker=worker,
            at_ms=self.now(),
            holder=holder,
            reason=reason,
            record_version=record_version,
            deadline_ms=deadline_ms,
            outcome=outcome,
        )
        if kind is not ReportKind.RECORD_FREED:
            node.report = report
        self._append_report(report)

    def send_late(
        self, node: NodeState, kind: ReportKind, attempt: int, seq: int, outcome: AttemptOutcome | None
    ) -> None:
        """Append a report about an earlier order of the node, an execution: its last report stays what it is."""
        report = Report(
            kind=kind,
            namespace=self.namespace,
            run_uid=node.run_uid,
            node_uid=node.uid,
            attempt=attempt,
            seq=seq,
            epoch=node.epoch,
            at_ms=self.now(),
            outcome=outcome,
        )
        self._append_report(report)

    def _append_report(self, report: Report) -> None:
        entry = self._next_id()
        self.reports.entries[entry] = report
        self.reports.unread.append(entry)
        self._on_report()

    # --- workers

    def hear(self, worker: WorkerIdentity) -> None:
        """Note that a worker was heard of; an earlier incarnation that comes back late changes nothing."""
        pool = self.workers.setdefault(worker.pool, {})
        known = pool.get(worker.name)
        if known is not None and (known.incarnation != worker.incarnation or known.retired):
            return
        pool[worker.name] = WorkerState(self.now(), worker.slots, False, worker.incarnation)

    def prune_workers(self, pool: str) -> None:
        """Forget workers that have been gone for a day."""
        now = self.now()
        known = self.workers.setdefault(pool, {})
        for name in [name for name, worker in known.items() if now - worker.heard > _FORGOTTEN_AFTER_MS]:
            del known[name]

    def is_gone(self, pool: str, name: str, incarnation: str) -> bool:
        """Tell whether this incarnation is proven to execute nothing any more."""
        worker = self.workers.get(pool, {}).get(name) if name else None
        return worker is not None and (worker.incarnation != incarnation or worker.retired)

    def is_alive(self, worker: WorkerState) -> bool:
        """Tell whether a worker counts as at work."""
        if worker.retired:
            return False
        return self.now() - worker.heard < self.times.claim or self.up_ms() < self.times.claim

    def is_dead_consumer(self, pool: str, consumer: str) -> bool:
        """Tell whether deliveries to this consumer may be taken over."""
        name, _, incarnation = consumer.rpartition("/")
        worker = self.workers.get(pool, {}).get(name)
        return worker is None or worker.incarnation != incarnation or not self.is_alive(worker)


def _holder(node: NodeState, attempt: int) -> str:
    return f"{node.uid}/{attempt}"
