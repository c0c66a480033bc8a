"""A node calls a tool whose definition contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.tool_checks import find_tool_violations
from agentrun.decisions.admission.violation import Violation, ViolationKind


def tool_is_invalid(view: SpecView) -> Iterator[Violation]:
    """Find nodes whose tool has violations of its own. The run waits until the tool is mended."""
    problems: dict[str, str] = {}
    for name in sorted({place.tool for place in view.places if place.tool in view.tools and place.tool is not None}):
        found = [
            violation
            for violation in find_tool_violations(name, view.tools[name], view.tools, view.check_schema)
            if violation.kind is ViolationKind.REFUSE
        ]
        if found:
            problems[name] = str(found[0])
    for place in view.places:
        if place.tool in problems:
            yield Violation(
                f"{place.field}.tool",
                place.tool,
                f"tool {place.tool} of node {place.name} is invalid: {problems[place.tool]}",
                "mend the AgentTool; the run starts by itself then",
                Reason.TOOL_INVALID,
                ViolationKind.PENDING,
            )
