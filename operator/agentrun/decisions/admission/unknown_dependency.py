"""``dependsOn`` names a node that is not in the same list."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.contract.run import SingleNode
from agentrun.decisions.admission.spec_view import NodeList, SpecView
from agentrun.decisions.admission.violation import Violation


def unknown_dependency(view: SpecView) -> Iterator[Violation]:
    """Find dependencies on nodes that do not exist, or that stand inside or outside of a fan-out."""
    for nodes in view.lists:
        for place in nodes.places:
            if isinstance(place.node, SingleNode):
                continue
            for at, name in enumerate(place.node.depends_on):
                if name not in nodes.by_name:
                    yield Violation(
                        f"{place.field}.dependsOn[{at}]",
                        name,
                        f"node {place.name} depends on {name}, which does not exist",
                        find_elsewhere(view, nodes, name) or known_names(nodes),
                        Reason.INVALID_GRAPH,
                    )


def find_elsewhere(view: SpecView, nodes: NodeList, name: str) -> str:
    """Return the remedy when the node stands on another level; empty when it stands nowhere."""
    if nodes.owner is not None and name in view.outer.by_name:
        return f"let the fan-out {nodes.owner.name} depend on {name}: all its instances wait for that"
    for other in view.inner:
        if other is not nodes and name in other.by_name and other.owner is not None:
            return f"{name} is inside fan-out {other.owner.name}: depend on {other.owner.name}"
    return ""


def known_names(nodes: NodeList) -> str:
    """Return the remedy that lists the nodes there are, the first ten by name."""
    names = sorted(nodes.by_name)
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return f"name one of {shown}" if names else "there is no node to name here: remove it"
