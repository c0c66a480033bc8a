"""A node reads a node that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import Read, SpecView
from agentrun.decisions.admission.unknown_dependency import known_names
from agentrun.decisions.admission.violation import Violation


def reference_to_unknown_node(view: SpecView) -> Iterator[Violation]:
    """Find reads of nodes that stand neither in the reader's list nor in the run's."""
    for read in view.reads:
        if read.node is not None and view.resolve(read) is None:
            yield Violation(
                read.field,
                read.text,
                f"node {read.node} does not exist",
                _inside_a_fan_out(view, read) or known_names(view.outer),
                Reason.INVALID_REFERENCE,
            )


def _inside_a_fan_out(view: SpecView, read: Read) -> str:
    for nodes in view.inner:
        if read.node in nodes.by_name and nodes.owner is not None:
            owner = nodes.owner.name
            return f"{read.node} is inside fan-out {owner}: read nodes.{owner}.results, the list of its results"
    return ""
