"""A node reads a result of a node that has none of that kind."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.contract.run import NodeType
from agentrun.decisions.admission.spec_view import NodePlace, Read, SpecView
from agentrun.decisions.admission.violation import Violation


def reference_to_node_without_result(view: SpecView) -> Iterator[Violation]:
    """Find reads of ``result`` from fan-outs, conditions and joins, and of ``results`` from anything but a fan-out."""
    for read in view.reads:
        named = view.resolve(read)
        problem = _problem_of(read, named) if named is not None else None
        if problem is not None:
            message, remedy = problem
            yield Violation(read.field, read.text, message, remedy, Reason.INVALID_REFERENCE)


def _problem_of(read: Read, named: NodePlace) -> tuple[str, str] | None:
    asked = read.path[0] if read.path else ""
    if asked == "results" and named.type is not NodeType.FAN_OUT:
        return f"node {named.name} is no fan-out and has no results", f"read nodes.{named.name}.result"
    if asked != "result":
        return None
    if named.type is NodeType.FAN_OUT:
        remedy = f"read nodes.{named.name}.results, or one of them such as nodes.{named.name}.results[0]"
        return f"node {named.name} is a fan-out and has a list of results", remedy
    if named.type in (NodeType.CONDITION, NodeType.JOIN):
        return f"node {named.name} is a {named.type} and has no result", "read the nodes before it"
    return None
