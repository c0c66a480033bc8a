"""A run's spec as the checks read it: every node with its place, every list with its edges, every read with its target.

Built once per admission and shared by all checks. It tolerates whatever the checks are there to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.run import AgentRunSpec, NodeBase, NodeType, RunNode, SingleNode
from agentrun.contract.tool import AgentToolSpec
from agentrun.contract.value_tests import ValueTest
from agentrun.decisions.facts import Problem
from agentrun.decisions.graph import Edges, collect_edges, find_ancestors
from agentrun.decisions.namespace_policy import UNBOUNDED, NamespacePolicy
from agentrun.decisions.references import ReferenceSyntaxError, parse_template
from agentrun.decisions.value_paths import ValuePathParts, format_path, parse_path


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node and where it stands."""

    field: str
    name: str
    node: NodeBase | SingleNode
    type: NodeType
    owner: str | None
    """The fan-out whose instances it is part of."""

    @property
    def tool(self) -> str | None:
        """The tool it calls."""
        return self.node.tool


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes of one list: the run's own, or those of a fan-out's instance."""

    places: tuple[NodePlace, ...]
    by_name: Mapping[str, NodePlace]
    """First of each name. Empty for a fan-out's single node, which nothing can name."""
    edges: Edges
    ancestors: Mapping[str, frozenset[str]]
    owner: NodePlace | None


class Target(StrEnum):
    """What a value that is read becomes."""

    PARAM = "Param"
    TEXT = "Text"
    ITEMS = "Items"
    TEST = "Test"
    PRIORITY = "Priority"


@dataclass(frozen=True, slots=True)
class Read:
    """One value that a node reads, by reference or by the path of a test."""

    field: str
    text: str
    root: str
    node: str | None
    """With root ``nodes``: the name, as written."""
    path: ValuePathParts
    """Behind the root, or behind the node's name."""
    place: NodePlace
    list: NodeList
    target: Target
    whole: bool = True
    """The value keeps its type; False: it is inserted into text."""
    at: ValuePathParts = ()
    """With target PARAM: where inside the params."""
    test: ValueTest | None = None


@dataclass(frozen=True, slots=True)
class MalformedReference:
    """A template that does not parse."""

    field: str
    error: ReferenceSyntaxError


@dataclass(frozen=True, slots=True)
class SpecView:
    """Everything the checks look at."""

    spec: AgentRunSpec
    tools: Mapping[str, AgentToolSpec]
    outer: NodeList
    inner: tuple[NodeList, ...]
    reads: tuple[Read, ...]
    malformed: tuple[MalformedReference, ...]
    check_schema: Callable[[JsonObject], tuple[Problem, ...]] | None = None
    """Says what is wrong with a JSON Schema itself; None: nobody asks."""
    policy: NamespacePolicy = UNBOUNDED
    """What its namespace may ask for."""

    @property
    def lists(self) -> tuple[NodeList, ...]:
        """The run's own list, then those of its fan-outs."""
        return (self.outer, *self.inner)

    @property
    def places(self) -> Iterator[NodePlace]:
        """Every node."""
        return (place for nodes in self.lists for place in nodes.places)

    def resolve(self, read: Read) -> NodePlace | None:
        """Return the node a read names: one of its own list, else one of the run's list, else None."""
        if read.node is None:
            return None
        return read.list.by_name.get(read.node) or self.outer.by_name.get(read.node)

    def is_upstream(self, read: Read, named: NodePlace) -> bool:
        """Tell whether the node that is read must have ended before its reader starts."""
        if read.list.by_name.get(named.name) is named:
            return named.name in read.list.ancestors.get(read.place.name, frozenset())
        owner = read.list.owner
        reader = owner.name if owner is not None else read.place.name
        return named.name in self.outer.ancestors.get(reader, frozenset())


def view_spec(
    spec: AgentRunSpec,
    tools: Mapping[str, AgentToolSpec],
    check_schema: Callable[[JsonObject], tuple[Problem, ...]] | None = None,
    policy: NamespacePolicy = UNBOUNDED,
) -> SpecView:
    """Read the spec once for all checks."""
    outer = _list_of([(f"spec.nodes[{at}]", node, node.type) for at, node in enumerate(spec.nodes)], None)
    inner = tuple(_instance_list(place) for place in outer.places if _fan_out_of(place) is not None)
    collector = _Collector()
    for nodes in (outer, *inner):
        for place in nodes.places:
            collector.collect(place, nodes)
    return SpecView(spec, tools, outer, inner, tuple(collector.reads), tuple(collector.malformed), check_schema, policy)


def _fan_out_of(place: NodePlace) -> object | None:
    return place.node.fan_out if isinstance(place.node, RunNode) else None


def _instance_list(owner: NodePlace) -> NodeList:
    fan_out = owner.node.fan_out if isinstance(owner.node, RunNode) else None
    if fan_out is None:
        raise ValueError(f"{owner.name} is no fan-out")
    if fan_out.node is not None:
        place = NodePlace(f"{owner.field}.fanOut.node", owner.name, fan_out.node, NodeType.TASK, owner.name)
        return NodeList((place,), {}, Edges({}, {}), {}, owner)
    return _list_of(
        [(f"{owner.field}.fanOut.nodes[{at}]", node, node.type) for at, node in enumerate(fan_out.nodes)], owner
    )


def _list_of(nodes: Sequence[tuple[str, NodeBase, NodeType]], owner: NodePlace | None) -> NodeList:
    places = tuple(
        NodePlace(field, node.name, node, kind, owner.name if owner else None) for field, node, kind in nodes
    )
    by_name: dict[str, NodePlace] = {}
    for place in places:
        by_name.setdefault(place.name, place)
    edges = collect_edges([node for _, node, _ in nodes])
    before = {name: [other for other in edges.before(name) if other in by_name] for name in by_name}
    return NodeList(places, by_name, edges, _ancestors(before), owner)


def _ancestors(before: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    # A node that waits for itself is reported as that; here it must not hide what it waits for besides.
    return find_ancestors({name: [other for other in others if other != name] for name, others in before.items()})


class _Collector:
    """Gathers the reads of one node after the other."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.malformed: list[MalformedReference] = []

    def collect(self, place: NodePlace, nodes: NodeList) -> None:
        node = place.node
        self._template(f"{place.field}.params", node.params, place, nodes, Target.PARAM)
        if node.idempotency is not None:
            self._template(f"{place.field}.idempotency.key", node.idempotency.key, place, nodes, Target.TEXT)
        if isinstance(node, SingleNode):
            return
        if node.approval is not None:
            self._template(f"{place.field}.approval.message", node.approval.message, place, nodes, Target.TEXT)
        if isinstance(node, RunNode) and node.fan_out is not None:
            self._template(f"{place.field}.fanOut.items", node.fan_out.items, place, nodes, Target.ITEMS)
        if node.priority_from is not None:
            path = node.priority_from.path
            self._path(f"{place.field}.priorityFrom.path", path, place, nodes, Target.PRIORITY, None)
        if node.condition is not None:
            for at, case in enumerate(node.condition.cases):
                field = f"{place.field}.condition.cases[{at}].when.path"
                self._path(field, case.when.path, place, nodes, Target.TEST, case.when)

    def _template(self, field: str, value: JsonValue, place: NodePlace, nodes: NodeList, target: Target) -> None:
        try:
            template = parse_template(value)
        except ReferenceSyntaxError as error:
            self.malformed.append(MalformedReference(join_field(field, error.at), error))
            return
        for placed in template.placed:
            reference = placed.reference
            self.reads.append(
                Read(
                    field=join_field(field, placed.at),
                    text=f"${{{reference.text}}}",
                    root=str(reference.root),
                    node=reference.node,
                    path=reference.path,
                    place=place,
                    list=nodes,
                    # A list with references in it is built of them; only the whole of it must be a list.
                    target=Target.PARAM if target is Target.ITEMS and placed.at else target,
                    whole=placed.whole,
                    at=placed.at,
                )
            )

    def _path(
        self, field: str, text: str, place: NodePlace, nodes: NodeList, target: Target, test: ValueTest | None
    ) -> None:
        parts = parse_path(text)
        node = parts[1] if parts[0] == "nodes" and len(parts) > 1 and isinstance(parts[1], str) else None
        path = parts[2:] if node is not None else parts[1:]
        self.reads.append(Read(field, text, str(parts[0]), node, path, place, nodes, target, test=test))


def join_field(field: str, path: ValuePathParts) -> str:
    """Return the field path with a value's own path behind it."""
    if not path:
        return field
    text = format_path(path)
    return f"{field}{text}" if text.startswith("[") else f"{field}.{text}"
