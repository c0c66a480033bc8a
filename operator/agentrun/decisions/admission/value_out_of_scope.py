"""A node reads something that does not exist where it stands: an item outside a fan-out, the params of a call."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import Read, SpecView, Target
from agentrun.decisions.admission.violation import Violation

_INSTANCE = ("item", "index")
_NODE_FIELDS = ("result", "results", "phase", "reason", "class", "effect")


def value_out_of_scope(view: SpecView) -> Iterator[Violation]:
    """Find reads of roots that are not readable in their place."""
    for read in view.reads:
        problem = _problem_of(read)
        if problem:
            message, remedy = problem
            yield Violation(read.field, read.text, message, remedy, Reason.INVALID_REFERENCE)


def _problem_of(read: Read) -> tuple[str, str] | None:
    if read.root in _INSTANCE:
        if read.list.owner is None:
            return f"{read.root} exists only inside a fan-out", "read inputs or an upstream node's result"
        if read.root == "index" and read.path:
            return "index is a number and has no fields", "read index alone"
        return None
    if read.root == "nodes":
        if read.node is None or not read.path or read.path[0] not in _NODE_FIELDS:
            fields = "result" if read.target not in (Target.TEST, Target.PRIORITY) else ", ".join(_NODE_FIELDS)
            return "a node shows other fields", f"read nodes.<name> with one of {fields}"
        return None
    if read.root != "inputs":
        return f"{read.root} is not readable in a run", "read inputs, nodes.<name>.result, or item inside a fan-out"
    return None
