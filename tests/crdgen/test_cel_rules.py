"""The CEL rules say what the models say, on a table and on generated values; what a server's compiler would refuse."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.failures import Effect
from agentrun.contract.model_base import ContractModel
from agentrun.contract.run import FanOut, InstanceNode, Join, JoinRule, RunNode
from agentrun.contract.tool import AgentToolSpec, ApprovalRule
from support.custom_resources import KINDS, Schema, find_problems, read_schema, schema_at, walk_schema

PLACES: dict[type[ContractModel], tuple[str, str]] = {
    RunNode: ("AgentRun", "spec.nodes.items"),
    InstanceNode: ("AgentRun", "spec.nodes.items.fanOut.nodes.items"),
    Join: ("AgentRun", "spec.nodes.items.join"),
    FanOut: ("AgentRun", "spec.nodes.items.fanOut"),
    AgentToolSpec: ("AgentTool", "spec"),
    ApprovalRule: ("AgentTool", "spec.approval"),
    Decision: ("AgentApproval", "spec.decision"),
}
TASK = {"name": "a", "tool": "t"}
CONDITION = {"cases": [{"when": {"path": "inputs.x", "op": "exists"}, "goto": "b"}]}
HTTP = {"url": "https://shop.example/orders"}


def rules() -> Iterator[tuple[str, Schema, str]]:
    for kind in KINDS:
        for path, schema, _ in walk_schema(read_schema(kind), kind):
            for rule in schema.get("x-kubernetes-validations", ()):
                yield path, schema, rule["rule"]


def is_taken_by_model(model: type[ContractModel], value: object) -> bool:
    try:
        model.from_wire(value)
    except ValidationError:
        return False
    return True


def assert_both_say(model: type[ContractModel], value: object, want: bool | None = None) -> None:
    model_takes = is_taken_by_model(model, value)
    problems = find_problems(schema_at(*PLACES[model]), value)
    assert (not problems) == model_takes, (value, problems)
    assert want is None or model_takes == want


@pytest.mark.parametrize(
    "model, value, want",
    [
        pytest.param(RunNode, TASK, True, id="a task is the default"),
        pytest.param(RunNode, {**TASK, "type": "Task"}, True, id="task"),
        pytest.param(RunNode, {"name": "a"}, False, id="task without a tool"),
        pytest.param(RunNode, {"name": "a", "type": "Condition", "condition": CONDITION}, True, id="condition"),
        pytest.param(RunNode, {"name": "a", "type": "Condition"}, False, id="condition without cases"),
        pytest.param(RunNode, {**TASK, "condition": CONDITION}, False, id="task with a condition"),
        pytest.param(RunNode, {**TASK, "type": "Join"}, False, id="join with a tool"),
        pytest.param(RunNode, {"name": "a", "type": "Join"}, True, id="join"),
        pytest.param(RunNode, {"name": "a", "type": "Approval", "approval": {"message": "?"}}, True, id="approval"),
        pytest.param(RunNode, {"name": "a", "type": "FanOut"}, False, id="fan-out without fanOut"),
        pytest.param(RunNode, {**TASK, "fanOut": {"items": [], "node": {"tool": "t"}}}, False, id="task with fanOut"),
        pytest.param(
            RunNode, {"name": "a", "type": "FanOut", "fanOut": {"items": [], "node": {"tool": "t"}}}, True, id="fan-out"
        ),
        pytest.param(
            RunNode,
            {**TASK, "priority": "P0", "priorityFrom": {"path": "inputs.x", "map": {"a": "P1"}, "default": "P2"}},
            False,
            id="two priorities",
        ),
        pytest.param(InstanceNode, {**TASK, "type": "FanOut"}, False, id="fan-out in a fan-out"),
        pytest.param(InstanceNode, {"name": "a", "type": "Join", "tool": "t"}, False, id="join with a tool, inside"),
        pytest.param(Join, {}, True, id="join rule by default"),
        pytest.param(Join, {"rule": "AtLeast", "count": 2}, True, id="at least two"),
        pytest.param(Join, {"rule": "AtLeast"}, False, id="at least nothing"),
        pytest.param(Join, {"rule": "Any", "count": 2}, False, id="any two"),
        pytest.param(Join, {"count": 2}, False, id="all two"),
        pytest.param(FanOut, {"items": "${inputs.x}", "node": {"tool": "t"}}, True, id="one task for each item"),
        pytest.param(FanOut, {"items": [], "nodes": [TASK]}, True, id="a graph for each item"),
        pytest.param(FanOut, {"items": []}, False, id="nothing for each item"),
        pytest.param(FanOut, {"items": [], "nodes": []}, False, id="an empty graph for each item"),
        pytest.param(FanOut, {"items": [], "node": {"tool": "t"}, "nodes": [TASK]}, False, id="both forms"),
        pytest.param(FanOut, {"items": [], "nodes": [TASK], "result": "a"}, True, id="result of a node"),
        pytest.param(FanOut, {"items": [], "nodes": [TASK], "result": "b"}, False, id="result of no node"),
        pytest.param(FanOut, {"items": [], "node": {"tool": "t"}, "result": "a"}, False, id="result of the short form"),
        pytest.param(AgentToolSpec, {"type": "http", "http": HTTP}, True, id="http"),
        pytest.param(AgentToolSpec, {"type": "http"}, False, id="http without a request"),
        pytest.param(AgentToolSpec, {"type": "python", "http": HTTP}, False, id="python with a request"),
        pytest.param(
            AgentToolSpec, {"type": "http", "http": HTTP, "python": {"entryPoint": "a:b"}}, False, id="two calls"
        ),
        pytest.param(ApprovalRule, {"required": "Always"}, True, id="always"),
        pytest.param(ApprovalRule, {}, False, id="approval without a trigger"),
        pytest.param(ApprovalRule, {"when": [{"path": "params.x", "op": "exists"}]}, True, id="approval on params"),
        pytest.param(ApprovalRule, {"when": [{"path": "result.x", "op": "exists"}]}, False, id="approval on a result"),
        pytest.param(ApprovalRule, {"when": [{"path": "params", "op": "exists"}]}, False, id="approval on all params"),
        pytest.param(
            ApprovalRule, {"when": [{"path": "price.x", "op": "exists"}]}, False, id="approval on a stray path"
        ),
        pytest.param(
            ApprovalRule,
            {"required": "Always", "when": [{"path": "inputs.x", "op": "exists"}]},
            False,
            id="always, and on inputs",
        ),
        pytest.param(Decision, {"verdict": "Approve", "params": {"x": 1}}, True, id="approved with other params"),
        pytest.param(Decision, {"verdict": "Reject", "params": {"x": 1}}, False, id="rejected with other params"),
        pytest.param(Decision, {"verdict": "Resolve", "result": 1, "effect": "Executed"}, True, id="resolved"),
        pytest.param(Decision, {"verdict": "Release", "effect": "Unknown"}, False, id="released without knowing"),
        pytest.param(Decision, {"verdict": "Maybe"}, False, id="no verdict at all"),
    ],
)
def test_rules_and_models_take_and_refuse_the_same(model: type[ContractModel], value: object, want: bool) -> None:
    assert_both_say(model, value, want)


def optional(field: str, *values: object) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from([{}, *({field: value} for value in values)])


def merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


JOINS = merged(optional("rule", *JoinRule), optional("count", 1, 2))
INSTANCE_NODES = merged(
    st.sampled_from([{"name": "a"}, {"name": "b"}]),
    optional("type", "Task", "Condition", "Approval", "Join"),
    optional("tool", "t"),
    optional("condition", CONDITION),
    optional("approval", {"message": "?"}),
    optional("priority", "P0"),
    optional("priorityFrom", {"path": "inputs.x", "map": {"a": "P1"}, "default": "P2"}),
)
FAN_OUTS = merged(
    st.just({"items": []}),
    optional("node", {"tool": "t"}),
    optional("nodes", [], [TASK], [TASK, {"name": "b", "type": "Join"}]),
    optional("result", "a", "b"),
)
RUN_NODES = merged(
    INSTANCE_NODES,
    optional("type", "Task", "Condition", "Approval", "Join", "FanOut"),
    st.one_of(st.just({}), FAN_OUTS.map(lambda fan_out: {"fanOut": fan_out})),
    st.one_of(st.just({}), JOINS.map(lambda join: {"join": join})),
)
DECISIONS = merged(
    st.sampled_from([{"verdict": str(verdict)} for verdict in Verdict]),
    optional("params", {}, {"x": 1}),
    optional("effect", *map(str, Effect)),
)
APPROVAL_RULES = merged(
    optional("required", "Always", "Conditional"),
    optional("when", [], [{"path": "params.a", "op": "exists"}], [{"path": "result.a", "op": "exists"}]),
)
TOOLS = merged(
    st.sampled_from([{"type": "http"}, {"type": "python"}]),
    optional("http", HTTP),
    optional("python", {"entryPoint": "a:b"}),
)


@pytest.mark.parametrize(
    "model, values",
    [
        (RunNode, RUN_NODES),
        (InstanceNode, INSTANCE_NODES),
        (Join, JOINS),
        (FanOut, FAN_OUTS),
        (Decision, DECISIONS),
        (ApprovalRule, APPROVAL_RULES),
        (AgentToolSpec, TOOLS),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_rules_and_models_agree_on_any_combination(
    model: type[ContractModel], values: st.SearchStrategy[dict[str, Any]]
) -> None:
    @given(values)
    def agree(value: dict[str, Any]) -> None:
        assert_both_say(model, value)

    agree()


@pytest.mark.parametrize(
    "model, value",
    [
        pytest.param(RunNode, {"name": "a", "type": "Join", "params": {"x": 1}}, id="params of a join"),
        pytest.param(Decision, {"verdict": "Reject", "result": 1}, id="result of a rejection"),
        pytest.param(
            ApprovalRule,
            {"when": [{"path": "params.x", "op": "in", "value": 1}]},
            id="a value that does not fit its op",
        ),
    ],
)
def test_about_values_without_a_type_the_operator_alone_decides(model: type[ContractModel], value: object) -> None:
    assert not is_taken_by_model(model, value)
    assert find_problems(schema_at(*PLACES[model]), value) == []


# What a real API server's compiler would refuse, and a CEL library without types does not.


def test_rules_read_only_fields_that_the_schema_declares_with_a_type() -> None:
    for path, schema, rule in rules():
        for reading in re.findall(r"\b(?:self|oldSelf)((?:\.[a-zA-Z]+)+)(?!\w*\()", rule):
            place = schema
            for part in reading.lstrip(".").split("."):
                if part in ("all", "exists", "startsWith"):
                    break
                place = place["properties"][part]
                assert "type" in place, (path, rule, part)


def test_rules_about_old_values_stand_above_everything_that_may_be_absent() -> None:
    places = [path for path, _, rule in rules() if "oldSelf" in rule]
    assert set(places) == {"AgentRun", "AgentApproval", "AgentNode.spec"}
    assert "spec" in read_schema("AgentNode")["required"]


LONGEST_COMPARISON = 26
"""Two names of 63 characters, of four bytes at worst, at a tenth for each byte."""


def looped_over(schema: Schema, rule: str) -> int:
    """How often at most the rule's own loops go round; none stands in another."""
    lists = re.findall(r"self\.(\w+)\.(?:all|exists|map|filter|exists_one)\(", rule)
    return max((schema["properties"][name]["maxItems"] for name in lists), default=1)


def worst_case(schema: Schema, rule: str) -> int:
    """What a rule costs once, from above: a unit for each name, operator and call, and each comparison of two names."""
    steps = len(re.findall(r"[\w']+|[=!<>&|]+|[?\[(]", rule))
    compared = len(re.findall(r"[=!]= (?:self|oldSelf)\b", rule))
    return (steps + compared * LONGEST_COMPARISON) * looped_over(schema, rule)


def with_cardinality(schema: Schema, times: int = 1) -> Iterator[tuple[Schema, int]]:
    """Every schema with how many values of it one object may hold."""
    yield schema, times
    for inner in schema.get("properties", {}).values():
        yield from with_cardinality(inner, times)
    if "items" in schema:
        yield from with_cardinality(schema["items"], times * schema["maxItems"])
    if isinstance(schema.get("additionalProperties"), dict):
        yield from with_cardinality(schema["additionalProperties"], times * schema["maxProperties"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_bounds_of_lists_keep_every_rule_within_the_servers_budget(kind: str) -> None:
    costs = [
        worst_case(schema, rule["rule"]) * times
        for schema, times in with_cardinality(read_schema(kind))
        for rule in schema.get("x-kubernetes-validations", ())
    ]
    # StaticEstimatedCostLimit and StaticEstimatedCRDCostLimit of k8s.io/apiextensions-apiserver
    assert max(costs) < 10_000_000
    assert sum(costs) < 100_000_000


def test_every_rule_says_what_is_wrong() -> None:
    found = list(rules())
    assert len(found) > 20
    for kind in KINDS:
        for _, schema, _ in walk_schema(read_schema(kind)):
            for rule in schema.get("x-kubernetes-validations", ()):
                assert set(rule) == {"rule", "message"}
                assert 10 < len(rule["message"]) < 200
