"""Propagation: what one node's new state means for the counters and indexes around it.

Each change costs what it touches: the direct dependants, the targets of a condition, the fan-out above.
"""

from __future__ import annotations

from datetime import datetime

from agentrun.contract.failures import Reason
from agentrun.contract.node import INBOX_PHASES, TERMINAL_NODE_PHASES, AgentNodeStatus, InboxKind, NodePhase
from agentrun.contract.run import FailurePolicy
from agentrun.contract.tool import Pauses
from agentrun.decisions.join_rules import Choice, JoinCounter, UpstreamEnd
from agentrun.engine.gather import walk_downstream
from agentrun.engine.run_memory import NodeMemory, RunMemory
from agentrun.engine.tree_builder import released_at_first


def propagate(run: RunMemory, node: NodeMemory, before: AgentNodeStatus, now: datetime) -> None:
    """Bring everything around a node up to date after its status changed from ``before``."""
    if node.status.phase is before.phase:
        return
    _note_inboxes(run, node, before, now)
    if node.status.phase in TERMINAL_NODE_PHASES:
        _note_end(run, node)
    elif before.phase is NodePhase.DEAD:
        # Driven again: its dependants never counted it as ended.
        run.suspending -= 1
    run.touch(node.path)


def end_of(run: RunMemory, node: NodeMemory) -> UpstreamEnd:
    """Return how a node ended as its dependants see it."""
    match node.status.phase:
        case NodePhase.SUCCEEDED:
            return UpstreamEnd.SUCCEEDED
        case NodePhase.SKIPPED:
            return UpstreamEnd.SKIPPED
        case NodePhase.CANCELLED:
            return UpstreamEnd.CANCELLED
        case NodePhase.DEAD:
            if node.status.tolerated:
                return UpstreamEnd.TOLERATED_DEAD
            if may_be_repaired(run, node):
                return UpstreamEnd.PENDING
            return UpstreamEnd.DEAD
        case _:
            return UpstreamEnd.PENDING


def may_be_repaired(run: RunMemory, node: NodeMemory) -> bool:
    """Tell whether a dead node holds its dependants and its run open: policy Suspend, question not closed."""
    policy = node.spec.node.on_failure or run.run.spec.on_node_failure
    return policy is FailurePolicy.SUSPEND and node.status.inbox is not None and run.ending is None


def give_up_repair(run: RunMemory, node: NodeMemory) -> None:
    """Count a dead node as ended for good: nobody will drive it again within this run."""
    run.suspending -= 1
    _tell_dependants(run, node, UpstreamEnd.DEAD)


def recount_instances(run: RunMemory, parent: NodeMemory) -> None:
    """Count the ends of a fan-out's instances anew, by what they are now."""
    parent.children_counter = JoinCounter.of(len(parent.instances))
    parent.released = released_at_first(parent)
    for index, paths in parent.children_of_instance.items():
        parent.open_in_instance[index] = sum(end_of(run, run.nodes[path]) is UpstreamEnd.PENDING for path in paths)
        if not parent.open_in_instance[index]:
            _note_instance_end(run, parent, index)
    run.touch(parent.path)


def _note_end(run: RunMemory, node: NodeMemory) -> None:
    end = end_of(run, node)
    if node.status.phase is NodePhase.DEAD and not node.status.tolerated:
        if node.status.reason == Reason.TOO_MANY_ITEMS:
            run.limit_breaker = run.limit_breaker or node.path
        elif end is UpstreamEnd.PENDING:
            run.suspending += 1
        else:
            run.aborting = run.aborting or node.path
    if end is not UpstreamEnd.PENDING:
        _tell_dependants(run, node, end)


def _tell_dependants(run: RunMemory, node: NodeMemory, end: UpstreamEnd) -> None:
    for path in run.dependants.get(node.path, ()):
        dependant = run.nodes[path]
        dependant.counter = dependant.counter.after(end)
        run.touch(path)
    for path in run.targets.get(node.path, ()):
        target = run.nodes[path]
        target.choices[node.path] = _choice(node, target, end)
        run.touch(path)
    if node.spec.parent is not None and node.spec.index is not None:
        _tell_parent(run, node, run.nodes[node.spec.parent], node.spec.index)
    for path in node.children:
        run.touch(path)


def _choice(condition: NodeMemory, target: NodeMemory, end: UpstreamEnd) -> Choice:
    if end is UpstreamEnd.SUCCEEDED:
        return Choice.CHOSE_IT if condition.status.chosen == target.spec.node.name else Choice.CHOSE_OTHER
    return Choice.SKIPPED if end is UpstreamEnd.SKIPPED else Choice.FAILED


def _tell_parent(run: RunMemory, node: NodeMemory, parent: NodeMemory, index: int) -> None:
    parent.open_in_instance[index] -= 1
    if not parent.open_in_instance[index]:
        _note_instance_end(run, parent, index)


def _note_instance_end(run: RunMemory, parent: NodeMemory, index: int) -> None:
    if parent.children_counter is None:
        return
    parent.children_counter = parent.children_counter.after(_instance_end(run, parent, index))
    run.touch(parent.path)
    # The next instance in item order may begin.
    if parent.released < len(parent.instances):
        parent.released += 1
        for path in parent.children_of_instance[parent.released - 1]:
            run.touch(path)


def _instance_end(run: RunMemory, parent: NodeMemory, index: int) -> UpstreamEnd:
    result_node = run.nodes[parent.instances[index]]
    inside = f"{parent.path}.{index}"
    single = result_node.path == inside
    if not single and any(
        end_of(run, run.nodes[path]) is UpstreamEnd.DEAD for path in parent.children_of_instance[index]
    ):
        return UpstreamEnd.DEAD
    return end_of(run, result_node)


def _note_inboxes(run: RunMemory, node: NodeMemory, before: AgentNodeStatus, now: datetime) -> None:
    if before.phase in INBOX_PHASES and before.inbox is not None:
        node.closed_inbox = before.inbox.id
        node.closed_record_key = before.inbox.record_key
        run.desk_work[node.path] = None
        stood_still = now - before.entered_at
        for downstream in walk_downstream(run, node.path):
            if downstream.status.phase is NodePhase.PENDING:
                downstream.inbox_pause += stood_still
                run.touch(downstream.path)
    was_holding = run.held_by == node.path
    holds = _pauses_run(run, node)
    if was_holding != holds:
        run.held_by = node.path if holds else ""
        for path in run.by_phase[NodePhase.READY]:
            run.touch(path)


def _pauses_run(run: RunMemory, node: NodeMemory) -> bool:
    if node.status.phase is not NodePhase.WAITING_APPROVAL or node.status.inbox is None:
        return False
    tool = run.definition(node)
    asks_by_policy = node.status.inbox.kind is InboxKind.CALL and tool is not None and tool.approval is not None
    return asks_by_policy and tool.approval.pauses is Pauses.RUN  # type: ignore[union-attr]
