"""A node calls a tool that does not exist (yet)."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation, ViolationKind


def tool_does_not_exist(view: SpecView) -> Iterator[Violation]:
    """Find nodes whose tool, or their tool's lookup, is unknown. The run waits for it."""
    for place in view.places:
        name = place.tool
        if name is None:
            continue
        tool = view.tools.get(name)
        if tool is None:
            yield _violation(f"{place.field}.tool", name, f"node {place.name} calls tool {name}, which does not exist")
        elif tool.recovery is not None and tool.recovery.lookup.tool not in view.tools:
            lookup = tool.recovery.lookup.tool
            message = f"tool {name} of node {place.name} looks its outcome up with tool {lookup}, which does not exist"
            yield _violation(f"{place.field}.tool", name, message)


def _violation(field: str, name: str, message: str) -> Violation:
    remedy = "create the AgentTool in the run's namespace; the run starts by itself then"
    return Violation(field, name, message, remedy, Reason.TOOL_NOT_FOUND, ViolationKind.PENDING)
