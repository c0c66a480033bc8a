"""The live tree: on a terminal redrawn in place, elsewhere one line for each change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from agentrun.cli.run_view import (
    RunsView,
    cost_text,
    depth_of,
    duration_of,
    duration_text,
    status_of,
    summary_counts,
    why_text,
)
from agentrun.contract.money import format_micros
from agentrun.contract.node import AgentNode, NodePhase
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun
from agentrun.engine.cluster_port import ChangeKind, ClusterChange

_STYLES = {
    NodePhase.SUCCEEDED: "green",
    NodePhase.SKIPPED: "dim",
    NodePhase.CANCELLED: "dim",
    NodePhase.DEAD: "bold red",
    NodePhase.FAILED: "red",
    NodePhase.QUARANTINED: "bold yellow",
    NodePhase.WAITING_APPROVAL: "bold yellow",
    NodePhase.RUNNING: "cyan",
    NodePhase.TIMED_OUT: "magenta",
}
_MARKS = {
    NodePhase.SUCCEEDED: "✔",
    NodePhase.SKIPPED: "–",
    NodePhase.CANCELLED: "⊘",
    NodePhase.DEAD: "✘",
    NodePhase.RUNNING: "▶",
    NodePhase.QUARANTINED: "?",
    NodePhase.WAITING_APPROVAL: "?",
}
_SHOWN_INSTANCES = 12


class LiveTree:
    """Redraws the tree on a terminal while things happen."""

    def __init__(self, console: Console, now: Callable[[], datetime]) -> None:
        self._view = RunsView()
        self._now = now
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=12, transient=True)

    def __enter__(self) -> LiveTree:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, change: ClusterChange) -> None:
        """Take a change in; the next refresh shows it."""
        self._view.take_in(change)

    def pause(self) -> None:
        """Leave the terminal to a question."""
        self._live.stop()

    def resume(self) -> None:
        """Take the terminal back."""
        self._live.start()

    def _draw(self) -> Tree:
        root = Tree("", hide_root=True)
        for run in self._view.runs.values():
            branch = root.add(_run_line(run))
            shown: dict[str, int] = {}
            places: dict[str, Tree] = {}
            for node in self._view.nodes_of(run):
                parent = node.spec.parent
                if parent is None:
                    places[node.spec.path] = branch.add(self._node_line(node))
                    continue
                shown[parent] = shown.get(parent, 0) + 1
                if shown[parent] <= _SHOWN_INSTANCES and parent in places:
                    places[parent].add(self._node_line(node))
            for parent, count in shown.items():
                if count > _SHOWN_INSTANCES and parent in places:
                    places[parent].add(Text(f"… and {count - _SHOWN_INSTANCES} more", style="dim"))
        return root

    def _node_line(self, node: AgentNode) -> Text:
        status = status_of(node)
        line = Text()
        line.append(f"{_MARKS.get(status.phase, '·')} ", style=_STYLES.get(status.phase, ""))
        line.append(node.spec.path, style="bold")
        line.append(f"  {status.phase}", style=_STYLES.get(status.phase, ""))
        details = [
            f"attempt {status.attempt}" if status.attempt > 1 else "",
            duration_text(duration_of(node, self._now())),
            cost_text(node),
            why_text(node)[:100],
        ]
        line.append("".join(f"  {detail}" for detail in details if detail), style="dim")
        return line


class LinePrinter:
    """Prints one plain line for each step of a run or node."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phases: dict[str, tuple[str, int]] = {}
        self._lines: dict[str, int] = {}

    def __enter__(self) -> LinePrinter:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def show(self, change: ClusterChange) -> None:
        """Print what is new about the object."""
        found = change.object
        if change.kind is ChangeKind.GONE:
            return
        if isinstance(found, AgentNode):
            self._show_node(found)
        elif isinstance(found, AgentRun) and found.status is not None:
            now = (str(found.status.phase), 0)
            if self._phases.get(found.metadata.uid) != now:
                self._phases[found.metadata.uid] = now
                said = f"run {found.metadata.name}: {found.status.phase}"
                details = " ".join(part for part in (found.status.reason, found.status.message) if part)
                self._print(f"{said} ({details})" if details else said)

    def pause(self) -> None:
        """Nothing is drawn in place."""

    def resume(self) -> None:
        """Nothing is drawn in place."""

    def _show_node(self, node: AgentNode) -> None:
        status = status_of(node)
        seen = self._lines.get(node.metadata.uid, 0)
        total = len(status.timeline)
        # The timeline is bounded: a longer one shows its last lines again.
        for step in status.timeline[min(seen, total) :]:
            message = " ".join(step.message.split())
            detail = step.reason + (f": {message}" if message else "")
            attempt = f" attempt {step.attempt}" if step.attempt > 1 else ""
            self._print(f"  {node.spec.path}: {step.from_phase} -> {step.to_phase}{attempt} ({detail})")
        self._lines[node.metadata.uid] = total

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def print_summary(console: Console, run: AgentRun, nodes: list[AgentNode], now: datetime) -> None:
    """Print the run's end: every node with phase, attempts, duration, cost and reason."""
    view = RunsView()
    view.runs[run.metadata.uid] = run
    view.nodes[run.metadata.uid] = {node.spec.path: node for node in nodes}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("NODE", "left"), ("PHASE", "left"), ("ATTEMPTS", "right"), ("DURATION", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # rich's literal
    table.add_column("COST", justify="right", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    for node in view.nodes_of(run):
        status = status_of(node)
        table.add_row(
            "  " * depth_of(node) + node.spec.path,
            Text(str(status.phase), style=_STYLES.get(status.phase, "")),
            str(status.attempt) if status.attempt else "-",
            duration_text(duration_of(node, now)) or "-",
            cost_text(node) or "-",
            Text(why_text(node)[:300]),
        )
    console.print(Text(""))
    console.print(table)
    console.print(_run_line(run))
    counts = ", ".join(f"{number} {phase}" for phase, number in summary_counts(nodes))
    if counts:
        console.print(Text(f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}: {counts}", style="dim"))


def _run_line(run: AgentRun) -> Text:
    status = run.status
    line = Text()
    line.append(f"run {run.metadata.name}", style="bold")
    if status is None:
        return line
    good = status.phase == "Succeeded"
    style = ("bold green" if good else "bold red") if status.phase in TERMINAL_RUN_PHASES else "bold cyan"
    line.append(f"  {status.phase}", style=style)
    if status.started_at and status.finished_at:
        line.append(f"  {duration_text(status.finished_at - status.started_at)}", style="dim")
    if status.spent is not None and status.spent.cost:
        line.append(f"  cost {format_micros(status.spent.cost)}", style="dim")
    details = " ".join(part for part in (status.reason, status.message) if part)
    if details and status.reason not in ("Admitted", "AllNodesEnded"):
        line.append(f"  {details}", style="dim")
    return line
