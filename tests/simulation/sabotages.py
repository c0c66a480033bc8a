"""The guards of the protocol, taken away one at a time: what the simulation has to notice.

Each sabotage is a small patch of the real code, in force while one history is lived (``with sabotage.committed():``).
Used by ``make simulate ARGS="--sabotage NAME"`` and by ``simulation.test_sabotage``; no product code knows of it. Where
a second guard makes up for the first one, both are taken away, and the sabotage's docstring says so.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from agentrun.contract.failures import Reason
from agentrun.contract.node import NodePhase
from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.orders import Amount, AttemptOutcome, Order, OrderKind
from agentrun.contract.tool import AgentToolSpec
from agentrun.controller import leadership
from agentrun.decisions import moves, node_step
from agentrun.decisions.facts import NodeFacts
from agentrun.decisions.moves import Move, NodeDecision, Send
from agentrun.decisions.node_states import IllegalTransitionError, TransitionRow, find_row
from agentrun.engine.dispatcher import Candidate, Dispatcher
from agentrun.engine.node_effects import NodeEffects
from agentrun.engine.run_memory import NodeMemory, RunMemory
from agentrun.engine.services import EngineServices
from agentrun.engine.session_port import SessionHolder
from agentrun.ledger.memory_ledger import MemoryLedger
from agentrun.ledger.memory_state import UNITS, NamespaceState, NodeState, RecordState
from agentrun.ledger.port import (
    Admission,
    Claim,
    ClaimAnswer,
    CommitVerdict,
    Delivery,
    DispatchAnswer,
    RestoredNode,
    RunRegistration,
    SlotLimit,
    WorkerIdentity,
)
from agentrun_worker.attempt import CallWindow
from agentrun_worker.recovery import Recoverer
from simulation.one_history import live_seed
from simulation.witness import Findings
from support.lease_book import LeaseBook

MOST_SEEDS = 2000


@dataclass(frozen=True, slots=True)
class Sabotage:
    """One guard that is taken away."""

    name: str
    promise: str
    """The invariant that names it."""
    seed: int
    """The first seed, counted from 0, whose history breaks that promise first of all."""
    committed: Callable[[], AbstractContextManager[None]]

    @property
    def says(self) -> str:
        """What is taken away."""
        return " ".join((self.committed.__doc__ or "").split())


@dataclass(frozen=True, slots=True)
class Catch:
    """What came of looking for a sabotage."""

    sabotage: Sabotage
    findings: Findings | None
    """The first history that broke the promise that names it; None: none of so many did."""
    lived: int
    seconds: float
    others: Counter[str]
    """Other promises that histories on the way broke first."""


SABOTAGES: dict[str, Sabotage] = {}


def _sabotage(name: str, promise: str, seed: int) -> Callable[[Callable[[], Iterator[None]]], None]:
    def register(commit: Callable[[], Iterator[None]]) -> None:
        SABOTAGES[name] = Sabotage(name, promise, seed, contextmanager(commit))

    return register


def live_sabotaged(sabotage: Sabotage, seed: int) -> Findings:
    """Live the history of a seed without that guard."""
    with sabotage.committed():
        return live_seed(seed)


def look_for(sabotage: Sabotage, first: int = 0, most: int = MOST_SEEDS) -> Catch:
    """Live histories without that guard until one breaks the promise that names it."""
    began = time.monotonic()
    others: Counter[str] = Counter()
    for seed in range(first, first + most):
        found = live_sabotaged(sabotage, seed)
        if found.promise == sabotage.promise:
            return Catch(sabotage, found, seed - first + 1, time.monotonic() - began, others)
        if found.promise:
            others[found.promise] += 1
    return Catch(sabotage, None, most, time.monotonic() - began, others)


@contextmanager
def _replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Have other code stand in these places for a while."""
    with ExitStack() as stack:
        for owner, name, stand_in in changes:
            stack.enter_context(patch.object(owner, name, stand_in))
        yield


@contextmanager
def _replaced_in_commits(name: str, stand_in: Callable[..., object]) -> Iterator[None]:
    """Have other code stand in the place of a rule of the ledger's state, while it takes commits alone."""
    commit = MemoryLedger._commit

    def commit_without(self: MemoryLedger, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        with patch.object(NamespaceState, name, stand_in):
            return commit(self, claim, outcome)

    with _replaced((MemoryLedger, "_commit", commit_without)):
        yield


# --- the ten guards of the ledger protocol


@_sabotage("commit-without-token", "only_the_standing_claim_commits", 17)
def _commit_without_token() -> Iterator[None]:
    """The ledger takes every commit, whoever holds the claim by now."""
    with _replaced_in_commits("holds_claim", lambda *_: True):
        yield


@_sabotage("claim-without-record", "no_once_effect_happens_twice", 20)
def _claim_without_record() -> Iterator[None]:
    """The gate gives leave without looking at the idempotency record: an equal call may have been made."""
    gate = MemoryLedger._gate

    def look_at_no_record(
        self: MemoryLedger,
        space: NamespaceState,
        node: NodeState,
        order: Order,
        record: RecordState | None,
        *asker: Any,
        recovers: bool,
    ) -> ClaimAnswer | None:
        return gate(self, space, node, order, record if recovers else None, *asker, recovers=recovers)

    with _replaced((MemoryLedger, "_gate", look_at_no_record)):
        yield


@_sabotage("dispatch-without-seq", "orders_of_a_node_only_count_up", 16)
def _dispatch_without_seq() -> Iterator[None]:
    """An order is taken whatever its number is: one that was overtaken long ago as well."""
    dispatch = MemoryLedger._dispatch

    def compare_nothing(
        self: MemoryLedger, order: Order, limits: tuple[SlotLimit, ...], budget: Amount | None, number: int
    ) -> DispatchAnswer:
        node = self.space(order.namespace).node(order.node_uid)
        same = node.seq == order.seq and node.request == order.request_id and node.kind is order.kind
        was = node.seq
        if not same:
            node.seq = order.seq - 1
        answer = dispatch(self, order, limits, budget, number)
        if answer.refusal is not None:
            node.seq = was
        return answer

    with _replaced((MemoryLedger, "_dispatch", compare_nothing)):
        yield


@_sabotage("timed-out-to-retry", "no_transition_is_illegal", 1)
def _timed_out_to_retry() -> Iterator[None]:
    """A call that timed out is tried again without asking what became of it.

    The table of the state machine refuses that move, and is a guard of its own: it is told to let it pass.
    """

    def try_again(facts: NodeFacts) -> NodeDecision:
        due_at = facts.run.now + timedelta(seconds=1)
        return Move(NodePhase.RETRY_WAIT, Reason.RETRY_SCHEDULED, "tried again", {"due_at": due_at})

    def find_any_row(from_phase: NodePhase, to_phase: NodePhase, reason: str) -> TransitionRow:
        try:
            return find_row(from_phase, to_phase, reason)
        except IllegalTransitionError:
            return TransitionRow(from_phase, to_phase, frozenset({reason}), "sabotaged")

    with _replaced((node_step, "_timed_out", try_again), (moves, "find_row", find_any_row)):
        yield


@_sabotage("reclaim-without-record", "no_once_effect_happens_twice", 6)
def _reclaim_without_record() -> Iterator[None]:
    """A dead worker's order is handed on although it was claimed, and carried out without looking at the record.

    Reclaiming alone would do no harm: the gate turns a claimed order away by its number, and a dead claim's by the
    record. So both let an order pass that comes from a dead worker.
    """
    gate = MemoryLedger._gate
    reclaim = MemoryLedger._reclaim
    taken_over: set[tuple[str, int]] = set()

    def hand_on_all(
        self: MemoryLedger,
        space: NamespaceState,
        worker: WorkerIdentity,
        consumer: str,
        count: int,
        found: list[Delivery],
    ) -> bool:
        for node in space.nodes.values():
            gone = space.is_dead_consumer(worker.pool, f"{node.worker}/{node.incarnation}")
            if node.state == "claimed" and node.kind is OrderKind.EXECUTE and node.order is not None and gone:
                taken_over.add((node.uid, node.seq))
                node.state, node.claim_by = "queued", self._now() + 60_000
                found.append(Delivery(node.stream, node.entry, node.order))
        return reclaim(self, space, worker, consumer, count, found)

    def look_at_no_record(
        self: MemoryLedger, space: NamespaceState, node: NodeState, order: Order, *about: Any, recovers: bool
    ) -> ClaimAnswer | None:
        if (node.uid, order.seq) in taken_over and not recovers:
            return None
        return gate(self, space, node, order, *about, recovers=recovers)

    with _replaced((MemoryLedger, "_reclaim", hand_on_all), (MemoryLedger, "_gate", look_at_no_record)):
        yield


@_sabotage("slot-as-counter", "slots_are_never_exceeded", 50)
def _slot_as_counter() -> Iterator[None]:
    """A limit is a number that goes up with an order and down with each giving back: who holds a slot is not known.

    The scheduler's own book of who holds what makes up for it as long as one scheduler lives: it counts no tool's calls.
    """
    blocks = Dispatcher._blocked_by
    dispatch = MemoryLedger._dispatch
    in_use: Counter[str] = Counter()
    sending: list[Order] = []

    def dispatch_counted(
        self: MemoryLedger, order: Order, limits: tuple[SlotLimit, ...], budget: Amount | None, number: int
    ) -> DispatchAnswer:
        sending.append(order)
        try:
            return dispatch(self, order, limits, budget, number)
        finally:
            sending.pop()

    def find_full(
        self: NamespaceState, limits: Sequence[SlotLimit], node: NodeState, attempt: int, *, skip_global: bool
    ) -> str | None:
        return next((limit.name for limit in limits if sending and in_use[limit.name] >= limit.limit), None)

    def count_up(
        self: NamespaceState, limits: Sequence[SlotLimit], node: NodeState, attempt: int, *, skip_global: bool
    ) -> None:
        in_use.update(limit.name for limit in limits if sending and sending[-1].kind is OrderKind.EXECUTE)

    def count_down(self: NamespaceState, node: NodeState, attempt: int, *, skip_global: bool) -> None:
        in_use.subtract(
            limit.name for limit in node.slots.get(attempt, ()) if limit.name != "global" or not skip_global
        )

    def count_no_tool(self: Dispatcher, candidate: Candidate, now: datetime) -> str:
        return blocks(self, dataclasses.replace(candidate, concurrency=None), now)

    with _replaced(
        (Dispatcher, "_blocked_by", count_no_tool),
        (MemoryLedger, "_dispatch", dispatch_counted),
        (NamespaceState, "full_limit", find_full),
        (NamespaceState, "take_slots", count_up),
        (NamespaceState, "free_slots", count_down),
    ):
        yield


@_sabotage("order-before-status", "a_once_order_is_on_record_before_it_goes_out", 0)
def _order_before_status() -> Iterator[None]:
    """The order of a call that may happen only once goes out before the status that tells of it is written."""
    dispatch = NodeEffects.dispatch

    async def send_first(self: NodeEffects, run: RunMemory, node: NodeMemory, send: Send) -> None:
        with patch.object(self._writer, "write_node_now", _write_nothing):
            await dispatch(self, run, node, send)
        if node.status.phase is NodePhase.QUEUED:
            await self._writer.write_node_now(run, node)

    async def _write_nothing(run: RunMemory, node: NodeMemory) -> None:
        return

    with _replaced((NodeEffects, "dispatch", send_first)):
        yield


@_sabotage("recovery-executes", "every_effect_is_of_a_claimed_attempt", 3)
def _recovery_executes() -> Iterator[None]:
    """A recovery makes the call again instead of asking what became of it."""

    async def execute(
        self: Recoverer,
        order: Order,
        tool: AgentToolSpec,
        lookup_tool: AgentToolSpec | None,
        answer: ClaimAnswer,
        window: CallWindow,
        adopt: Callable[[], Any],
    ) -> AttemptOutcome:
        return await self._maker.make(
            order.tool, tool, order.params, order.request_id, order.record.key, window, order.cost
        )

    with _replaced((Recoverer, "recover", execute)):
        yield


@_sabotage("epoch-goes-back", "epochs_only_rise", 0)
def _epoch_goes_back() -> Iterator[None]:
    """A new leader's epoch is counted from what it has seen, not from what the ledger holds.

    What it sees first is the Lease, which tells of the last one: that is not read either.
    """

    async def count_from_seen(self: MemoryLedger, seen: int) -> int:
        self._epoch = seen + 1
        return self._epoch

    with _replaced((MemoryLedger, "take_epoch", count_from_seen), (leadership, "_epoch", lambda lease: 0)):
        yield


@_sabotage("rebuild-adds", "nothing_is_billed_twice", 152)
def _rebuild_adds() -> Iterator[None]:
    """A rebuild adds what the resources tell of to what the ledger holds, instead of setting what is absent."""
    restore = MemoryLedger.restore_node

    async def add(self: MemoryLedger, node: RestoredNode) -> None:
        space = self.space(node.namespace)
        state, run = space.node(node.node_uid), space.runs.get(node.run_uid)
        if state.seq:
            for unit in UNITS:
                state.settled[unit] += getattr(node.settled, unit)
                if run is not None:
                    run.settled[unit] += getattr(node.settled, unit)
        await restore(self, node)

    with _replaced((MemoryLedger, "restore_node", add)):
        yield


# --- more of them


@_sabotage("hold-not-returned", "money_adds_up", 0)
def _hold_not_returned() -> Iterator[None]:
    """A commit leaves what was held for the call in the run's counter."""
    with _replaced_in_commits("give_back", lambda *_: None):
        yield


@_sabotage("old-epoch-sends", "orders_go_out_under_the_newest_epoch", 57)
def _old_epoch_sends() -> Iterator[None]:
    """The ledger takes orders of a leader that has been overtaken."""
    dispatch = MemoryLedger._dispatch

    def compare_no_epoch(
        self: MemoryLedger, order: Order, limits: tuple[SlotLimit, ...], budget: Amount | None, number: int
    ) -> DispatchAnswer:
        return dispatch(self, order.model_copy(update={"epoch": max(order.epoch, self._epoch)}), limits, budget, number)

    with _replaced((MemoryLedger, "_dispatch", compare_no_epoch)):
        yield


@_sabotage("overtaken-leader-writes", "no_former_leader_writes_over_its_successor", 2)
def _overtaken_leader_writes() -> Iterator[None]:
    """A leader that stood still and wakes up takes its successor's writes for a mere conflict."""

    async def refuse_nothing(self: EngineServices) -> None:
        return

    with _replaced((EngineServices, "refuse_if_overtaken", refuse_nothing)):
        yield


@_sabotage("session-without-comparison", "a_session_has_effects_of_one_run_at_a_time", 14)
def _session_without_comparison() -> Iterator[None]:
    """A session is taken whoever holds it. Its Lease and the ledger guard it both: neither compares."""

    async def take_anyway(self: LeaseBook, run: ObjectMeta, session: str, replacing: str = "") -> None:
        self.holders[session] = SessionHolder(run.uid, run.name)

    def is_never_busy(self: MemoryLedger, space: NamespaceState, registration: RunRegistration) -> Admission | None:
        return None

    with _replaced((LeaseBook, "take", take_anyway), (MemoryLedger, "_busy_session", is_never_busy)):
        yield
