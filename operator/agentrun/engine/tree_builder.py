"""Building a run's nodes: their specs, names and first status, from the run's own list or from a fan-out's items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from agentrun.contract.exact_json import JsonValue
from agentrun.contract.names import RUN_UID_LABEL, node_object_name
from agentrun.contract.node import AgentNode, AgentNodeSpec, AgentNodeStatus, NodePhase, RunRef, ToolRef
from agentrun.contract.object_meta import API_VERSION, ObjectMeta, OwnerReference
from agentrun.contract.run import FailurePolicy, JoinRule, NodeType, RunNode
from agentrun.decisions.graph import build_graph, plan_instances
from agentrun.decisions.join_rules import Choice, JoinCounter
from agentrun.engine.run_memory import NodeMemory, RunMemory


def build_top_nodes(run: RunMemory, now: datetime) -> list[NodeMemory]:
    """Return the nodes of the run's own list, each after all that it waits for."""
    graph = build_graph(run.run.spec)
    return [
        _build(
            run,
            AgentNodeSpec(
                run=RunRef(name=run.name, uid=run.uid),
                path=name,
                node=graph.nodes[name],
                upstreams=graph.upstreams[name],
                choosers=graph.choosers[name],
                tool=_tool_ref(run, graph.nodes[name]),
            ),
            now,
        )
        for name in graph.order
    ]


def build_instances(run: RunMemory, parent: NodeMemory, items: Sequence[JsonValue], now: datetime) -> list[NodeMemory]:
    """Return the nodes of all instances of a fan-out, in item order."""
    plan = plan_instances(parent.spec.node)
    return [
        _build(
            run,
            AgentNodeSpec(
                run=parent.spec.run,
                path=part.path,
                node=_inherit_policy(part.node, parent.spec.node),
                parent=parent.path,
                index=index,
                item=item,
                upstreams=part.upstreams,
                choosers=part.choosers,
                tool=_tool_ref(run, part.node),
            ),
            now,
        )
        for index, item in enumerate(items)
        for part in plan.expand(parent.path, index, item)
    ]


def place_instances(run: RunMemory, parent: NodeMemory, count: int, nodes: Sequence[NodeMemory]) -> None:
    """Take a fan-out's instances into memory and set its counters."""
    fan_out = parent.spec.node.fan_out
    if fan_out is None:
        raise ValueError(f"node {parent.path} is no fan-out")
    plan = plan_instances(parent.spec.node)
    parent.children = [node.path for node in nodes]
    parent.instances = [plan.result_path(parent.path, index) for index in range(count)]
    parent.children_counter = JoinCounter.of(count)
    parent.open_in_instance = dict.fromkeys(range(count), len(plan.nodes))
    parent.released = released_at_first(parent)
    parent.children_of_instance.clear()
    for node in nodes:
        if node.spec.index is not None:
            parent.children_of_instance[node.spec.index].append(node.path)
        run.add(node)
        run.touch(node.path)


def released_at_first(parent: NodeMemory) -> int:
    """Return how many of a fan-out's instances may begin before any has ended."""
    fan_out = parent.spec.node.fan_out
    count = len(parent.instances)
    return count if fan_out is None or fan_out.max_parallel is None else min(count, fan_out.max_parallel)


def node_from_object(run: RunMemory, found: AgentNode, now: datetime) -> NodeMemory:
    """Return the memory of a node as the cluster has it."""
    node = _build(run, found.spec, now)
    node.stored = found
    if found.status is not None:
        node.status = found.status
    return node


def build_object(run: RunMemory, node: NodeMemory) -> AgentNode:
    """Return the AgentNode object to create: owner and label are the run's, nothing else is copied from it."""
    return AgentNode(
        metadata=ObjectMeta(
            name=node.name,
            namespace=run.namespace,
            labels={RUN_UID_LABEL: run.uid},
            owner_references=(OwnerReference(api_version=API_VERSION, kind="AgentRun", name=run.name, uid=run.uid),),
        ),
        spec=node.spec,
    )


def tool_names(nodes: Sequence[RunNode]) -> Iterator[str]:
    """Give every tool that the nodes name, those inside fan-outs included."""
    for node in nodes:
        if node.tool is not None:
            yield node.tool
        if node.type is NodeType.FAN_OUT and node.fan_out is not None:
            for inner in plan_instances(node).nodes:
                if inner.tool is not None:
                    yield inner.tool


def _build(run: RunMemory, spec: AgentNodeSpec, now: datetime) -> NodeMemory:
    return NodeMemory(
        path=spec.path,
        spec=spec,
        name=node_object_name(run.name, run.uid, spec.path),
        status=AgentNodeStatus(
            phase=NodePhase.PENDING, entered_at=now, pause_at_entry=run.pause_total(now), tool=spec.tool
        ),
        counter=JoinCounter.of(len(spec.upstreams)),
        choices=dict.fromkeys(spec.choosers, Choice.PENDING),
    )


def _tool_ref(run: RunMemory, node: RunNode) -> ToolRef | None:
    pinned = run.tools.get(node.tool or "")
    return pinned.ref if pinned else None


def _inherit_policy(node: RunNode, fan_out_node: RunNode) -> RunNode:
    """An instance's failure is the fan-out's own matter where its rule can do without some of them."""
    if node.on_failure is not None:
        return node
    fan_out = fan_out_node.fan_out
    rule = fan_out.join.rule if fan_out and fan_out.join else JoinRule.ALL
    policy = fan_out_node.on_failure if rule is JoinRule.ALL else FailurePolicy.CONTINUE
    return node if policy is None else node.model_copy(update={"on_failure": policy})
