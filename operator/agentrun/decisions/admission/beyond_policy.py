"""A run asks for a higher priority, or for more money, than its namespace may."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.defaults import DEFAULT_PRIORITY
from agentrun.contract.failures import Reason
from agentrun.contract.money import format_micros
from agentrun.contract.run import NodeBase, Priority
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation


def beyond_policy(view: SpecView) -> Iterator[Violation]:
    """Find every priority above the namespace's highest, those that a result may choose included, and the budget."""
    policy, budget = view.policy, view.spec.budget
    highest = policy.highest_priority
    for field, priority in _priorities(view):
        if not policy.allows_priority(priority):
            shown = f"is {priority}" if priority is not None else f"is not given, which is {DEFAULT_PRIORITY}"
            said = f"{shown}, above {highest}, the highest that this namespace may ask for"
            yield _violation(field, str(priority or ""), said, f"write {highest} or less urgent")
    if policy.budget_micros is not None and not policy.allows_budget(budget):
        value = "" if budget is None or budget.limit is None else format_micros(budget.limit)
        most = format_micros(policy.budget_micros)
        said = f"is {value or 'not given'}; a run of this namespace may spend {most} at most"
        yield _violation("spec.budget.limit", value, said, f'write "{most}" or less')


def _priorities(view: SpecView) -> Iterator[tuple[str, Priority | None]]:
    yield "spec.priority", view.spec.priority
    for place in view.places:
        node = place.node
        if node.priority is not None:
            yield f"{place.field}.priority", node.priority
        if isinstance(node, NodeBase) and node.priority_from is not None:
            for value, priority in node.priority_from.map.items():
                yield f"{place.field}.priorityFrom.map[{value}]", priority
            yield f"{place.field}.priorityFrom.default", node.priority_from.default


def _violation(field: str, value: str, message: str, remedy: str) -> Violation:
    return Violation(field, value, message, remedy, Reason.BEYOND_POLICY)
