"""Nodes wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import NodeList, SpecView
from agentrun.decisions.admission.violation import Violation
from agentrun.decisions.graph import find_cycle


def cycle_in_dependencies(view: SpecView) -> Iterator[Violation]:
    """Find circles over ``dependsOn`` and ``goto``, one after the other, until none is left."""
    for nodes in view.lists:
        # Self-dependence has a check of its own.
        before = {
            name: [other for other in nodes.edges.before(name) if other != name and other in nodes.by_name]
            for name in nodes.by_name
        }
        while cycle := find_cycle(before):
            yield _violation(nodes, cycle)
            before = {name: others for name, others in before.items() if name not in cycle}


def _violation(nodes: NodeList, cycle: tuple[str, ...]) -> Violation:
    circle = " → ".join(cycle)
    first = nodes.by_name[cycle[0]]
    field = "dependsOn" if cycle[1] in nodes.edges.upstreams.get(first.name, ()) else "name"
    return Violation(
        f"{first.field}.{field}",
        circle,
        f"nodes wait for each other: {circle}",
        "remove one of these dependencies (the target of a goto waits for its condition)",
        Reason.INVALID_GRAPH,
    )
