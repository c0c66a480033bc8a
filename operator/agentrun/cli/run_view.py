"""What the printers show of runs: built from the cluster's changes, kept apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agentrun.contract.money import format_micros
from agentrun.contract.node import TERMINAL_NODE_PHASES, AgentNode, AgentNodeStatus, NodePhase
from agentrun.contract.run import AgentRun
from agentrun.engine.cluster_port import ChangeKind, ClusterChange

_NEVER_BEGAN = AgentNodeStatus(phase=NodePhase.PENDING, entered_at=datetime(1970, 1, 1, tzinfo=UTC))


@dataclass(slots=True)
class RunsView:
    """The runs and nodes as last seen, in order of their appearance."""

    runs: dict[str, AgentRun] = field(default_factory=dict)
    """By uid."""
    nodes: dict[str, dict[str, AgentNode]] = field(default_factory=dict)
    """By run uid and path."""

    def take_in(self, change: ClusterChange) -> None:
        """Note a change."""
        found = change.object
        if change.kind is ChangeKind.GONE:
            return
        if isinstance(found, AgentRun):
            self.runs[found.metadata.uid] = found
        elif isinstance(found, AgentNode):
            self.nodes.setdefault(found.spec.run.uid, {})[found.spec.path] = found

    def nodes_of(self, run: AgentRun) -> list[AgentNode]:
        """Return a run's nodes, those of the spec in its order, each fan-out's instances below it."""
        found = self.nodes.get(run.metadata.uid, {})
        order = {node.name: at for at, node in enumerate(run.spec.nodes)}
        return sorted(found.values(), key=lambda node: _place(node, order))


def status_of(node: AgentNode) -> AgentNodeStatus:
    """Return the node's status; a node without one waits."""
    return node.status or _NEVER_BEGAN


def duration_of(node: AgentNode, now: datetime) -> timedelta | None:
    """Return how long the node has been at work, from its first claim; None before it."""
    status = status_of(node)
    if status.started_at is None:
        return None
    return (status.finished_at or now) - status.started_at


def duration_text(duration: timedelta | None) -> str:
    """Return a duration for people, such as ``12 ms``, ``3.4 s`` or ``2 m 05 s``."""
    if duration is None:
        return ""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} m {int(seconds % 60):02d} s"


def cost_text(node: AgentNode) -> str:
    """Return what the node has cost, marked when it is an estimate."""
    status = status_of(node)
    if not status.cost:
        return ""
    return format_micros(status.cost) + (" (estimate)" if status.cost_estimated else "")


def why_text(node: AgentNode) -> str:
    """Return why the node is where it is, in a few words."""
    status = status_of(node)
    if status.replay_of and status.phase is NodePhase.SUCCEEDED:
        return f"{status.reason}: result of {status.replay_of}"
    if status.waiting_for and status.phase not in TERMINAL_NODE_PHASES:
        return f"waits for {status.waiting_for}"
    quiet = {"Completed", "DependenciesMet", "JoinMet", "Dispatched", "Claimed"}
    reason = "" if status.reason in quiet else status.reason
    message = " ".join(status.message.split())
    if reason and message:
        return f"{reason}: {message}"
    return reason or message


def depth_of(node: AgentNode) -> int:
    """Return how deep the node stands in its tree."""
    return 0 if node.spec.parent is None else 1


def summary_counts(nodes: list[AgentNode]) -> Iterator[tuple[str, int]]:
    """Give (phase, number) for the phases that occur."""
    counts: dict[str, int] = {}
    for node in nodes:
        phase = str(status_of(node).phase)
        counts[phase] = counts.get(phase, 0) + 1
    yield from counts.items()


def _place(node: AgentNode, order: dict[str, int]) -> tuple[int, int, str]:
    top = node.spec.path.split(".", 1)[0]
    at = order.get(top, len(order))
    if node.spec.parent is None:
        return at, -1, ""
    return at, node.spec.index or 0, node.spec.path
