"""Carrying a node's decision out: moves in memory, and the guarded steps in the ledger that some moves need first.

Every step may be repeated after a crash: the ledger recognises its own repetition, and a refusal says what really is.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from agentrun.contract.exact_json import JsonValue
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.node import AgentNodeStatus, NodePhase
from agentrun.contract.orders import Amount, Order, OrderKind
from agentrun.contract.tool import SideEffect
from agentrun.decisions.deadlines import phase_deadline
from agentrun.decisions.facts import OrderSight
from agentrun.decisions.moves import (
    Expand,
    Fence,
    GiveUpRecovery,
    Move,
    NodeDecision,
    Recover,
    Send,
    Stay,
    TakeBack,
    Touch,
    apply_move,
)
from agentrun.decisions.queue_order import QueuedNode
from agentrun.decisions.run_waits import waits_for_job
from agentrun.engine.cluster_port import AlreadyExistsError, ClusterUnavailableError, QuotaExceededError
from agentrun.engine.dispatcher import Candidate
from agentrun.engine.gather import find_deadline
from agentrun.engine.observer import NodeMoved
from agentrun.engine.order_builder import budget_amount, build_order
from agentrun.engine.propagate import propagate, recount_instances
from agentrun.engine.run_memory import NodeMemory, RunMemory
from agentrun.engine.services import EngineServices, EpochLostError
from agentrun.engine.side_by_side import await_all
from agentrun.engine.status_writer import HELD_BACK_RECHECK, StatusWriter
from agentrun.engine.tree_builder import build_instances, build_object, place_instances
from agentrun.ledger.port import DispatchAnswer, NodeLedgerState, RefusalKind, WithdrawVerdict

_LOOK_AGAIN = timedelta(seconds=1)
_SHOW_AGAIN = timedelta(minutes=1)
_HOLDING = frozenset({NodePhase.QUEUED, NodePhase.RUNNING, NodePhase.TIMED_OUT})
"""States in which a node's attempt holds slots."""
_WAITS_NO_MORE = frozenset(
    {
        *(NodePhase.FAILED, NodePhase.CANCELLED, NodePhase.SKIPPED, NodePhase.DEAD),
        *(NodePhase.QUARANTINED, NodePhase.WAITING_APPROVAL),
    }
)
"""States in which a node stands in no record's line; the gate itself has those leave who pass it."""


class NodeEffects:
    """Carries decisions about nodes out."""

    def __init__(self, services: EngineServices, writer: StatusWriter) -> None:
        self._services = services
        self._writer = writer
        self._sendings = itertools.count(1)
        """Numbers of what is sent; whoever begins anew does so under another epoch."""

    async def carry_out(self, run: RunMemory, node: NodeMemory, decision: NodeDecision) -> None:
        """Do what was decided."""
        if node.queued and not isinstance(decision, Send):
            self._leave_queue(node)
        match decision:
            case Move():
                self.move(run, node, decision)
            case Touch(changes):
                self._set(run, node, node.status.model_copy(update=dict(changes)))
                run.touch(node.path)
            case Stay():
                self._stay(run, node, decision)
            case Send():
                self._offer(run, node, decision)
            case Expand(items, then):
                await self._expand(run, node, items, then)
            case TakeBack(then):
                await self._take_back(run, node, then)
            case Fence(then):
                if await self._services.ledger.fence_attempt(run.namespace, node.uid, node.status.seq):
                    self.move(run, node, self._with_end_of_pod(run, node, then))
                else:
                    self._look_again(run, node)
            case GiveUpRecovery(then):
                abandoned = await self._services.ledger.abandon_recovery(run.namespace, node.uid, node.status.seq)
                # One that was turned away at the gate has ended, and said so: no other report is on its way.
                if abandoned or not node.status.recovering:
                    self.move(run, node, then)
                else:
                    self._look_again(run, node)
            case Recover():
                await self._recover(run, node)
            case _:
                assert_never(decision)

    def _with_end_of_pod(self, run: RunMemory, node: NodeMemory, move: Move) -> Move:
        """Say what made a worker silent, where its pod tells: memory, most often."""
        said = self._services.jobs.find_end(run, node)
        return replace(move, message=f"{move.message}: {said}") if said else move

    def move(self, run: RunMemory, node: NodeMemory, move: Move, at: datetime | None = None) -> None:
        """Change the node's state in memory (``at``: the moment that is on record already) and tell all around it."""
        now = at or self._services.now()
        before = node.status
        status, _ = apply_move(before, move, now, run.pause_total(now))
        node.call = None
        if before.phase in _HOLDING and status.phase not in _HOLDING:
            self._services.dispatcher.free(node.uid)
            held_by = before.attempt + (1 if before.phase is NodePhase.QUEUED else 0)
            run.released_slots.append((node.uid, held_by))
        if before.call is not None and _may_stand_in_line(before) and status.phase in _WAITS_NO_MORE:
            run.left_lines.append((before.call.key, node.uid))
        self._count_retry(run, node, before, -1)
        self._set(run, node, status)
        self._count_retry(run, node, status, 1)
        propagate(run, node, before, now)
        call = status.call or before.call
        tool = call.tool.name if call else node.spec.node.tool or ""
        self._services.observer.note(NodeMoved(run.namespace, tool, before, status, run.pause_total(now)))

    def _count_retry(self, run: RunMemory, node: NodeMemory, status: AgentNodeStatus, by: int) -> None:
        if status.phase is NodePhase.RETRY_WAIT and status.call is not None:
            self._services.dispatcher.count_retry(run.namespace, status.call.tool.name, by)

    async def dispatch(self, run: RunMemory, node: NodeMemory, send: Send) -> None:
        """Send the order of a granted node."""
        services, before = self._services, node.status
        now = services.now()
        candidate = services.dispatcher.find_holder(node.uid)
        node.granted = False
        node.queued = False
        if candidate is None:
            # The grant was overtaken: it stands in line again.
            self._offer(run, node, send)
            return
        tool = run.definition(node)
        if tool is None:
            raise ValueError(f"node {node.path} has no tool definition")
        if services.jobs.takes(tool) and not services.jobs.is_staffed(run, node, send.call, tool):
            # It goes on holding its slots; nothing else is at stake before its pod is there.
            node.queued = True
            self._show_what_holds_it(run, node)
            return
        # An attempt that was taken back and goes out again holds its slots anew.
        again = (node.uid, before.attempt + 1)
        run.released_slots = [pair for pair in run.released_slots if pair != again]
        order = services.jobs.address(build_order(run, node, send.call, OrderKind.EXECUTE, services.epoch, now), tool)
        changes = {"seq": order.seq, "epoch": order.epoch, "call": send.call, "deadline": None}
        queued = Move(NodePhase.QUEUED, Reason.DISPATCHED, "", changes)
        if order.side_effect is SideEffect.ONCE:
            # Write-ahead: what may happen only once is on record before anybody can do it.
            self.move(run, node, queued)
            try:
                await self._writer.write_node_now(run, node)
            except BaseException:
                run.set_status(node, before)
                services.dispatcher.drop(node.uid)
                raise
            # From here on a failure leaves it Queued: whether the order stands is looked up, never assumed.
            self._look_again(run, node)
            answer = await self._send(node, order, candidate)
            if answer.refusal is not None:
                back = {"seq": before.seq, "queued_since": before.queued_since}
                self.move(run, node, Move(NodePhase.READY, Reason.HANDED_BACK, "the order was refused", back))
                await self._refused(run, node, answer, candidate)
            else:
                self._note_sent(node)
            return
        try:
            answer = await self._send(node, order, candidate)
        except BaseException:
            # It is sent again with the same seq, and the ledger recognises that.
            services.dispatcher.drop(node.uid)
            raise
        if answer.refusal is None:
            self.move(run, node, queued)
            self._note_sent(node)
            return
        await self._refused(run, node, answer, candidate)

    async def _send(self, node: NodeMemory, order: Order, candidate: Candidate) -> DispatchAnswer:
        services = self._services
        limits = services.dispatcher.limits_of(candidate)
        return await services.ledger.dispatch(order, limits, self._budget(node), next(self._sendings))

    def _note_sent(self, node: NodeMemory) -> None:
        self._services.dispatcher.note_sent(node.uid)
        self._services.jobs.forget(node.uid)

    def sync_with_ledger(self, run: RunMemory, node: NodeMemory, state: NodeLedgerState) -> None:
        """Let the ledger's order or claim win over an older status (after a restart, or a stale refusal)."""
        status = node.status
        if state.seq < status.seq and status.phase is NodePhase.QUEUED:
            # Written ahead and never sent: whoever wrote it died before. Nothing is gained by waiting for a claim.
            node.sight = OrderSight.GONE
        if state.seq < status.seq or state.seq == 0:
            return
        if state.last_report is not None or state.seq == status.seq:
            # A report will tell, or nothing is newer than the status.
            if state.seq > status.seq and status.phase is NodePhase.READY and state.queued:
                self._adopt_order(run, node, state)
            return
        if status.phase is NodePhase.READY:
            self._adopt_order(run, node, state)

    def _adopt_order(self, run: RunMemory, node: NodeMemory, state: NodeLedgerState) -> None:
        self.move(run, node, Move(NodePhase.QUEUED, Reason.DISPATCHED, "found in the ledger", {"seq": state.seq}))
        if state.claimed:
            changes = {"attempt": state.attempt, "worker": state.worker, "deadline": self._services.now()}
            self.move(run, node, Move(NodePhase.RUNNING, Reason.CLAIMED, "found in the ledger", changes))

    async def _refused(self, run: RunMemory, node: NodeMemory, answer: DispatchAnswer, candidate: Candidate) -> None:
        services = self._services
        now = services.now()
        refusal = answer.refusal
        match refusal:
            case None:
                return
            case RefusalKind.NO_SLOT:
                services.dispatcher.hold(candidate)
                services.dispatcher.refuse(node.uid, answer.limit, now)
                node.queued = True
                self._show_what_holds_it(run, node)
                return
            case RefusalKind.STALE_EPOCH:
                services.dispatcher.drop(node.uid)
                raise EpochLostError(f"epoch {services.epoch} is not the ledger's any more")
            case RefusalKind.STALE_SEQ | RefusalKind.CLAIMED:
                services.dispatcher.drop(node.uid)
                seq_before = node.status.seq
                state = await services.ledger.find_node(run.namespace, node.uid)
                if state.seq < node.status.seq:
                    await self._align(run, node)
                if state.seq > node.status.seq and not state.queued and not state.claimed and state.last_report is None:
                    # An order that was withdrawn before its status was written: count on from there.
                    self._set(run, node, node.status.model_copy(update={"seq": state.seq}))
                self.sync_with_ledger(run, node, state)
                if node.status.phase is not NodePhase.READY or node.status.seq != seq_before:
                    self._look_again(run, node)
                    return
                # Whoever knows better has not been heard yet: the same order would be refused again, without pause.
                waiting_for = "Ledger(order)"
            case RefusalKind.BUDGET_EXHAUSTED:
                services.dispatcher.drop(node.uid)
                said = f"the budget of the {answer.limit} does not admit this call any more"
                failure = Failure(
                    effect=Effect.NOT_EXECUTED,
                    failure_class=FailureClass.PERMANENT,
                    reason=Reason.BUDGET_EXHAUSTED,
                    message=said,
                )
                changes = {"failure": failure, "effect": Effect.NOT_EXECUTED}
                self.move(run, node, Move(NodePhase.FAILED, Reason.BUDGET_EXHAUSTED, said, changes))
                return
            case RefusalKind.BUDGET_HELD:
                waiting_for = f"Budget({answer.limit})"
            case RefusalKind.RUN_CLOSED:
                waiting_for = "Ledger(run)"
                run.registered = False
            case RefusalKind.LEDGER_CLOSED:
                waiting_for = "Ledger(closed)"
            case _:
                assert_never(refusal)
        services.dispatcher.drop(node.uid)
        changes = {"due_at": now + _LOOK_AGAIN, "waiting_for": waiting_for}
        self._set(run, node, node.status.model_copy(update=changes))
        run.touch(node.path)

    def _offer(self, run: RunMemory, node: NodeMemory, send: Send) -> None:
        if node.queued:
            self._show_what_holds_it(run, node)
            return
        tool = run.definition(node)
        if tool is None:
            return
        services, status = self._services, node.status
        limits = tool.limits
        if limits and limits.backlog is not None:
            waiting = services.dispatcher.backlog(run.namespace, send.call.tool.name)
            if waiting >= limits.backlog:
                name = send.call.tool.name
                said = f"{waiting} nodes wait for tool {name} already, limits.backlog is {limits.backlog}"
                failure = Failure(
                    effect=Effect.NOT_EXECUTED,
                    failure_class=FailureClass.PERMANENT,
                    reason=Reason.BACKLOG_FULL,
                    message=said,
                )
                changes = {"failure": failure, "effect": Effect.NOT_EXECUTED}
                self.move(run, node, Move(NodePhase.FAILED, Reason.BACKLOG_FULL, said, changes))
                return
        node.queued = True
        services.dispatcher.offer(self._candidate(run, node, send.call.tool.name), services.now())
        # On the run's clock, as it is decided: a time that a suspension has put off would wake the run without pause.
        since, paused = status.queued_since or status.entered_at, run.pause_total(services.now())
        queue_ends = phase_deadline(since, run.waits.queue, status.pause_at_entry, paused)
        # If it is in line longer than states that pass quickly, it says why: also one that stands in it again.
        services.timers.set(run.key, node.path, min(queue_ends, services.now() + services.settings.coalesce))
        if services.now() - status.entered_at > services.settings.coalesce:
            # It has waited for something else, and whoever looks sees it ready for long.
            self._show_what_holds_it(run, node)

    def _show_what_holds_it(self, run: RunMemory, node: NodeMemory) -> None:
        now = self._services.now()
        waiting_for, message = self._services.jobs.find_wait(node.uid)
        waiting_for = self._services.dispatcher.waiting_for(node.uid, now) or waiting_for
        # Waiting raises its priority: shown when somebody looks a minute later. What nothing holds is about to go out,
        # unless another takes what has become free: then it says so soon.
        soon = _SHOW_AGAIN if waiting_for else self._services.settings.coalesce
        self._services.timers.set(run.key, node.path, now + soon)
        message = message if waits_for_job(waiting_for) else ""
        if waiting_for and (waiting_for, message) != (node.status.waiting_for, node.status.message):
            self._set(run, node, node.status.model_copy(update={"waiting_for": waiting_for, "message": message}))

    def hold_slots(self, run: RunMemory, node: NodeMemory) -> None:
        """Note in the dispatcher's book what a node holds, or waits for, that was found at work."""
        self._count_retry(run, node, node.status, 1)
        if node.status.phase in _HOLDING and node.status.call is not None and run.definition(node) is not None:
            self._services.dispatcher.hold(self._candidate(run, node, node.status.call.tool.name))

    def _candidate(self, run: RunMemory, node: NodeMemory, tool_name: str) -> Candidate:
        tool = run.definition(node)
        if tool is None:
            raise ValueError(f"node {node.path} has no tool definition")
        status = node.status
        return Candidate(
            run=run.key,
            path=node.path,
            node=QueuedNode(
                uid=node.uid,
                namespace=run.namespace,
                priority=status.priority,
                deadline=find_deadline(run, self._services.now()),
                queued_since=status.queued_since or status.entered_at,
            ),
            tool=tool_name,
            pool=self._services.jobs.line_of(tool),
            concurrency=tool.limits.concurrency if tool.limits else None,
            starts=self._services.jobs.takes(tool),
        )

    async def _take_back(self, run: RunMemory, node: NodeMemory, then: Move) -> None:
        verdict = await self._services.ledger.withdraw(run.namespace, run.uid, node.uid, node.status.seq)
        match verdict:
            case WithdrawVerdict.WITHDRAWN:
                self.move(run, node, then)
            case WithdrawVerdict.CLAIMED | WithdrawVerdict.ENDED:
                # Its report is on the way and says the truth.
                self._look_again(run, node)
            case WithdrawVerdict.LOST:
                run.registered = False
                self._order_lost(run, node, then)
            case _:
                assert_never(verdict)

    def _order_lost(self, run: RunMemory, node: NodeMemory, then: Move) -> None:
        """Go on after the ledger lost its data: what may happen only once is asked about, never sent again."""
        tool = run.definition(node)
        if tool is not None and tool.side_effect is not SideEffect.ONCE:
            self.move(run, node, then)
            return
        said = "the ledger lost its data while the order was out"
        self.move(run, node, Move(NodePhase.TIMED_OUT, Reason.LEDGER_LOST, said, {"failure": None}))

    async def _align(self, run: RunMemory, node: NodeMemory) -> None:
        """Let a ledger that lost its data count orders on from where the status is."""
        if node.status.seq > 0:
            await self._services.ledger.withdraw(run.namespace, run.uid, node.uid, node.status.seq)

    async def _recover(self, run: RunMemory, node: NodeMemory) -> None:
        call = node.status.call
        if call is None:
            raise ValueError(f"node {node.path} is recovered without a call")
        services = self._services
        now = services.now()
        tool = run.definition(node)
        order = build_order(run, node, call, OrderKind.RECOVER, services.epoch, now)
        if tool is not None:
            order = services.jobs.address(order, tool)
        answer = await services.ledger.dispatch(order, (), None)
        if answer.refusal is None:
            deadline = node.status.deadline or now + run.waits.recovery
            changes = {"seq": order.seq, "epoch": order.epoch, "recovering": True, "deadline": deadline}
            self._set(run, node, node.status.model_copy(update=changes))
            run.touch(node.path)
            return
        if answer.refusal is RefusalKind.STALE_EPOCH:
            raise EpochLostError(f"epoch {services.epoch} is not the ledger's any more")
        if answer.refusal is RefusalKind.RUN_CLOSED:
            run.registered = False
        if answer.refusal is RefusalKind.STALE_SEQ:
            state = await services.ledger.find_node(run.namespace, node.uid)
            if state.seq < node.status.seq:
                await self._align(run, node)
            elif state.seq > node.status.seq:
                standing = state.queued or state.claimed
                self._set(run, node, node.status.model_copy(update={"seq": state.seq, "recovering": standing}))
        self._look_again(run, node)

    async def _expand(self, run: RunMemory, node: NodeMemory, items: tuple[JsonValue, ...], then: Move) -> None:
        now = self._services.now()
        if node.instances:
            # Driven again: what its instances have come to counts, and none is made a second time.
            recount_instances(run, node)
            self.move(run, node, then, now)
            return
        # Nothing that is created tells of a successor, under whom the run may have ended.
        await self._services.refuse_if_overtaken()
        children = build_instances(run, node, items, now)
        try:
            await self.create_objects(run, children)
        except QuotaExceededError as error:
            # What was created is found again by the next try; the rest of the run goes on meanwhile.
            self._writer.hold_back(run, node.path, error)
            changes = {"due_at": now + HELD_BACK_RECHECK, "waiting_for": error.waiting_for}
            self._set(run, node, node.status.model_copy(update=changes))
            return
        run.held_back.pop(node.path, None)
        # On record before any instance begins: who takes the run up after a crash looks for instances of this alone.
        await self._writer.write_ahead(run, node, apply_move(node.status, then, now, run.pause_total(now))[0])
        place_instances(run, node, len(items), children)
        # Some may have been created, and have ended, before a crash: their ends count.
        for child in children:
            self.take_up(run, child, now)
        self.move(run, node, then, now)
        if node.stored is not None and node.stored.status == node.status:
            node.stored = node.stored.model_copy(update={"status": node.status})

    def take_up(self, run: RunMemory, node: NodeMemory, now: datetime) -> None:
        """Tell the counters around a node how it ended, as if just now; hold its slots; know its question."""
        run.paths_by_uid[node.uid] = node.path
        if node.status.inbox is not None:
            run.desk_work[node.path] = None
        self.hold_slots(run, node)
        if node.ended or node.status.inbox is not None:
            fresh = node.status.model_copy(update={"phase": NodePhase.PENDING, "inbox": None})
            propagate(run, node, fresh, now)
        run.touch(node.path)

    async def create_objects(self, run: RunMemory, nodes: list[NodeMemory]) -> None:
        """Create the nodes' objects, adopting those that a former try created; raises :class:`ForeignObjectError`."""
        room = asyncio.Semaphore(self._services.settings.parallel_writes)

        async def create(node: NodeMemory) -> None:
            async with room:
                try:
                    stored = await self._services.cluster.create_node(build_object(run, node))
                except AlreadyExistsError as error:
                    found = error.existing
                    owners = {owner.uid for owner in found.metadata.owner_references}
                    if found.kind != "AgentNode" or run.uid not in owners:
                        raise ForeignObjectError(node.name) from error
                    stored = found
            node.stored = stored
            if stored.status is not None:
                node.status = stored.status

        # All have ended before anything is made of it: what is created meanwhile must not be overlooked.
        await await_all((create(node) for node in nodes if node.stored is None), (ClusterUnavailableError,))
        run.place(nodes)

    def _stay(self, run: RunMemory, node: NodeMemory, stay: Stay) -> None:
        if stay.until is not None:
            self._services.timers.set(run.key, node.path, stay.until)
        if stay.waiting_for != node.status.waiting_for and node.status.phase is not NodePhase.PENDING:
            self._set(run, node, node.status.model_copy(update={"waiting_for": stay.waiting_for}))

    def _leave_queue(self, node: NodeMemory) -> None:
        self._services.dispatcher.drop(node.uid)
        self._services.jobs.forget(node.uid)
        node.queued = False
        node.granted = False

    def _look_again(self, run: RunMemory, node: NodeMemory) -> None:
        self._services.timers.set(run.key, node.path, self._services.now() + _LOOK_AGAIN)

    def _set(self, run: RunMemory, node: NodeMemory, status: AgentNodeStatus) -> None:
        run.set_status(node, status)

    def _budget(self, node: NodeMemory) -> Amount | None:
        return budget_amount(node.spec.node.budget)


def _may_stand_in_line(status: AgentNodeStatus) -> bool:
    """Tell whether the gate may have turned an order of the node away because an equal call is at work."""
    if status.phase is NodePhase.TIMED_OUT:
        return status.due_at is not None
    return status.phase in (NodePhase.READY, NodePhase.QUEUED) and status.seq > 0


class ForeignObjectError(Exception):
    """An object of a node's name exists that does not belong to the run; it is left alone."""

    def __init__(self, name: str) -> None:
        super().__init__(f"AgentNode {name} exists and belongs to something else: delete it or rename the run")
