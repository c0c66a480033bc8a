"""A node depends on itself."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation


def self_dependence(view: SpecView) -> Iterator[Violation]:
    """Find nodes that name themselves in ``dependsOn``, and conditions that choose themselves."""
    for nodes in view.lists:
        for place in nodes.places:
            depends_on = nodes.edges.upstreams.get(place.name, ())
            if place.name in depends_on:
                yield _violation(f"{place.field}.dependsOn", place.name, f"node {place.name} depends on itself")
            elif place.name in nodes.edges.choosers and place.name in nodes.edges.choosers[place.name]:
                yield _violation(f"{place.field}.condition", place.name, f"condition {place.name} chooses itself")


def _violation(field: str, name: str, message: str) -> Violation:
    return Violation(field, name, message, "remove it from there", Reason.INVALID_GRAPH)
