"""A condition chooses a node that is not in the same list."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.contract.run import Condition, SingleNode
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.unknown_dependency import known_names
from agentrun.decisions.admission.violation import Violation


def unknown_goto_target(view: SpecView) -> Iterator[Violation]:
    """Find targets of ``goto`` and ``default`` that do not exist on the condition's own level."""
    for nodes in view.lists:
        for place in nodes.places:
            if isinstance(place.node, SingleNode) or place.node.condition is None:
                continue
            for field, target in _targets(place.node.condition):
                if target not in nodes.by_name:
                    yield Violation(
                        f"{place.field}.condition.{field}",
                        target,
                        f"condition {place.name} chooses {target}, which does not exist here",
                        known_names(nodes),
                        Reason.INVALID_GRAPH,
                    )


def _targets(condition: Condition) -> Iterator[tuple[str, str]]:
    for at, case in enumerate(condition.cases):
        yield f"cases[{at}].goto", case.goto
    if condition.default is not None:
        yield "default", condition.default
