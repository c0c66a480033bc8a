"""A join asks for more upstream nodes than there are."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.contract.run import Join, JoinRule, RunNode, SingleNode
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation


def join_cannot_be_met(view: SpecView) -> Iterator[Violation]:
    """Find AtLeast counts above the number of upstream nodes, or of the instances a fan-out may have."""
    for nodes in view.lists:
        for place in nodes.places:
            if isinstance(place.node, SingleNode):
                continue
            upstreams = len(nodes.edges.upstreams.get(place.name, ()))
            yield from _too_many(f"{place.field}.join", place.node.join, upstreams, "nodes in dependsOn")
            fan_out = place.node.fan_out if isinstance(place.node, RunNode) else None
            if fan_out is not None:
                yield from _too_many(f"{place.field}.fanOut.join", fan_out.join, fan_out.max_items, "items at most")


def _too_many(field: str, join: Join | None, available: int, what: str) -> Iterator[Violation]:
    if join is not None and join.rule is JoinRule.AT_LEAST and (join.count or 0) > available:
        yield Violation(
            f"{field}.count",
            str(join.count),
            f"AtLeast {join.count} can never be met: there are {available} {what}",
            f"lower the count to {available} or less, or name more",
            Reason.INVALID_GRAPH,
        )
