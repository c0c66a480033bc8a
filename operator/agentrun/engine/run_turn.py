"""One turn of a run: take its inputs in, decide until nothing is left to decide, write what is due.

The only writer of a run's memory and objects. A turn that fails (ledger or API away) leaves the memory as far as it
came; the next turn goes on from there, and every step it repeats is recognised.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import assert_never

from agentrun.contract.approval import AgentApproval
from agentrun.contract.defaults import HEARTBEAT_SILENCE
from agentrun.contract.failures import Reason
from agentrun.contract.model_base import MicrosInt
from agentrun.contract.node import TERMINAL_NODE_PHASES, CallStatus, NodePhase, ToolRef
from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.orders import Report
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, AgentRunStatus, NodeType, RunPhase, Spent
from agentrun.decisions.calls import CallRefused, build_call
from agentrun.decisions.facts import NodeFacts, OrderSight, WaitLimits
from agentrun.decisions.idempotency_keys import IdempotencyScopeNames
from agentrun.decisions.moves import Move, Send, Touch
from agentrun.decisions.node_step import decide_node
from agentrun.decisions.report_step import read_report
from agentrun.decisions.run_conditions import build_run_conditions
from agentrun.decisions.run_step import RunDecision, decide_run
from agentrun.engine.cluster_port import ConflictError, HeldBackError, QuotaExceededError
from agentrun.engine.gather import find_deadline, gather_node, gather_run, gather_view
from agentrun.engine.inbox_desk import InboxDesk
from agentrun.engine.node_effects import NodeEffects
from agentrun.engine.observer import RunEnded
from agentrun.engine.order_builder import budget_amount
from agentrun.engine.propagate import give_up_repair, may_be_repaired
from agentrun.engine.run_birth import RunBirth
from agentrun.engine.run_inputs import (
    ApprovalGone,
    ApprovalSeen,
    Granted,
    NodeGone,
    NodeSeen,
    ReportArrived,
    RunGone,
    RunInput,
    RunSeen,
    ToolsChanged,
    Woken,
)
from agentrun.engine.run_memory import NodeMemory, RunMemory, is_held
from agentrun.engine.run_outcome import build_outcome
from agentrun.engine.run_pins import take_spec
from agentrun.engine.services import EngineServices
from agentrun.engine.session_keeper import SessionKeeper
from agentrun.engine.side_by_side import await_all
from agentrun.engine.status_writer import StatusWriter
from agentrun.engine.wait_board import WaitBoard

_CONFLICT_PAUSE = timedelta(milliseconds=100)
_STEPS_PER_NODE = 64
"""A node that is decided about more often than this within one turn is going in circles: a bug, reported loudly."""

_CLAIMED = frozenset({NodePhase.RUNNING, NodePhase.TIMED_OUT})
_CALLING = _CLAIMED | {NodePhase.QUEUED}
_UNDECIDED = frozenset({NodePhase.PENDING, NodePhase.FAILED, NodePhase.TIMED_OUT})
"""States that a node may leave by a decision alone."""
_CUT_OFF = frozenset({NodePhase.CANCELLED, NodePhase.FAILED, NodePhase.DEAD, NodePhase.SKIPPED})


class RunTurn:
    """Takes turns for runs; holds no run's state itself."""

    def __init__(self, services: EngineServices, sessions: SessionKeeper) -> None:
        self._services = services
        self._sessions = sessions
        self._writer = StatusWriter(services)
        self._waits = WaitBoard(services)
        self._effects = NodeEffects(services, self._writer)
        self._desk = InboxDesk(services, self._effects)
        self._birth = RunBirth(services, self._effects, self._writer, sessions)

    async def take(self, run: RunMemory) -> None:
        """Take one turn with the run's inputs. May raise what cluster and ledger raise; then take it again.

        An input leaves the queue after it was taken in: a turn that fails on the way loses none.
        """
        try:
            await self._take_in(run)
            if self._services.dispatcher.has_waiting():
                await self._grant_what_fits(run)
                if run.inputs:
                    await self._take_in(run)
        except HeldBackError as error:
            # The same turn is taken again until the cluster takes it; until then the status says what is waited for.
            run.held_back[""] = error
            if run.status.admitted_at is None:
                self._birth.note_held_back(run, str(error))
            await self._write_status(run)
            raise
        run.held_back.pop("", None)
        await self._write_rest(run)

    async def _take_in(self, run: RunMemory) -> None:
        """Take what has happened in, decide, and store what the nodes have come to."""
        # What became of the run itself counts for everything else that has happened.
        for happened in [one for one in run.inputs if isinstance(one, RunSeen | RunGone)]:
            await self._see_run(run, happened)
            run.inputs = deque(one for one in run.inputs if one is not happened)
        if not run.loaded:
            await self._services.refuse_if_overtaken()
            await self._begin(run)
            if run.admitted and not run.closed:
                # A run that was ending before a crash goes on ending: nothing that was said meanwhile revives it.
                await self._step_run(run)
        while run.inputs:
            await self._absorb(run, run.inputs[0])
            run.inputs.popleft()
        if run.admitted and not run.closed:
            await self._follow_spec(run)
        await self._settle(run)
        run.recall_reports()
        await self._write_nodes(run)

    async def _grant_what_fits(self, run: RunMemory) -> None:
        """Let what has just become ready go out in this very turn, if there is room for it."""
        if self._services.dispatcher.is_short_of_slots(len(run.released_slots)):
            await self._release_slots(run)
        self._services.pump()

    # --- inputs

    async def _see_run(self, run: RunMemory, happened: RunSeen | RunGone) -> None:
        if isinstance(happened, RunGone):
            run.deleted = True
            return
        seen = happened.run
        if happened.fetched or _was_changed(seen.metadata, run.run.metadata):
            # A version that was not written here may be a successor's, or come after one: with it the guard of writes
            # lets pass whatever a leader that stood still meanwhile would write over it.
            await self._services.refuse_if_overtaken()
        run.deleted = run.deleted or seen.metadata.deletion_timestamp is not None
        if not happened.fetched and _is_older(seen.metadata, run.run.metadata):
            return
        if run.stored_status is not None and seen.status != run.stored_status:
            # Not what was written here: somebody with rights on the status changed it. What counts is written again.
            run.stored_status = seen.status
        if run.admitted_spec is None:
            run.run = seen
            return
        take_spec(run, seen, run.admitted_spec, self._services.settings.policies.find(run.namespace))

    async def _begin(self, run: RunMemory) -> None:
        if run.deleted and run.status.admitted_at is not None:
            await self._birth.bury(run)
            return
        if run.status.admitted_at is None and run.status.phase is RunPhase.PENDING:
            await self._birth.admit(run)
            return
        found = await self._services.cluster.list_nodes(run.namespace, run.uid)
        await self._birth.load(run, list(found))

    async def _absorb(self, run: RunMemory, happened: RunInput) -> None:
        match happened:
            case ReportArrived(id, report):
                await self._read_report(run, id, report)
            case Woken(path):
                await self._wake(run, path)
            case Granted(path):
                node = run.nodes.get(path)
                if node is not None:
                    node.granted = True
                    run.touch(path)
            case ApprovalSeen(approval):
                if run.deleted and run.closed:
                    return
                known = run.approvals.get(approval.metadata.name)
                if known is not None and _is_older(approval.metadata, known.metadata):
                    return
                run.approvals[approval.metadata.name] = approval
                await self._answer(run, approval)
            case ApprovalGone(approval):
                self._ask_again(run, approval)
            case NodeSeen():
                pass
            case NodeGone(node):
                gone = run.nodes.get(node.spec.path)
                if gone is not None and not run.deleted and gone.uid == node.metadata.uid:
                    run.unwritten[gone.path] = None
                    run.set_status(gone, gone.status.model_copy())
            case RunSeen() | RunGone():
                await self._see_run(run, happened)
            case ToolsChanged():
                pass
            case _:
                assert_never(happened)

    async def _read_report(self, run: RunMemory, report_id: str, report: Report) -> None:
        path = run.paths_by_uid.get(report.node_uid)
        node = run.nodes.get(path) if path is not None else None
        if node is None and run.admitted and not run.closed:
            run.unplaced.append(ReportArrived(report_id, report))
            return
        if node is None or run.closed:
            run.spare_report_ids.append(report_id)
            return
        if report.seq > node.status.seq:
            if node.status.phase in _UNDECIDED:
                # It went on before a crash, and nobody wrote down that it might: decided anew, it may.
                await self._settle(run)
            if is_held(node.status) and not report.recovering:
                # Or a human had let it go on: the answer is read again as well.
                run.unplaced.append(ReportArrived(report_id, report))
                return
            self._know_call(run, node)
            if report.recovering and node.status.phase is NodePhase.TIMED_OUT:
                # A recovery that a former scheduler sent and did not write down.
                known = {"seq": report.seq, "recovering": True}
                run.set_status(node, node.status.model_copy(update=known))
        facts = self._facts(run, node)
        changed = False
        for step in read_report(facts, report):
            if isinstance(step, Touch | Move):
                changed = True
            await self._effects.carry_out(run, node, step)
        run.touch(node.path)
        # What it says may have been found in the ledger just now, and is not on record before the node is stored.
        if changed or (node.path in run.unwritten and node.needs_write):
            node.report_ids.append(report_id)
        else:
            run.spare_report_ids.append(report_id)

    async def _wake(self, run: RunMemory, path: str) -> None:
        node = run.nodes.get(path)
        if node is None:
            return
        run.touch(path)
        if node.status.phase in (NodePhase.QUEUED, NodePhase.RUNNING, NodePhase.TIMED_OUT):
            await self._look(run, node)
        elif node.status.phase is NodePhase.READY and node.status.waiting_for.startswith("Idempotency("):
            await self._look_at_owner(run, node)

    async def _look(self, run: RunMemory, node: NodeMemory) -> None:
        """Look into the ledger before acting on silence."""
        state = await self._services.ledger.find_node(run.namespace, node.uid)
        if state.seq < node.status.seq:
            # Written ahead and never sent.
            node.sight = OrderSight.GONE
        if state.seq != node.status.seq:
            return
        if state.recovers and node.status.phase is NodePhase.QUEUED:
            # Written ahead as well, and refused: a recovery whose dispatch nobody heard of has this seq.
            node.sight = OrderSight.GONE
            return
        if state.last_report is not None:
            facts = self._facts(run, node)
            for step in read_report(facts, state.last_report):
                await self._effects.carry_out(run, node, step)
            if state.claimed:
                silent = state.claim_silent_ms >= HEARTBEAT_SILENCE / timedelta(milliseconds=1)
                node.sight = OrderSight.SILENT if silent else OrderSight.CLAIMED
            return
        if state.queued:
            node.sight = OrderSight.STANDING
        elif not state.claimed:
            node.sight = OrderSight.GONE

    async def _look_at_owner(self, run: RunMemory, node: NodeMemory) -> None:
        if node.status.call is None:
            return
        view = await self._services.ledger.find_record(run.namespace, node.status.call.key)
        node.owner_lives = view is not None and (view.claim_live or view.in_inbox)

    async def _answer(self, run: RunMemory, approval: AgentApproval) -> None:
        request = approval.status.request if approval.status else None
        node = run.nodes.get(request.node) if request else None
        if node is not None:
            await self._desk.answer(run, node, self._facts(run, node), approval)
            run.touch(node.path)

    def _ask_again(self, run: RunMemory, approval: AgentApproval) -> None:
        run.approvals.pop(approval.metadata.name, None)
        request = approval.status.request if approval.status else None
        node = run.nodes.get(request.node) if request else None
        if node is not None and request is not None and node.asked == request.inbox_id:
            node.asked = ""
            run.desk_work[node.path] = None

    # --- the run's own spec

    async def _follow_spec(self, run: RunMemory) -> None:
        """Act on the fields that may change after admission."""
        spec = run.run.spec
        if not run.registered:
            await self._birth.register(run)
        if spec.cancel and not run.status.cancel_requested:
            run.status = run.status.model_copy(update={"cancel_requested": True})
        if spec.budget != run.budget_in_ledger:
            await self._services.ledger.set_budget(run.namespace, run.uid, budget_amount(spec.budget))
            run.budget_in_ledger = spec.budget
        if run.ending is not None:
            # Its clocks have nothing to say any more; a time that has passed would only wake it again at once.
            return
        deadline = find_deadline(run, self._services.now())
        if deadline is not None:
            self._services.timers.set(run.key, "", deadline)
        if run.status.suspended_at is not None:
            self._services.timers.set(run.key, "", run.status.suspended_at + run.waits.suspended)

    # --- deciding

    async def _settle(self, run: RunMemory) -> None:
        if not run.admitted or run.closed:
            return
        steps = 0
        ready: dict[str, Send] = {}
        try:
            while True:
                while run.dirty:
                    path = next(iter(run.dirty))
                    del run.dirty[path]
                    # What is decided last counts: another node's end may have changed what this one is to do.
                    ready.pop(path, None)
                    send = await self._step(run, run.nodes[path])
                    if send is not None:
                        ready[path] = send
                    steps += 1
                    if steps > _STEPS_PER_NODE * (len(run.nodes) + 1):
                        raise RuntimeError(f"run {run.namespace}/{run.name} goes in circles at node {path}")
                if ready:
                    await self._send(run, ready)
                elif not await self._step_run(run):
                    return
        finally:
            for path in ready:
                run.touch(path)

    async def _step(self, run: RunMemory, node: NodeMemory) -> Send | None:
        """Decide about a node and carry it out, but for an order that is to be sent now: that is returned."""
        if node.status.phase in TERMINAL_NODE_PHASES:
            return None
        if node.status.phase in _CALLING:
            self._know_call(run, node)
        facts = self._facts(run, node)
        if node.status.phase is NodePhase.READY and node.spec.node.type is NodeType.TASK and node.call is None:
            node.call = self._call(run, node, facts)
        decision = decide_node(facts, node.call)
        node.sight = OrderSight.NOT_ASKED
        if isinstance(decision, Send) and node.granted:
            return decision
        try:
            await self._effects.carry_out(run, node, decision)
        except BaseException:
            run.touch(node.path)
            raise
        return None

    async def _send(self, run: RunMemory, ready: dict[str, Send]) -> None:
        """Send orders side by side: the ledger's disk and the API server take many at once about as fast as one.

        What was sent leaves ``ready``; raises the first failure after all the others have ended.
        """
        room = asyncio.Semaphore(self._services.settings.parallel_writes)

        async def send(path: str) -> None:
            async with room:
                await self._effects.dispatch(run, run.nodes[path], ready[path])
            del ready[path]

        await self._sessions.hold(run)
        await await_all(map(send, ready))

    def _facts(self, run: RunMemory, node: NodeMemory) -> NodeFacts:
        services = self._services
        now = services.now()
        return gather_node(
            run,
            node,
            gather_run(run, now, services.contact.answers_since(now)),
            services.judge,
            services.entropy.fraction(),
        )

    def _know_call(self, run: RunMemory, node: NodeMemory) -> None:
        """Build the call of an order that a former scheduler sent and did not write down: it is the very same."""
        if node.status.call is not None or node.spec.node.type is not NodeType.TASK:
            return
        call = self._call(run, node, self._facts(run, node))
        if isinstance(call, CallStatus):
            run.set_status(node, node.status.model_copy(update={"call": call}))

    def _call(self, run: RunMemory, node: NodeMemory, facts: NodeFacts) -> CallStatus | CallRefused:
        # The call stands once it was decided; retries make the very same one.
        if node.status.call is not None:
            return node.status.call
        pinned = run.pinned(node)
        if pinned is None:
            name = node.spec.node.tool or ""
            return CallRefused(Reason.TOOL_NOT_FOUND, f"tool {name} has no definition any more")
        names = IdempotencyScopeNames(
            run_uid=run.status.root_uid or run.uid,
            session=run.run.spec.session or "",
            node_uid=node.uid,
            attempt=node.status.attempt + (node.status.phase not in _CLAIMED),
        )
        return build_call(facts, names, ToolRef.model_validate(pinned.ref))

    async def _step_run(self, run: RunMemory) -> bool:
        """Decide about the run; return whether nodes are to be decided about again."""
        services = self._services
        now = services.now()
        decision = decide_run(gather_view(run, now))
        if decision.ending is not None and run.ending is None:
            held_open = [node for node in map(run.nodes.get, run.by_phase[NodePhase.DEAD]) if node is not None]
            held_open = [node for node in held_open if may_be_repaired(run, node)]
            run.ending = decision.ending
            if decision.ending.cancels_running and not run.cancelled_in_ledger:
                try:
                    await services.ledger.cancel_run(run.namespace, run.uid)
                except BaseException:
                    run.ending = None
                    raise
                run.cancelled_in_ledger = True
            for node in held_open:
                give_up_repair(run, node)
            for path, node in run.nodes.items():
                if not node.ended:
                    run.touch(path)
            return True
        changed = self._note_phase(run, decision)
        if decision.phase in TERMINAL_RUN_PHASES:
            await self._close(run, decision)
            return False
        return changed and bool(run.dirty)

    def _note_phase(self, run: RunMemory, decision: RunDecision) -> bool:
        now = self._services.now()
        status = run.status
        changes: dict[str, object] = {}
        if (status.phase, status.reason, status.message) != (decision.phase, decision.reason, decision.message):
            changes |= {"phase": decision.phase, "reason": decision.reason, "message": decision.message}
        was, is_now = status.phase is RunPhase.SUSPENDED, decision.phase is RunPhase.SUSPENDED
        if is_now and not was:
            changes["suspended_at"] = now
        if was and not is_now:
            changes["suspended_total"] = run.pause_total(now)
            changes["suspended_at"] = None
        if changes:
            run.status = status.model_copy(update=changes)
        if was != is_now:
            # Clocks stop or go on: whoever was waiting by them looks again.
            for phase in (NodePhase.PENDING, NodePhase.READY, NodePhase.QUEUED, NodePhase.RETRY_WAIT):
                for path in run.by_phase[phase]:
                    run.touch(path)
            if is_now:
                self._services.timers.set(run.key, "", now + run.waits.suspended)
        return was != is_now

    async def _close(self, run: RunMemory, decision: RunDecision) -> None:
        """End the run for good: totals from the ledger, outcome into its tombstone, session and slots freed."""
        services = self._services
        now = services.now()
        counters = await services.ledger.find_counters(run.namespace, run.uid)
        spent = Spent(
            cost=MicrosInt(counters.settled.micros),
            tokens=counters.settled.tokens,
            model_calls=counters.settled.model_calls,
        )
        run.status = run.status.model_copy(
            update={
                "phase": decision.phase,
                "reason": decision.reason,
                "message": decision.message,
                "finished_at": run.status.finished_at or now,
                "spent": spent,
            }
        )
        outcome = build_outcome(run.status, _counts(run))
        # The nodes' last states come first: a run is never seen as ended before its nodes are.
        await self._write_nodes(run)
        await self._clear_half_expanded(run)
        # One that was deleted before its end is no finished run: the same content goes on where it stopped.
        await services.ledger.finish_run(
            run.namespace, run.uid, None if run.deleted else outcome, services.settings.finished_keep_ms
        )
        # All its nodes left every line then.
        run.left_lines = []
        await self._sessions.release(run)
        run.closed = True
        services.observer.note(RunEnded(run.namespace, decision.phase, str(decision.reason)))
        run.spare_report_ids.extend(arrived.id for arrived in run.unplaced)
        run.unplaced = []

    async def _clear_half_expanded(self, run: RunMemory) -> None:
        """Delete instances that were created for a fan-out which ended before it had all of them: they never began."""
        halves = {
            node.path
            for node in run.nodes.values()
            if node.spec.node.type is NodeType.FAN_OUT and not node.instances and node.status.phase in _CUT_OFF
        }
        if run.deleted or not halves:
            return
        for found in await self._services.cluster.list_nodes(run.namespace, run.uid):
            if found.spec.parent in halves:
                await self._services.cluster.delete(found)

    # --- writing

    async def _release_slots(self, run: RunMemory) -> None:
        if run.released_slots:
            await self._services.ledger.release_slots(run.namespace, run.released_slots)
            run.released_slots = []

    async def _leave_lines(self, run: RunMemory) -> None:
        """Have nodes that wait for a record no more told nothing of it: the next in line would not hear then."""
        while run.left_lines:
            key, node_uid = run.left_lines[0]
            await self._services.ledger.stop_waiting(run.namespace, key, node_uid)
            del run.left_lines[0]

    async def _write_rest(self, run: RunMemory) -> None:
        await self._release_slots(run)
        await self._leave_lines(run)
        await self._desk.note_applied(run)
        await self._write_status(run)

    async def _write_status(self, run: RunMemory) -> None:
        services = self._services
        if not self._refresh_status(run):
            return
        try:
            await self._writer.write_run(run)
        except ConflictError:
            await services.refuse_if_overtaken()
            # Changed meanwhile, or restored from an older copy, of which no watch tells: it is read, not waited for.
            fresh = await services.cluster.fetch_run(run.namespace, run.name)
            if fresh is not None and fresh.metadata.uid == run.uid:
                run.inputs.append(RunSeen(fresh, fetched=True))
            services.timers.set(run.key, "", services.now() + _CONFLICT_PAUSE)

    async def _write_nodes(self, run: RunMemory) -> None:
        await self._writer.write_nodes(run, lambda node: self._desk.before_write(run, node))
        for path in [path for path in run.desk_work if path not in run.unwritten]:
            node = run.nodes[path]
            if node.closed_inbox:
                await self._desk.close(run, node)
            asked = node.status.inbox
            if asked is not None:
                try:
                    await self._desk.ask(run, node)
                except QuotaExceededError as error:
                    # Nobody can be asked yet; everything else goes on.
                    self._writer.hold_back(run, path, error)
                    continue
            run.held_back.pop(path, None)
            if node.status.inbox is asked:
                run.desk_work.pop(path, None)

    def _refresh_status(self, run: RunMemory) -> bool:
        """Bring counts, inboxes, deadline and conditions up to date; return whether the status is to be written now.

        It is written at most once a second, but a new phase at once.
        """
        services = self._services
        now = services.now()
        status = run.status
        terminal = status.phase in TERMINAL_RUN_PHASES
        generation = run.run.metadata.generation
        derived: dict[str, object] = {
            "counts": _counts(run) if run.nodes else status.counts,
            "inbox": tuple(_inbox(run)) if run.loaded else status.inbox,
            "waits": () if terminal else self._waits.show(run, now),
            "deadline": status.deadline if terminal else find_deadline(run, now),
            "observed_generation": generation,
        }
        changed = {name: value for name, value in derived.items() if getattr(status, name) != value}
        if run.stored_status is status and not changed:
            return False
        phase_moved = run.stored_status is None or run.stored_status.phase is not status.phase
        if not phase_moved and run.next_status_write is not None and now < run.next_status_write:
            services.timers.set(run.key, "", run.next_status_write)
            return False
        ignored = generation != status.admitted_generation and run.spec_edited
        fresh = status.model_copy(update=changed)
        conditions = build_run_conditions(fresh, now, generation, spec_change_ignored=ignored)
        run.status = fresh.model_copy(update={"conditions": conditions})
        run.next_status_write = now + services.settings.coalesce
        return True


def _counts(run: RunMemory) -> dict[str, int]:
    return {str(phase): len(paths) for phase, paths in run.by_phase.items() if paths}


def _inbox(run: RunMemory) -> list[str]:
    waiting = [*run.by_phase[NodePhase.WAITING_APPROVAL], *run.by_phase[NodePhase.QUARANTINED]]
    dead = [path for path in run.by_phase[NodePhase.DEAD] if run.nodes[path].status.inbox is not None]
    return [*waiting, *dead][:50]


def _is_older(seen: ObjectMeta, known: ObjectMeta) -> bool:
    """Tell whether a watch event is older than what memory holds (numeric versions, as every real server has)."""
    left, right = seen.resource_version, known.resource_version
    return left.isdigit() and right.isdigit() and int(left) < int(right)


def _was_changed(seen: ObjectMeta, known: ObjectMeta) -> bool:
    return seen.resource_version != known.resource_version and not _is_older(seen, known)


def new_memory(run: AgentRun) -> RunMemory:
    """Return the memory of a run that was just seen."""
    status = run.status or AgentRunStatus()
    return RunMemory(run=run, status=status, stored_status=run.status, waits=WaitLimits.of(run.spec.waits))
