"""A node's name stands twice, or a fan-out's inner node is called like a node of the run."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation


def duplicate_node_name(view: SpecView) -> Iterator[Violation]:
    """Find names by which ``nodes.<name>`` would mean two nodes."""
    for nodes in view.lists:
        for place in nodes.places:
            first = nodes.by_name.get(place.name, place)
            if first is not place:
                yield _violation(place.field, place.name, f"name {place.name} stands twice")
            elif nodes.owner is not None and nodes.by_name and place.name in view.outer.by_name:
                message = f"name {place.name} is that of a node of the run, so nodes.{place.name} would mean two nodes"
                yield _violation(place.field, place.name, message)


def _violation(field: str, name: str, message: str) -> Violation:
    return Violation(f"{field}.name", name, message, "give each node a name of its own", Reason.INVALID_GRAPH)
