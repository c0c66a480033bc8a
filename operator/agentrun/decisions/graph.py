"""The graph of a run: who waits for whom, who may choose whom, and what one instance of a fan-out consists of.

Two kinds of edges order nodes: ``dependsOn``, and a condition's ``goto`` or ``default``, whose target depends on the
condition by that alone. Names are sorted wherever order means nothing, so manifests that differ in order only have one
graph. Built from an admitted spec; what is wrong with a graph is named by ``admission``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from agentrun.contract.exact_json import JsonValue
from agentrun.contract.model_base import ContractModel
from agentrun.contract.run import AgentRunSpec, NodeBase, NodeType, RunNode


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges between the nodes of one list; unknown names and self-loops are left in for whoever judges them."""

    upstreams: Mapping[str, tuple[str, ...]]
    """By node: what it names in ``dependsOn``, sorted, each once."""
    choosers: Mapping[str, tuple[str, ...]]
    """By node (or unknown target): the conditions that may choose it, sorted, each once."""

    def before(self, name: str) -> tuple[str, ...]:
        """Return every node that must end before this one, sorted, each once."""
        return tuple(sorted({*self.upstreams.get(name, ()), *self.choosers.get(name, ())}))


@dataclass(frozen=True, slots=True)
class RunGraph:
    """The graph of a run's own list of nodes."""

    nodes: Mapping[str, RunNode]
    upstreams: Mapping[str, tuple[str, ...]]
    choosers: Mapping[str, tuple[str, ...]]
    dependants: Mapping[str, tuple[str, ...]]
    """By node: who waits for it, by either kind of edge."""
    order: tuple[str, ...]
    """Every node after all that it waits for; by name where that leaves a choice."""


@dataclass(frozen=True, slots=True)
class InstancePart:
    """One node of one instance of a fan-out; the names among its instance are full paths."""

    path: str
    node: RunNode
    parent: str
    index: int
    item: JsonValue
    upstreams: tuple[str, ...]
    choosers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """What every instance of a fan-out consists of; made once for all of them."""

    nodes: tuple[RunNode, ...]
    """Each after all that it waits for."""
    edges: Edges
    single: bool
    """The short form: one task, whose path has no name of its own."""
    result: str
    """The node that gives the instance's result."""

    def path_of(self, parent: str, index: int, name: str) -> str:
        """Return the full path of an instance's node: ``check.3``, or ``check.3.price``."""
        return f"{parent}.{index}" if self.single else f"{parent}.{index}.{name}"

    def result_path(self, parent: str, index: int) -> str:
        """Return the full path of the node that gives the instance's result."""
        return self.path_of(parent, index, self.result)

    def expand(self, parent: str, index: int, item: JsonValue) -> tuple[InstancePart, ...]:
        """Return the nodes of one instance."""
        return tuple(
            InstancePart(
                path=self.path_of(parent, index, node.name),
                node=node,
                parent=parent,
                index=index,
                item=item,
                upstreams=tuple(self.path_of(parent, index, name) for name in self.edges.upstreams.get(node.name, ())),
                choosers=tuple(self.path_of(parent, index, name) for name in self.edges.choosers.get(node.name, ())),
            )
            for node in self.nodes
        )


def build_graph(spec: AgentRunSpec) -> RunGraph:
    """Return the graph of an admitted run.

    Raises :class:`ValueError` for doubled or unknown names and cycles: admission refuses such a run before.
    """
    nodes = {node.name: node for node in sorted(spec.nodes, key=lambda node: node.name)}
    if len(nodes) != len(spec.nodes):
        raise ValueError("a node's name stands twice")
    edges = collect_edges(spec.nodes)
    before = {name: edges.before(name) for name in nodes}
    dependants: dict[str, list[str]] = {name: [] for name in nodes}
    for name, upstreams in before.items():
        for upstream in upstreams:
            if upstream not in dependants:
                raise ValueError(f"node {name} depends on {upstream}, which is unknown")
            dependants[upstream].append(name)
    order = sort_by_dependency(before)
    if len(order) != len(nodes):
        raise ValueError(f"nodes depend on each other: {' → '.join(find_cycle(before))}")
    return RunGraph(
        nodes=nodes,
        upstreams={name: edges.upstreams[name] for name in nodes},
        choosers={name: edges.choosers.get(name, ()) for name in nodes},
        dependants={name: tuple(sorted(waiting)) for name, waiting in dependants.items()},
        order=order,
    )


def plan_instances(fan_out_node: RunNode) -> InstancePlan:
    """Return what every instance of the fan-out consists of. A node without a priority has the fan-out's."""
    fan_out = fan_out_node.fan_out
    if fan_out is None:
        raise ValueError(f"node {fan_out_node.name} is no fan-out")
    inherited = _priority_of(fan_out_node)
    if fan_out.node is not None:
        single = RunNode.model_validate(
            {**inherited, **_set_fields(fan_out.node), "name": fan_out_node.name, "type": NodeType.TASK}
        )
        return InstancePlan((single,), Edges({single.name: ()}, {}), single=True, result=single.name)
    edges = collect_edges(fan_out.nodes)
    by_name = {node.name: node for node in fan_out.nodes}
    order = sort_by_dependency({name: edges.before(name) for name in by_name})
    nodes = tuple(
        RunNode.model_validate({**({} if _priority_of(inner) else inherited), **_set_fields(inner)})
        for inner in (by_name[name] for name in order)
    )
    return InstancePlan(nodes, edges, single=False, result=fan_out.result or fan_out.nodes[-1].name)


def expand_instance(fan_out_node: RunNode, path: str, index: int, item: JsonValue) -> tuple[InstancePart, ...]:
    """Return the nodes of one instance. For many instances, plan once and expand the plan."""
    return plan_instances(fan_out_node).expand(path, index, item)


def collect_edges(nodes: Sequence[NodeBase]) -> Edges:
    """Collect what the nodes of one list say about their order."""
    choosers: dict[str, set[str]] = {}
    for node in nodes:
        for target in condition_targets(node):
            choosers.setdefault(target, set()).add(node.name)
    return Edges(
        upstreams={node.name: tuple(sorted(set(node.depends_on))) for node in nodes},
        choosers={target: tuple(sorted(names)) for target, names in sorted(choosers.items())},
    )


def condition_targets(node: NodeBase) -> tuple[str, ...]:
    """Return the nodes a condition may choose, in the order they are written; none for other nodes."""
    if node.condition is None:
        return ()
    targets = [case.goto for case in node.condition.cases]
    if node.condition.default is not None:
        targets.append(node.condition.default)
    return tuple(dict.fromkeys(targets))


def sort_by_dependency(before: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the names, each after all it waits for; those on and behind a cycle are left out, unknown ones ignored."""
    waiting = {name: {other for other in others if other in before} for name, others in before.items()}
    after: dict[str, list[str]] = {name: [] for name in before}
    for name, others in waiting.items():
        for other in others:
            after[other].append(name)
    open_count = {name: len(others) for name, others in waiting.items()}
    ready = [name for name, count in open_count.items() if count == 0]
    heapify(ready)
    order: list[str] = []
    while ready:
        name = heappop(ready)
        order.append(name)
        for waiter in after[name]:
            open_count[waiter] -= 1
            if open_count[waiter] == 0:
                heappush(ready, waiter)
    return tuple(order)


def find_ancestors(before: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Return, by node, everything that must end before it, directly or not. On a cycle: what is known without it."""
    ancestors: dict[str, frozenset[str]] = {}
    for name in sort_by_dependency(before):
        direct = [other for other in before[name] if other in before]
        ancestors[name] = frozenset(direct).union(*(ancestors[other] for other in direct))
    return {name: ancestors.get(name, frozenset(before[name])) for name in before}


def find_cycle(before: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return one cycle as ``(a, b, a)``, the same for every order of the nodes; empty when there is none.

    Self-loops count as cycles. The cycle begins with its smallest name; an arrow reads "waits for".
    """
    sorted_names = set(sort_by_dependency(before))
    # Walking backwards from a node that never became ready ends on a cycle, because each of them waits for another.
    left = sorted(name for name in before if name not in sorted_names)
    if not left:
        return ()
    seen: dict[str, int] = {}
    walk: list[str] = []
    here = left[0]
    while here not in seen:
        seen[here] = len(walk)
        walk.append(here)
        here = min(other for other in before[here] if other in before and other not in sorted_names)
    cycle = walk[seen[here] :]
    start = cycle.index(min(cycle))
    turned = cycle[start:] + cycle[:start]
    return (*turned, turned[0])


def _priority_of(node: NodeBase) -> dict[str, object]:
    given = {"priority": node.priority, "priority_from": node.priority_from}
    return {name: value for name, value in given.items() if value is not None}


def _set_fields(model: ContractModel) -> dict[str, object]:
    # Only what the author wrote, so that the node shows no more than that.
    return {name: getattr(model, name) for name in model.model_fields_set}
