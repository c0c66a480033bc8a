"""The ledger in memory: for scenario tests and simulation under virtual time, with the semantics of the one on Redis.

Shipped code, held equal to the Lua by one suite. Time comes from ``now_ms``; waiting is asyncio's, so an event loop on
virtual time moves both.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from agentrun.contract.defaults import MAX_DELIVERIES
from agentrun.contract.exact_json import JsonObject, JsonValue, json_digest
from agentrun.contract.failures import Effect
from agentrun.contract.ledger_keys import INSTALL_NAMESPACE
from agentrun.contract.orders import Amount, AttemptOutcome, Order, OrderKind, Report, ReportKind
from agentrun.contract.run import Priority
from agentrun.contract.tool import IdempotencyScope, OnDuplicate, SideEffect
from agentrun.ledger.memory_state import (
    CLAIMED_CONSUMER,
    UNITS,
    LeaseTimes,
    NamespaceState,
    NodeState,
    RecordState,
    RunState,
    Session,
    Tombstone,
    WorkerState,
)
from agentrun.ledger.port import (
    Admission,
    AdmissionVerdict,
    AnswerVerdict,
    Claim,
    ClaimAnswer,
    ClaimVerdict,
    CommitVerdict,
    Delivery,
    DispatchAnswer,
    HeartbeatAnswer,
    LedgerSight,
    NodeLedgerState,
    OpenRun,
    RecordStatus,
    RecordView,
    RefusalKind,
    RestoredNode,
    RestoredRecord,
    RunCounters,
    RunRegistration,
    SlotLimit,
    WithdrawVerdict,
    WorkerIdentity,
)
from agentrun.ledger.redis_connection import LedgerSettings, milliseconds
from agentrun.ledger.wire import encode_amount, record_status

_LOOK_AT = 500
_SHORTEST_WAIT = 0.0005
"""Seconds; a remainder below it is none, or a clock that moves in jumps would never pass it."""


class MemoryLedger:
    """Both planes' half, in one process."""

    def __init__(self, now_ms: Callable[[], int], settings: LedgerSettings | None = None) -> None:
        self._now = now_ms
        self._settings = settings or LedgerSettings()
        self._started = now_ms()
        self._times = LeaseTimes(
            claim=milliseconds(self._settings.claim_lease),
            slot=milliseconds(self._settings.slot_lease),
            reserve=milliseconds(self._settings.reservation),
            least_keep=milliseconds(self._settings.least_keep),
        )
        self._spaces: dict[str, NamespaceState] = {}
        self._global_slots: dict[str, int] = {}
        self._ids = itertools.count(1)
        self._epoch = 0
        self._generations_total = 0
        self._generation = self._new_generation()
        self._turn = 0
        self._reclaim_at: dict[str, int] = {}
        self._taken_over: set[tuple[str, str]] = set()
        self._orders_changed = asyncio.Event()
        self._reports_changed = asyncio.Event()
        self.open_for_claims = True
        """False: the gate is closed, as during a rebuild."""

    def space(self, namespace: str) -> NamespaceState:
        """Return one namespace's state, for checks of what the ledger holds."""
        if namespace not in self._spaces:
            self._spaces[namespace] = NamespaceState(
                namespace,
                self._now,
                self._started,
                self._times,
                self._global_slots,
                lambda: f"{next(self._ids)}-0",
                self._reports_changed.set,
            )
        return self._spaces[namespace]

    def lose_everything(self) -> None:
        """Forget all data, as a server without its disk would."""
        self._spaces.clear()
        self._global_slots.clear()
        self._taken_over.clear()
        self._epoch = 0
        self._generation = ""
        self.open_for_claims = False

    async def close(self) -> None:
        """Nothing to give back."""

    # --- workers

    async def register_worker(self, worker: WorkerIdentity, contract_version: int) -> None:
        """Announce the worker and its slots; proves earlier incarnations of the same name gone."""
        space = self.space(worker.namespace)
        space.prune_workers(worker.pool)
        space.workers[worker.pool][worker.name] = WorkerState(self._now(), worker.slots, False, worker.incarnation)

    async def retire_worker(self, worker: WorkerIdentity) -> None:
        """Say goodbye."""
        pool = self.space(worker.namespace).workers.setdefault(worker.pool, {})
        known = pool.get(worker.name)
        if known is None or known.incarnation == worker.incarnation:
            pool[worker.name] = WorkerState(self._now(), worker.slots, True, worker.incarnation)

    async def keep_alive(self, worker: WorkerIdentity) -> None:
        """Extend a worker's registration."""
        self.space(worker.namespace).hear(worker)

    async def take_orders(self, worker: WorkerIdentity, count: int, block_ms: int) -> Sequence[Delivery]:
        """Take up to ``count`` orders of the pool in priority order; wait up to ``block_ms`` for the first."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + block_ms / 1000
        while True:
            self._orders_changed.clear()
            found = self._take(worker, count)
            left = ends - loop.time()
            if found or left < _SHORTEST_WAIT:
                return found
            try:
                async with asyncio.timeout(left):
                    await self._orders_changed.wait()
            except TimeoutError:
                continue

    async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
        """Pass the gate."""
        return self._claim(worker, delivery, token)

    async def hand_back(self, worker: WorkerIdentity, delivery: Delivery, reason: str) -> None:
        """Give an unclaimed order back."""
        order = delivery.order
        space = self.space(order.namespace)
        node = space.node(order.node_uid)
        if node.seq == order.seq and node.state == "claimed":
            return
        if node.seq != order.seq or node.state != "queued":
            space.drop_entry(delivery.stream, delivery.entry_id)
            return
        space.end_unclaimed(node, ReportKind.HANDED_BACK, worker=worker.name, reason=reason)

    async def abandon_claim(self, claim: Claim, reason: str) -> bool:
        """Undo a claim under which nothing was executed."""
        order = claim.order
        space = self.space(order.namespace)
        node = space.node(order.node_uid)
        if node.abandoned.get(order.seq) == claim.token:
            return True
        record = space.record(order.record.key)
        if not space.holds_claim(node, order.seq, claim.token, record):
            if node.fenced.get(order.seq) == claim.token:
                space.correct_cost(node, order.attempt, order.seq, Amount(), None)
            return False
        space.drop_claim(node)
        if record is not None:
            if node.kind is OrderKind.RECOVER:
                record.token, record.lease, record.last = "", 0, self._now()
                record.version += 1
                space.reserve(record, node.uid)
            else:
                space.settle_record(record, RecordStatus.FAILED, None, node.uid)
        node.abandoned[order.seq] = claim.token
        space.end_unclaimed(
            node,
            ReportKind.HANDED_BACK,
            worker=node.worker,
            reason=reason,
            record_version=record.version if record else 0,
        )
        return True

    async def heartbeat(self, worker: WorkerIdentity, claim: Claim) -> HeartbeatAnswer:
        """Extend claim, slots and worker registration."""
        order = claim.order
        space = self.space(order.namespace)
        space.hear(worker)
        node, record = space.node(order.node_uid), space.record(order.record.key)
        run = space.runs.get(node.run_uid)
        cancelled = run is None or run.state != "open"
        if not space.holds_claim(node, order.seq, claim.token, record):
            return HeartbeatAnswer(fenced=True, cancelled=cancelled)
        space.extend_claim(node)
        if record is not None:
            record.lease = node.lease
        space.take_slots(node.slots.get(node.attempt, ()), node, node.attempt, skip_global=True)
        return HeartbeatAnswer(False, cancelled, max(node.deadline - self._now(), 0), self._times.claim)

    async def adopt(self, claim: Claim) -> bool:
        """Report, once, that the lookup of this recovery found the call still running."""
        order = claim.order
        space = self.space(order.namespace)
        node, record = space.node(order.node_uid), space.record(order.record.key)
        if not space.holds_claim(node, order.seq, claim.token, record):
            return False
        if not node.adopted:
            node.adopted = True
            space.send(
                node,
                ReportKind.ADOPTED,
                worker=node.worker,
                deadline_ms=max(node.deadline - self._now(), 0),
                record_version=record.version if record else 0,
            )
        return True

    async def commit(self, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        """End the attempt in one step."""
        return self._commit(claim, outcome)

    async def fetch_tool(self, namespace: str, digest: str) -> JsonObject | None:
        """Return a tool's definition or None."""
        return self.space(namespace).tools.get(digest)

    # --- the scheduler: runs

    async def open(self, namespaces: Sequence[str]) -> str:
        """Return the generation id."""
        for namespace in namespaces:
            self.space(namespace)
        if not self._generation:
            self._generation, self.open_for_claims = self._new_generation(), True
        return self._generation

    async def look(self) -> LedgerSight:
        """Look at the ledger as a whole."""
        return LedgerSight(self._generation, self.open_for_claims, True, self._epoch)

    def _new_generation(self) -> str:
        self._generations_total += 1
        return f"memory {self._generations_total}"

    async def close_gate(self) -> None:
        """Have every claim and dispatch refused until the gate is opened."""
        self._generation, self.open_for_claims = self._generation or self._new_generation(), False

    async def open_gate(self) -> None:
        """Say that what stands here may be relied on."""
        self.open_for_claims = True

    async def restore_node(self, node: RestoredNode) -> None:
        """Put back what the resources prove about a node, where nothing is known."""
        space = self.space(node.namespace)
        state, run = space.node(node.node_uid), space.runs.get(node.run_uid)
        if not state.seq:
            state.seq, state.attempt, state.state = node.seq, node.attempt, "lost" if node.in_flight else "ended"
            state.run = node.run_uid
            if run is not None:
                run.nodes[node.node_uid] = None
            state.at_stake = node.stake_micros
            self._restore_cost(state, run, node)
        if node.record is not None and node.record.key not in space.records:
            self._restore_record(space, node, node.record)

    @staticmethod
    def _restore_cost(state: NodeState, run: RunState | None, node: RestoredNode) -> None:
        estimates = dict(node.estimates)
        if run is not None:
            state.book_late(run.settled)
        for unit in UNITS:
            known = getattr(node.settled, unit)
            for attempt, (late, _) in state.costs.items():
                if attempt in estimates:
                    # What it cost is known by now.
                    known -= estimates[attempt] if unit == "micros" else 0
                elif attempt < node.attempt or not node.in_flight:
                    # Its end is on record: the late commit has booked it a second time.
                    known -= getattr(late, unit)
            state.settled[unit] += known
            if run is not None:
                run.settled[unit] += known
        for attempt in range(1, node.attempt + (0 if node.in_flight else 1)):
            if attempt not in estimates:
                state.costs[attempt] = (Amount(), False)
        for attempt, micros in estimates.items():
            state.costs.setdefault(attempt, (Amount(micros=micros), True))

    async def take_epoch(self, seen: int) -> int:
        """Return ``max(ledger, seen) + 1`` and store it."""
        self._epoch = max(self._epoch, seen) + 1
        return self._epoch

    async def admit_run(self, registration: RunRegistration) -> Admission:
        """Check tombstone and session and register the run."""
        encode_amount(registration.budget)
        space = self.space(registration.namespace)
        known = self._known_run(space, registration.uid)
        stone = space.tombstones.get(registration.name)
        if stone is not None and stone.expires is not None and stone.expires <= self._now():
            stone = None
        own = stone if stone is not None and stone.uid == registration.uid else None
        if known is not None and known.state == "finished" and own is not None and own.outcome is not None:
            return Admission(AdmissionVerdict.ALREADY_FINISHED, registration.uid, registration.name, own.outcome)
        adopts = known.adopts if known else ""
        if known is None and stone is not None:
            if stone.digest == registration.spec_digest and stone.uid != registration.uid:
                if stone.outcome is not None:
                    return Admission(AdmissionVerdict.ALREADY_FINISHED, stone.uid, registration.name, stone.outcome)
                before = space.runs.get(stone.uid)
                adopts = (before.adopts if before else "") or stone.uid
        if registration.session and not (known and known.state == "finished"):
            busy = self._busy_session(space, registration)
            if busy is not None:
                return busy
        if known is None:
            space.runs[registration.uid] = RunState(
                uid=registration.uid,
                name=registration.name,
                digest=registration.spec_digest,
                session=registration.session,
                holder=registration.holder,
                adopts=adopts,
                limit=registration.budget or _unlimited(),
            )
            space.tombstones[registration.name] = Tombstone(registration.uid, registration.spec_digest)
        if adopts:
            return Admission(AdmissionVerdict.ADOPT, adopts, registration.name)
        return Admission(AdmissionVerdict.ADMITTED)

    async def set_budget(self, namespace: str, run_uid: str, budget: Amount | None) -> None:
        """Change a run's budget."""
        encode_amount(budget)
        run = self.space(namespace).runs.get(run_uid)
        if run is not None:
            run.limit = budget or _unlimited()

    async def cancel_run(self, namespace: str, run_uid: str) -> None:
        """Refuse claims and dispatches of the run from now on."""
        run = self.space(namespace).runs.get(run_uid)
        if run is not None and run.state != "finished":
            run.state = "cancelled"

    async def finish_run(self, namespace: str, run_uid: str, outcome: JsonObject | None, keep_ms: int) -> None:
        """Record the outcome, close the run, release its session, sweep its dead claims."""
        space, now = self.space(namespace), self._now()
        keep = max(keep_ms, 1)
        run = space.runs.get(run_uid)
        if run is None or (run.expires is not None and run.expires <= now):
            if run is not None:
                run.wound_up = True
            return
        stone = space.tombstones.get(run.name)
        if stone is None or stone.uid == run_uid:
            kept = outcome if outcome is not None else (stone.outcome if stone else None)
            space.tombstones[run.name] = Tombstone(run_uid, run.digest, kept, now + keep)
        run.state = "finished"
        run.expires = now + max(keep, self._times.least_keep)
        session = space.sessions.get(run.session) if run.session else None
        if session is not None and session.run == run_uid:
            session.run = ""
            if not session.claims:
                del space.sessions[run.session]
        for uid in list(run.nodes):
            self._sweep(space, space.node(uid), keep)
        run.wound_up = not any(space.node(uid).state == "claimed" for uid in run.nodes)

    async def find_namespaces(self) -> Sequence[str]:
        """Return every namespace that a run was ever admitted in."""
        return sorted(name for name, space in self._spaces.items() if space.runs)

    async def find_open_runs(self, namespace: str) -> Sequence[OpenRun]:
        """Return the runs that are not wound up."""
        runs = self.space(namespace).runs.values()
        return [OpenRun(run.uid, run.name, ended=run.state == "finished") for run in runs if not run.wound_up]

    async def put_pins(self, namespace: str, run_uid: str, pins: JsonObject) -> None:
        """Keep what a run was admitted with."""
        self.space(namespace).pins[run_uid] = pins

    async def fetch_pins(self, namespace: str, run_uid: str) -> JsonObject | None:
        """Return what a run was admitted with, or None."""
        return self.space(namespace).pins.get(run_uid)

    async def put_tool(self, namespace: str, digest: str, definition: JsonObject) -> None:
        """Store a tool's definition by its digest."""
        self.space(namespace).tools[digest] = definition

    # --- the scheduler: orders

    async def dispatch(
        self, order: Order, limits: Sequence[SlotLimit], node_budget: Amount | None, sending: int = 0
    ) -> DispatchAnswer:
        """Set seq-1 to seq by comparison, remove an earlier entry, take slots and hold, append to the stream."""
        encode_amount(order.hold)
        encode_amount(node_budget)
        return self._dispatch(order, tuple(limits), node_budget, sending)

    async def withdraw(self, namespace: str, run_uid: str, node_uid: str, seq: int) -> WithdrawVerdict:
        """Take an order back, unless it is claimed."""
        space = self.space(namespace)
        node = space.node(node_uid)
        if node.seq > seq:
            if seq in node.done:
                return WithdrawVerdict.ENDED
            # With a recovery a former leader has begun to ask what became of it.
            return WithdrawVerdict.LOST if node.kind is OrderKind.RECOVER else WithdrawVerdict.WITHDRAWN
        if node.seq == 0 and run_uid not in space.runs:
            return WithdrawVerdict.LOST
        if node.seq < seq:
            # Its dispatch may still be under way: it shall find its seq taken.
            node.seq, node.state, node.request = seq, "withdrawn", ""
            return WithdrawVerdict.WITHDRAWN
        if node.kind is OrderKind.RECOVER:
            # A recovery that nobody has heard of took the seq: this order was never taken, nor will be.
            return WithdrawVerdict.WITHDRAWN
        if node.state == "claimed":
            return WithdrawVerdict.CLAIMED
        if node.state == "ended":
            return WithdrawVerdict.ENDED
        if node.state == "lost":
            return WithdrawVerdict.LOST
        if node.state == "queued":
            space.close_unclaimed(node, "withdrawn", skip_global=False)
        return WithdrawVerdict.WITHDRAWN

    async def fence_attempt(self, namespace: str, node_uid: str, seq: int) -> bool:
        """Decide a silent or late attempt lost."""
        space = self.space(namespace)
        node = space.node(node_uid)
        if node.seq != seq:
            return seq not in node.done
        if node.state == "ended":
            return False
        if node.state == "lost" and node.at_stake:
            # It was restored in flight, and its hold was lost with the ledger.
            space.settle_cost(node, node.attempt, Amount(micros=node.at_stake), estimated=True)
            node.at_stake = 0
        if node.state in ("queued", "claimed"):
            space.fence(node, ends=False)
        return True

    async def abandon_recovery(self, namespace: str, node_uid: str, seq: int) -> bool:
        """End a recovery that nobody carried out in time."""
        space = self.space(namespace)
        node = space.node(node_uid)
        if node.seq != seq:
            return seq not in node.done
        if node.state == "ended" and node.kind is OrderKind.RECOVER:
            return False
        if node.state in ("queued", "claimed"):
            # Fenced as a recovery is, whatever it was: nobody will look further.
            kind, node.kind = node.kind, OrderKind.RECOVER
            space.fence(node, ends=False)
            node.kind = kind
        return True

    async def renew_slots(self, namespace: str, holders: Sequence[tuple[str, int]]) -> None:
        """Extend the slots of attempts under way, and take lost ones again where there is room."""
        space = self.space(namespace)
        for uid, attempt in holders:
            node = space.nodes.get(uid)
            for limit in node.slots.get(attempt, ()) if node else ():
                if node is not None and space.full_limit((limit,), node, attempt, skip_global=False) is None:
                    space.take_slots((limit,), node, attempt, skip_global=False)

    async def release_slots(self, namespace: str, holders: Sequence[tuple[str, int]]) -> None:
        """Free what the (node uid, attempt) pairs hold, the global slot included."""
        space = self.space(namespace)
        for uid, attempt in holders:
            node = space.nodes.get(uid)
            if node is not None:
                space.free_slots(node, attempt, skip_global=False)

    # --- the scheduler: records

    async def find_record(self, namespace: str, key: str) -> RecordView | None:
        """Return an idempotency record, or None."""
        space = self.space(namespace)
        record = space.record(key)
        return space.view(record, live=space.is_live(record)) if record else None

    async def mark_inbox(self, namespace: str, key: str, node_uid: str, open_inbox: bool) -> None:
        """Say that the record's owner waits for a human (or no longer does)."""
        space = self.space(namespace)
        record = space.record(key)
        if record is None or record.owner_node != node_uid:
            return
        was_held = record.inbox or record.reserved_for == node_uid
        record.inbox = open_inbox
        if record.reserved_for == node_uid:
            record.reserved_for, record.reserved_until = "", 0
        if not open_inbox and was_held and record.status in (RecordStatus.UNKNOWN, RecordStatus.EXECUTED):
            space.tell(record, only_next=True)

    async def answer_record(
        self, namespace: str, key: str, version: int, effect: Effect, result: JsonValue, has_result: bool
    ) -> AnswerVerdict:
        """Apply a human's answer to the record as it was asked about."""
        space = self.space(namespace)
        record = space.record(key)
        if record is None:
            return AnswerVerdict.MOVED
        answer = f"{version} {json_digest([str(effect), result, has_result])}"
        if record.answered == answer:
            return AnswerVerdict.APPLIED
        open_effect = record.status in (RecordStatus.UNKNOWN, RecordStatus.EXECUTED)
        if record.version != version or not open_effect or record.token:
            return AnswerVerdict.MOVED
        status, outcome = RecordStatus.FAILED, None
        if effect is Effect.EXECUTED:
            status = RecordStatus.SUCCESS if has_result else RecordStatus.EXECUTED
        if status is RecordStatus.SUCCESS:
            outcome = AttemptOutcome(effect=Effect.EXECUTED, result=result)
        space.settle_record(record, status, outcome, record.owner_node)
        if status is RecordStatus.EXECUTED:
            record.reserved_for, record.reserved_until = "", 0
            space.tell(record, only_next=True)
        record.answered = answer
        return AnswerVerdict.APPLIED

    async def stop_waiting(self, namespace: str, key: str, node_uid: str) -> None:
        """Take a node out of the record's line of waiters."""
        self.space(namespace).leave(key, node_uid)

    # --- the scheduler: reports

    async def read_reports(
        self, namespaces: Sequence[str], consumer: str, count: int, block_ms: int
    ) -> Sequence[tuple[str, Report]]:
        """Return unread reports as (id, report) in order; the first calls give all that are still unacknowledged."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + max(block_ms, 1) / 1000
        while True:
            self._reports_changed.clear()
            found = self._take_over(namespaces, consumer) or self._read_new(namespaces, consumer, count)
            left = ends - loop.time()
            if found or left < _SHORTEST_WAIT:
                return found
            try:
                async with asyncio.timeout(left):
                    await self._reports_changed.wait()
            except TimeoutError:
                continue

    async def acknowledge_reports(self, namespace: str, ids: Sequence[str]) -> None:
        """Say that the cluster has what these reports said."""
        log = self.space(namespace).reports
        for entry in ids:
            log.entries.pop(entry, None)
            log.pending.pop(entry, None)

    def forget_reader(self, consumer: str) -> None:
        """Have a reader's first calls give all unacknowledged reports again, as after its process died."""
        self._taken_over = {pair for pair in self._taken_over if pair[1] != consumer}

    # --- the scheduler: looking

    async def find_node(self, namespace: str, node_uid: str) -> NodeLedgerState:
        """Return what the ledger knows about a node."""
        space = self.space(namespace)
        node = space.nodes.get(node_uid)
        if node is None:
            return NodeLedgerState()
        stream = space.stream_of(node.stream)
        stands = stream is not None and node.entry in stream.entries
        silent = 0
        if node.state == "claimed":
            silent = max(0, min(self._now() - node.heard, space.up_ms()))
        return NodeLedgerState(
            seq=node.seq,
            attempt=node.attempt,
            queued=node.state == "queued" and stands,
            claimed=node.state == "claimed",
            claim_silent_ms=silent,
            worker=node.worker if node.state == "claimed" else "",
            last_report=node.report,
            recovers=node.seq > 0 and node.kind is OrderKind.RECOVER,
        )

    async def find_counters(self, namespace: str, run_uid: str) -> RunCounters:
        """Return what the run spent and holds."""
        space = self.space(namespace)
        run = space.runs.get(run_uid)
        if run is None:
            return RunCounters(Amount(), Amount())
        return RunCounters(
            settled=_amount(run.settled),
            held=_amount(run.held),
            nodes={uid: _amount(space.node(uid).settled) for uid in run.nodes},
        )

    async def find_backlog(self, namespace: str, pool: str, tool: str) -> dict[Priority, int]:
        """Return how many orders stand unclaimed in the tool's streams."""
        streams = self.space(namespace).streams.get(pool, {})
        counts: dict[Priority, int] = {}
        for priority in Priority:
            stream = streams.get(f"{tool} {priority}")
            claimed = sum(consumer == CLAIMED_CONSUMER for consumer, _ in stream.pending.values()) if stream else 0
            counts[priority] = len(stream.entries) - claimed if stream else 0
        return counts

    async def find_pool_slots(self, namespace: str, pool: str) -> int:
        """Return the slots that live workers of the pool announce together."""
        space = self.space(namespace)
        return sum(worker.slots for worker in space.workers.get(pool, {}).values() if space.is_alive(worker))

    async def find_slots_in_use(self, namespace: str, name: str) -> int:
        """Return the number of live holders of a limit."""
        now = self._now()
        return sum(until > now for until in self.space(namespace).slot_holders(name).values())

    # --- steps

    def _take(self, worker: WorkerIdentity, count: int) -> list[Delivery]:
        space = self.space(worker.namespace)
        consumer = f"{worker.name}/{worker.incarnation}"
        space.hear(worker)
        found: list[Delivery] = []
        if self._now() >= self._reclaim_at.get(consumer, 0):
            more = self._reclaim(space, worker, consumer, count, found)
            pause = 0 if more else milliseconds(self._settings.reclaim_every)
            self._reclaim_at[consumer] = self._now() + max(pause, 1)
        self._turn += 1
        look = _LOOK_AT
        for name, stream in space.ordered_streams(worker.pool, self._turn):
            while stream.unread and len(found) < count and look > 0:
                entry = stream.unread.popleft()
                look -= 1
                stream.pending[entry] = (consumer, 1)
                if space.stands(name, stream, entry):
                    found.append(Delivery(name, entry, stream.entries[entry]))
        return found

    def _reclaim(
        self, space: NamespaceState, worker: WorkerIdentity, consumer: str, count: int, found: list[Delivery]
    ) -> bool:
        look = self._settings.reclaim_batch
        space.report_lost(look)
        more = False
        for name, stream in space.ordered_streams(worker.pool, 0):
            for entry, (holder, deliveries) in list(stream.pending.items()):
                if holder in (CLAIMED_CONSUMER, consumer) or not space.is_dead_consumer(worker.pool, holder):
                    continue
                if look <= 0 or len(found) >= count:
                    more = True
                    break
                look -= 1
                if not space.stands(name, stream, entry):
                    continue
                order = stream.entries[entry]
                if deliveries >= MAX_DELIVERIES:
                    space.end_unclaimed(space.node(order.node_uid), ReportKind.POISON)
                    continue
                stream.pending[entry] = (consumer, deliveries + 1)
                found.append(Delivery(name, entry, order))
        return more

    def _dispatch(
        self, order: Order, limits: tuple[SlotLimit, ...], budget: Amount | None, sending: int
    ) -> DispatchAnswer:
        space, now = self.space(order.namespace), self._now()
        if not self.open_for_claims:
            return DispatchAnswer(RefusalKind.LEDGER_CLOSED)
        if order.epoch < self._epoch:
            return DispatchAnswer(RefusalKind.STALE_EPOCH)
        node = space.node(order.node_uid)
        recovers = order.kind is OrderKind.RECOVER
        same = node.seq == order.seq and node.request == order.request_id and node.kind is order.kind
        if same and node.state not in ("withdrawn", ""):
            node.epoch = max(node.epoch, order.epoch)
            return DispatchAnswer()
        refused_epoch, refused_sending = node.refused
        was_refused = refused_epoch == order.epoch and sending <= refused_sending
        if node.seq != order.seq - 1 or (sending and was_refused):
            return DispatchAnswer(RefusalKind.STALE_SEQ)
        if node.state == "claimed" and not (recovers and not space.lease_lives(node.lease)):
            return DispatchAnswer(RefusalKind.CLAIMED)
        run = self._known_run(space, order.run_uid)
        if run is None or run.state == "finished" or (run.state == "cancelled" and not recovers):
            return DispatchAnswer(RefusalKind.RUN_CLOSED)
        node.book_late(run.settled)
        if not recovers:
            full = space.full_limit(limits, node, order.attempt, skip_global=False)
            refused = (RefusalKind.NO_SLOT, full) if full is not None else space.refusal(run, node, order.hold, budget)
            if refused is not None:
                if sending and order.side_effect is SideEffect.ONCE:
                    # Whoever is refused may let the node end. A copy that arrives later must not find what is missing.
                    node.refused = (order.epoch, sending)
                    run.nodes[order.node_uid] = None
                return DispatchAnswer(*refused)
        if node.state == "claimed":
            space.fence(node, ends=False)
        elif node.state == "queued":
            space.close_unclaimed(node, "withdrawn", skip_global=False)
        else:
            space.give_back(node)
        if node.order is not None and node.order.record.key != order.record.key:
            space.leave(node.order.record.key, node.uid)
        _begin_order(node, order, now)
        if not recovers:
            space.take_hold(node, order.hold)
            node.slots[order.attempt] = limits
        taken = node.slots.get(order.attempt, ()) if recovers else limits
        space.take_slots(taken, node, order.attempt, skip_global=False)
        node.stream, node.entry = space.append(order)
        run.nodes[order.node_uid] = None
        self._orders_changed.set()
        return DispatchAnswer()

    def _claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
        wanted = delivery.order
        space, now = self.space(wanted.namespace), self._now()
        if not self.open_for_claims:
            return ClaimAnswer(ClaimVerdict.LEDGER_CLOSED)
        node = space.node(wanted.node_uid)
        order = node.order
        if node.seq != wanted.seq or order is None:
            space.drop_entry(delivery.stream, delivery.entry_id)
            return ClaimAnswer(ClaimVerdict.STALE)
        recovers = node.kind is OrderKind.RECOVER
        if node.state == "claimed":
            if node.token == token:
                return self._granted(node, token)
            self._park(space, delivery)
            return ClaimAnswer(ClaimVerdict.STALE)
        if node.state != "queued":
            if node.gate_token == token:
                return ClaimAnswer(ClaimVerdict.REPORTED, report_kind=node.gate_kind)
            space.drop_entry(delivery.stream, delivery.entry_id)
            return ClaimAnswer(ClaimVerdict.STALE)
        run = self._known_run(space, order.run_uid)
        if run is None or run.state == "finished" or (run.state == "cancelled" and not recovers):
            space.close_unclaimed(node, "closed", skip_global=True)
            return ClaimAnswer(ClaimVerdict.STALE)
        record = space.record(order.record.key)
        refused = self._gate(space, node, order, record, worker, token, recovers=recovers)
        if refused is not None:
            return refused
        rate = order.rate_per_second or 0
        period_us = 1_000_000 // rate + 1 if rate and not recovers else 0
        if period_us:
            free_at = space.rates.get(order.tool, 0)
            if free_at > now * 1000:
                return ClaimAnswer(ClaimVerdict.WAIT_RATE, wait_ms=-(-round(free_at - now * 1000) // 1000))
        limits = node.slots.get(node.attempt, ())
        full = None if recovers else space.full_limit(limits, node, node.attempt, skip_global=True)
        if full is not None:
            space.end_unclaimed(
                node, ReportKind.HANDED_BACK, worker=worker.name, reason=f"NoSlot {full}", gate_token=token
            )
            return ClaimAnswer(ClaimVerdict.REPORTED, report_kind=str(ReportKind.HANDED_BACK))
        if period_us:
            space.rates[order.tool] = now * 1000 + period_us
        space.take_slots(limits, node, node.attempt, skip_global=True)
        self._grant(space, node, order, record, worker, token, recovers=recovers)
        self._park(space, delivery)
        return self._granted(node, token)

    def _gate(
        self,
        space: NamespaceState,
        node: NodeState,
        order: Order,
        record: RecordState | None,
        worker: WorkerIdentity,
        token: str,
        *,
        recovers: bool,
    ) -> ClaimAnswer | None:
        now = self._now()

        def report(kind: ReportKind, outcome: AttemptOutcome | None = None) -> ClaimAnswer:
            about = record if kind is not ReportKind.DEADLINE_PASSED else None
            space.end_unclaimed(
                node,
                kind,
                worker=worker.name,
                holder=about.owner if about else "",
                record_version=about.version if about else 0,
                outcome=outcome,
                gate_token=token,
            )
            return ClaimAnswer(ClaimVerdict.REPORTED, report_kind=str(kind))

        if now >= node.claim_by or (not recovers and now >= node.run_deadline):
            return report(ReportKind.DEADLINE_PASSED)
        if record is None:
            return None
        if record.digest != order.params_digest:
            return report(ReportKind.CONFLICT)
        if space.is_busy_for(record, node.uid):
            space.wait(record.key, node.uid)
            return report(ReportKind.BUSY)
        space.leave(record.key, node.uid)
        if record.status is RecordStatus.SUCCESS:
            foreign = record.owner_node != node.uid and not order.record.own_key
            if foreign and not recovers and order.record.on_duplicate is not OnDuplicate.REPLAY:
                return report(ReportKind.DUPLICATE)
            return report(ReportKind.REPLAYED, record.outcome)
        once = SideEffect.ONCE in (order.side_effect, record.side)
        if record.status is not RecordStatus.FAILED and not recovers and once:
            space.reserve(record, node.uid)
            return report(ReportKind.RECOVER)
        return None

    def _grant(
        self,
        space: NamespaceState,
        node: NodeState,
        order: Order,
        record: RecordState | None,
        worker: WorkerIdentity,
        token: str,
        *,
        recovers: bool,
    ) -> None:
        now = self._now()
        remaining = order.timeout_ms
        if not recovers:
            remaining = min(remaining, node.run_deadline - now)
        if recovers:
            gone = record is not None and space.is_gone(record.exec_pool, record.exec_worker, record.exec_incarnation)
            own = node.evidence if node.evidence_attempt == node.attempt else None
            evidence = (record.evidence if record else None) or own
            node.found = (space.view(record, live=False) if record else None, gone, evidence)
        node.state, node.token, node.worker = "claimed", token, worker.name
        node.incarnation, node.deadline = worker.incarnation, now + remaining
        space.extend_claim(node)
        owner = f"{order.namespace}/{order.run_name}/{order.node_path}"
        if record is None:
            known = space.records.get(order.record.key)
            record = RecordState(
                key=order.record.key,
                status=RecordStatus.PROCESSING,
                digest=order.params_digest,
                side=order.side_effect,
                scope=order.record.scope,
                window=order.record.window_ms,
                owner=owner,
                owner_run=order.run_uid,
                owner_node=node.uid,
                attempt=order.attempt,
                first=now,
                last=now,
                version=known.version if known else 0,
            )
            space.records[order.record.key] = record
        if not recovers:
            record.status = RecordStatus.PROCESSING
            record.digest, record.side = order.params_digest, order.side_effect
            record.scope, record.window = order.record.scope, order.record.window_ms
            record.outcome, record.expires, record.evidence = None, None, None
            record.exec_token, record.exec_pool = token, order.pool
            record.exec_worker, record.exec_incarnation = worker.name, worker.incarnation
        record.token, record.lease, record.last, record.inbox = token, node.lease, now, False
        record.owner, record.owner_run, record.owner_node = owner, order.run_uid, node.uid
        record.attempt = order.attempt
        record.reserved_for, record.reserved_until, record.answered = "", 0, ""
        record.version += 1
        space.send(node, ReportKind.CLAIMED, worker=worker.name, deadline_ms=remaining)

    def _granted(self, node: NodeState, token: str) -> ClaimAnswer:
        now = self._now()
        remaining, lease = max(node.deadline - now, 0), max(node.lease - now, 0)
        if node.kind is not OrderKind.RECOVER:
            return ClaimAnswer(ClaimVerdict.EXECUTE, token=token, remaining_ms=remaining, lease_ms=lease)
        previous, gone, evidence = node.found or (None, False, None)
        return ClaimAnswer(
            ClaimVerdict.RECOVER,
            token=token,
            remaining_ms=remaining,
            lease_ms=lease,
            previous=previous,
            previous_worker_gone=gone,
            evidence=evidence,
        )

    def _commit(self, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        order = claim.order
        space, now = self.space(order.namespace), self._now()
        node = space.node(order.node_uid)
        if node.done.get(order.seq) == claim.token:
            return CommitVerdict.COMMITTED
        record = space.record(order.record.key)
        recovers = order.kind is OrderKind.RECOVER
        usage = Amount(**{unit: max(getattr(outcome.usage, unit), 0) for unit in UNITS})
        used_nothing = not any(getattr(usage, unit) for unit in UNITS)
        unknown = outcome.effect is Effect.UNKNOWN
        if not space.holds_claim(node, order.seq, claim.token, record):
            node.run = node.run or order.run_uid
            if not recovers:
                node.evidence, node.evidence_attempt = outcome, order.attempt
                if record is not None and record.exec_token == claim.token:
                    record.evidence = outcome
                if not outcome.usage_estimated and not (unknown and used_nothing):
                    space.correct_cost(node, order.attempt, order.seq, usage, outcome)
                    space.settle_cost(node, order.attempt, usage, estimated=False)
            return CommitVerdict.FENCED
        if recovers:
            knows = outcome.effect is Effect.EXECUTED and not used_nothing and not outcome.usage_estimated
            if outcome.effect is Effect.NOT_EXECUTED or knows:
                space.settle_cost(node, order.attempt, usage, estimated=False, only_replace=True)
        elif unknown and used_nothing:
            space.settle_cost(node, order.attempt, None, estimated=True)
        else:
            space.settle_cost(node, order.attempt, usage, estimated=outcome.usage_estimated)
        space.give_back(node)
        if record is None:
            record = RecordState(
                key=order.record.key,
                status=RecordStatus.PROCESSING,
                digest=order.params_digest,
                side=order.side_effect,
                scope=order.record.scope,
                window=order.record.window_ms,
                owner=f"{order.namespace}/{order.run_name}/{order.node_path}",
                owner_run=order.run_uid,
                owner_node=node.uid,
                attempt=order.attempt,
                first=now,
                last=now,
                version=1,
            )
            space.records[order.record.key] = record
        space.settle_record(record, record_status(outcome), outcome, node.uid)
        space.drop_claim(node)
        space.drop_entry(node.stream, node.entry)
        space.free_slots(node, node.attempt, skip_global=True)
        node.state = "ended"
        node.done[order.seq] = claim.token
        space.send(node, ReportKind.COMMITTED, worker=node.worker, outcome=outcome, record_version=record.version)
        run = space.runs.get(node.run_uid)
        if run is not None and run.state == "finished":
            space.let_go(node, record)
        return CommitVerdict.COMMITTED

    def _sweep(self, space: NamespaceState, node: NodeState, keep: int) -> None:
        if not node.seq or node.order is None:
            return
        if node.state == "queued":
            space.close_unclaimed(node, "closed", skip_global=False)
        elif node.state == "claimed" and not space.lease_lives(node.lease):
            space.fence(node, ends=True)
        if node.state != "claimed":
            space.leave(node.order.record.key, node.uid)
        record = space.record(node.order.record.key)
        if record is None or record.owner_node != node.uid or node.state == "claimed":
            return
        if record.status is RecordStatus.PROCESSING and not record.token:
            status = RecordStatus.UNKNOWN if record.side is SideEffect.ONCE else RecordStatus.FAILED
            space.settle_record(record, status, None, node.uid)
        if record.status in (RecordStatus.UNKNOWN, RecordStatus.EXECUTED):
            space.let_go(node, record)
        ended = record.status in (RecordStatus.SUCCESS, RecordStatus.FAILED)
        if record.scope is IdempotencyScope.RUN and ended and record.expires is None:
            record.expires = self._now() + keep

    def _restore_record(self, space: NamespaceState, node: RestoredNode, found: RestoredRecord) -> None:
        now = self._now()
        record = RecordState(
            key=found.key,
            status=found.status,
            digest=found.params_digest,
            side=found.side_effect,
            scope=found.scope,
            window=found.window_ms,
            owner=node.owner,
            owner_run=node.run_uid,
            owner_node=node.node_uid,
            attempt=node.attempt,
            first=now,
            last=now,
            version=max(found.version, 1),
            inbox=found.in_inbox,
            outcome=found.outcome,
        )
        if found.status is RecordStatus.SUCCESS and found.scope is not IdempotencyScope.RUN:
            record.expires = now + found.window_ms
        elif found.status is not RecordStatus.SUCCESS and not found.in_inbox:
            record.reserved_for, record.reserved_until = node.node_uid, now + self._times.reserve
        space.records[found.key] = record

    def _busy_session(self, space: NamespaceState, registration: RunRegistration) -> Admission | None:
        session = space.sessions.setdefault(registration.session, Session())
        if session.run != registration.uid:
            holder = self._known_run(space, session.run) if session.run else None
            if holder is not None and holder.state != "finished":
                return Admission(AdmissionVerdict.SESSION_BUSY, session.run, holder.name)
            for uid, until in list(session.claims.items()):
                if space.lease_lives(until):
                    return Admission(
                        AdmissionVerdict.SESSION_BUSY, session.run, holder.name if holder else session.name
                    )
                del session.claims[uid]
        session.run, session.name = registration.uid, registration.name
        return None

    def _known_run(self, space: NamespaceState, uid: str) -> RunState | None:
        run = space.runs.get(uid)
        if run is not None and run.expires is not None and run.expires <= self._now():
            return None
        return run

    def _park(self, space: NamespaceState, delivery: Delivery) -> None:
        stream = space.stream_of(delivery.stream)
        if stream is not None and delivery.entry_id in stream.entries:
            deliveries = stream.pending.get(delivery.entry_id, ("", 1))[1]
            stream.pending[delivery.entry_id] = (CLAIMED_CONSUMER, deliveries)

    def _take_over(self, namespaces: Sequence[str], consumer: str) -> list[tuple[str, Report]]:
        for namespace in namespaces:
            if (namespace, consumer) not in self._taken_over:
                self._taken_over.add((namespace, consumer))
                log = self.space(namespace).reports
                found = [(entry, log.entries[entry]) for entry in log.pending if entry in log.entries]
                log.pending = dict.fromkeys((entry for entry, _ in found), consumer)
                if found:
                    return found
        return []

    def _read_new(self, namespaces: Sequence[str], consumer: str, count: int) -> list[tuple[str, Report]]:
        found: list[tuple[str, Report]] = []
        for namespace in namespaces:
            if namespace == INSTALL_NAMESPACE:
                continue
            log = self.space(namespace).reports
            taken = 0
            while log.unread and taken < count:
                entry = log.unread.popleft()
                report = log.entries.get(entry)
                if report is not None:
                    log.pending[entry] = consumer
                    found.append((entry, report))
                    taken += 1
        return found


def _begin_order(node: NodeState, order: Order, now: int) -> None:
    node.order, node.seq, node.epoch, node.attempt = order, order.seq, order.epoch, order.attempt
    node.kind, node.request, node.state = order.kind, order.request_id, "queued"
    node.claim_by, node.run_deadline = now + order.claim_within_ms, now + order.run_remaining_ms
    node.token = node.worker = node.incarnation = node.gate_token = node.gate_kind = ""
    node.heard = node.lease = node.deadline = 0
    node.lost = node.adopted = False
    node.report, node.found = None, None


def _amount(values: dict[str, int]) -> Amount:
    return Amount(**values)


def _unlimited() -> Amount:
    return Amount(micros=-1, tokens=-1, model_calls=-1)
