"""A node reads a node that need not have ended before it starts."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import NodePlace, Read, SpecView
from agentrun.decisions.admission.violation import Violation


def reference_to_node_not_upstream(view: SpecView) -> Iterator[Violation]:
    """Find reads without an order: the node that is read is not upstream of its reader, directly or through others."""
    for read in view.reads:
        named = view.resolve(read)
        if named is None or view.is_upstream(read, named):
            continue
        reader, remedy = _reader(read, named)
        message = f"{reader} reads node {named.name}, but need not wait for it"
        if named.name == reader.removeprefix("node "):
            message = f"{reader} reads itself"
        yield Violation(read.field, read.text, message, remedy, Reason.INVALID_REFERENCE)


def _reader(read: Read, named: NodePlace) -> tuple[str, str]:
    owner = read.list.owner
    inside = read.list.by_name.get(named.name) is named
    name = read.place.name if owner is None or inside else owner.name
    if name == named.name:
        return f"node {name}", "read the result of an upstream node"
    return f"node {name}", f"add {named.name} to dependsOn of {name}"
