"""The graph of a run, and what its fan-outs expand to."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.run import AgentRunSpec, NodeType, Priority, RunNode
from agentrun.decisions.graph import (
    RunGraph,
    build_graph,
    expand_instance,
    find_ancestors,
    find_cycle,
    plan_instances,
    sort_by_dependency,
)


def build_run(*nodes: JsonObject) -> AgentRunSpec:
    return AgentRunSpec.model_validate({"intent": "test", "nodes": list(nodes)})


def task(name: str, *depends_on: str, **fields: object) -> JsonObject:
    return {"name": name, "tool": "t", "dependsOn": list(depends_on), **fields}


def switch(name: str, goto: list[str], *depends_on: str, default: str | None = None) -> JsonObject:
    cases = [{"when": {"path": "inputs.x", "op": "eq", "value": n}, "goto": target} for n, target in enumerate(goto)]
    condition: JsonObject = {"cases": cases, **({"default": default} if default else {})}
    return {"name": name, "type": "Condition", "dependsOn": list(depends_on), "condition": condition}


STORY = (
    task("stock-a"),
    task("stock-b"),
    task("diff", "stock-b", "stock-a"),
    switch("route", ["transfer"], "diff", default="report"),
    task("transfer"),
    task("report"),
)


def test_edges_of_both_kinds() -> None:
    graph = build_graph(build_run(*STORY))

    assert graph.upstreams["diff"] == ("stock-a", "stock-b")
    assert graph.upstreams["transfer"] == ()
    assert graph.choosers["transfer"] == graph.choosers["report"] == ("route",)
    assert graph.dependants == {
        "stock-a": ("diff",),
        "stock-b": ("diff",),
        "diff": ("route",),
        "route": ("report", "transfer"),
        "transfer": (),
        "report": (),
    }
    assert graph.order == ("stock-a", "stock-b", "diff", "route", "report", "transfer")


def test_several_conditions_may_choose_one_node() -> None:
    graph = build_graph(build_run(switch("b", ["x", "x"]), switch("a", ["x"], default="x"), task("x", "a")))

    assert graph.choosers["x"] == ("a", "b")
    assert graph.upstreams["x"] == ("a",)
    assert graph.dependants["a"] == ("x",)


def test_doubled_dependency_counts_once() -> None:
    assert build_graph(build_run(task("a"), task("b", "a", "a"))).upstreams["b"] == ("a",)


@pytest.mark.parametrize(
    "run,want",
    [
        pytest.param(build_run(task("a"), task("a")), "stands twice", id="doubled name"),
        pytest.param(build_run(task("a", "b")), "depends on b, which is unknown", id="unknown"),
        pytest.param(build_run(task("a", "b"), task("b", "a")), "a → b → a", id="cycle"),
    ],
)
def test_graph_that_admission_refuses_is_not_built(run: AgentRunSpec, want: str) -> None:
    with pytest.raises(ValueError, match=want):
        build_graph(run)


@st.composite
def shuffled_runs(draw: st.DrawFn) -> tuple[AgentRunSpec, AgentRunSpec]:
    """One acyclic run, and the same with its nodes and dependencies in another order."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 8)))]
    wanted = {
        name: draw(st.lists(st.sampled_from(names[:at]), unique=True, max_size=4)) if at else []
        for at, name in enumerate(names)
    }
    nodes = [task(name, *upstreams) for name, upstreams in wanted.items()]
    other = [task(name, *draw(st.permutations(wanted[name]))) for name in draw(st.permutations(names))]
    return build_run(*nodes), build_run(*other)


@given(shuffled_runs())
def test_order_in_the_manifest_does_not_change_the_graph(runs: tuple[AgentRunSpec, AgentRunSpec]) -> None:
    def shape(graph: RunGraph) -> tuple[object, ...]:
        return graph.upstreams, graph.choosers, graph.dependants, graph.order

    assert shape(build_graph(runs[0])) == shape(build_graph(runs[1]))


GRAPHS = st.dictionaries(
    st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefgh"), max_size=4), min_size=1
)  # may hold cycles, self-loops and unknown names


@given(GRAPHS)
def test_every_node_is_ordered_or_kept_by_a_cycle(before: dict[str, list[str]]) -> None:
    order = sort_by_dependency(before)
    cycle = find_cycle(before)

    place = {name: position for position, name in enumerate(order)}
    assert all(place[other] < place[name] for name in order for other in before[name] if other in before)
    assert (len(order) == len(before)) is (cycle == ())
    assert all(later in before[earlier] for earlier, later in pairwise(cycle))
    assert not cycle or (cycle[0] == cycle[-1] == min(cycle) and len(set(cycle)) == len(cycle) - 1)


def test_ancestors_are_transitive() -> None:
    assert find_ancestors({"a": [], "b": ["a"], "c": ["b"], "d": []}) == {
        "a": frozenset(),
        "b": frozenset("a"),
        "c": frozenset("ab"),
        "d": frozenset(),
    }


def fan_out(**fields: object) -> RunNode:
    return RunNode.model_validate({"name": "check", "type": "FanOut", **fields})


SHORT = fan_out(
    priority="P1",
    fanOut={"items": "${inputs.skus}", "node": {"tool": "stock", "params": {"sku": "${item}"}, "timeout": "5s"}},
)
LONG = fan_out(
    priorityFrom={"path": "inputs.u", "map": {"high": "P0"}, "default": "P2"},
    fanOut={
        "items": [1, 2],
        "result": "sum",
        "nodes": [
            {"name": "sum", "tool": "add", "dependsOn": ["price", "rate"]},
            {"name": "price", "tool": "fetch", "priority": "P3"},
            {"name": "rate", "tool": "fx"},
            switch("route", ["alert"], "sum"),
            {"name": "alert", "tool": "notify"},
        ],
    },
)


def test_short_form_is_one_task_for_each_item() -> None:
    (part,) = expand_instance(SHORT, "check", 3, "A")

    assert (part.path, part.parent, part.index, part.item) == ("check.3", "check", 3, "A")
    assert (part.upstreams, part.choosers) == ((), ())
    assert part.node.type is NodeType.TASK
    assert (part.node.name, part.node.tool, part.node.params) == ("check", "stock", {"sku": "${item}"})
    assert part.node.priority is Priority.P1
    assert plan_instances(SHORT).result_path("check", 3) == "check.3"


def test_long_form_is_a_graph_of_full_paths() -> None:
    parts = {part.path: part for part in expand_instance(LONG, "check", 0, {"sku": "A"})}

    assert list(parts) == ["check.0.price", "check.0.rate", "check.0.sum", "check.0.route", "check.0.alert"]
    assert parts["check.0.sum"].upstreams == ("check.0.price", "check.0.rate")
    assert parts["check.0.alert"].choosers == ("check.0.route",)
    assert parts["check.0.route"].node.type is NodeType.CONDITION
    assert plan_instances(LONG).result_path("check", 0) == "check.0.sum"


def test_instance_has_the_fan_outs_priority_unless_its_own() -> None:
    nodes = {part.node.name: part.node for part in expand_instance(LONG, "check", 0, 1)}

    assert nodes["price"].priority is Priority.P3
    assert nodes["price"].priority_from is None
    assert nodes["rate"].priority_from == LONG.priority_from


def test_result_is_the_last_node_unless_named() -> None:
    plan = plan_instances(fan_out(fanOut={"items": [], "nodes": [task("b"), task("a")]}))

    assert plan.result_path("check", 1) == "check.1.a"


def test_instance_node_shows_what_its_author_wrote_and_no_more() -> None:
    nodes = {part.node.name: part.node for part in expand_instance(LONG, "check", 0, 1)}

    assert nodes["price"].to_wire_set_only() == {"name": "price", "tool": "fetch", "priority": "P3"}


def test_node_that_is_no_fan_out_has_no_instances() -> None:
    with pytest.raises(ValueError, match="a is no fan-out"):
        plan_instances(RunNode.model_validate(task("a")))
