"""The CEL rules say what the models say: on a table, on generated objects, and about every change of an object."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.failures import Effect
from agentrun.contract.model_base import ContractModel
from agentrun.contract.run import MUTABLE_SPEC_FIELDS, AgentRunSpec, FanOut, InstanceNode, Join, JoinRule, RunNode
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


# Changes of an object.

RUN_SPEC: dict[str, Any] = {
    "intent": "test",
    "session": "s",
    "priority": "P1",
    "timeout": "5m",
    "budget": {"limit": "1.00"},
    "onNodeFailure": "Continue",
    "suspend": False,
    "cancel": False,
    "ttlAfterFinished": "1h",
    "retryOf": "earlier",
    "rerunToken": "again",
    "waits": {"queue": "1m"},
    "inputs": {"day": "Monday"},
    "nodes": [TASK],
}
OTHER_VALUES: dict[str, Any] = {
    "intent": "another",
    "session": "t",
    "priority": "P0",
    "timeout": "6m",
    "budget": {"limit": "2.00"},
    "onNodeFailure": "Suspend",
    "suspend": True,
    "cancel": True,
    "ttlAfterFinished": "2h",
    "retryOf": "other",
    "rerunToken": "once more",
    "waits": {"queue": "2m"},
    "inputs": {"day": "Tuesday"},
    "nodes": [TASK, {"name": "b", "tool": "t"}],
}
MUTABLE = {(AgentRunSpec.model_fields[name].alias or name) for name in MUTABLE_SPEC_FIELDS}
REQUIRED = {"intent", "nodes"}
DEFAULTED = {"onNodeFailure"}


def run_object(spec: dict[str, Any], admitted_generation: int | None) -> dict[str, Any]:
    run = {"apiVersion": "agentrun.dev/v1alpha1", "kind": "AgentRun", "metadata": {"name": "run"}, "spec": spec}
    status = {} if admitted_generation is None else {"status": {"admittedGeneration": admitted_generation}}
    return deepcopy({**run, **status})


def changes_of(field: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A field changed, and, where it may be absent, added and removed."""
    without = {name: value for name, value in RUN_SPEC.items() if name != field}
    yield RUN_SPEC, {**RUN_SPEC, field: OTHER_VALUES[field]}
    if field not in REQUIRED:
        yield without, RUN_SPEC
        yield RUN_SPEC, without


def test_the_table_of_changes_names_every_field_of_a_runs_spec() -> None:
    names = {field.alias or name for name, field in AgentRunSpec.model_fields.items()}
    assert set(RUN_SPEC) == set(OTHER_VALUES) == names


@pytest.mark.parametrize("field", sorted(set(RUN_SPEC) - MUTABLE))
def test_what_is_immutable_cannot_be_changed_added_or_removed_once_a_run_is_admitted(field: str) -> None:
    schema = read_schema("AgentRun")
    for old, new in changes_of(field):
        assert find_problems(schema, run_object(new, 1), run_object(old, 1)) == [
            f"spec.{field} is immutable once the run is admitted: create another run"
        ]
        for admitted in (None, 0):
            assert find_problems(schema, run_object(new, admitted), run_object(old, admitted)) == []


@pytest.mark.parametrize("field", sorted(MUTABLE))
def test_what_is_mutable_may_be_changed_added_and_removed_at_any_time(field: str) -> None:
    for old, new in changes_of(field):
        assert find_problems(read_schema("AgentRun"), run_object(new, 1), run_object(old, 1)) == []


def test_an_admitted_run_that_is_applied_again_unchanged_is_taken() -> None:
    assert find_problems(read_schema("AgentRun"), run_object(RUN_SPEC, 3), run_object(RUN_SPEC, 3)) == []


def node_object(**spec: Any) -> dict[str, Any]:
    return {
        "spec": {"run": {"name": "run", "uid": "u"}, "path": "a", "node": TASK, **spec},
        "status": {"enteredAt": "2026-01-01T00:00:00Z"},
    }


def test_the_spec_of_a_node_never_changes_and_its_status_does() -> None:
    schema = read_schema("AgentNode")
    old = node_object()
    moved = {**node_object(), "status": {"enteredAt": "2026-01-01T00:00:01Z", "phase": "Ready"}}
    assert find_problems(schema, moved, old) == []
    for change in ({"path": "b"}, {"index": 1}, {"node": {**TASK, "params": {"x": 1}}}):
        assert find_problems(schema, node_object(**change), old) == ["the spec of a node is immutable"]


APPROVED = {"spec": {"decision": {"verdict": "Approve", "decidedBy": "Ada"}}}


@pytest.mark.parametrize(
    "old, new, want",
    [
        pytest.param({}, APPROVED, [], id="decided"),
        pytest.param({"spec": {}}, APPROVED, [], id="decided in an empty spec"),
        pytest.param(APPROVED, APPROVED, [], id="unchanged"),
        pytest.param(
            APPROVED, {"spec": {"decision": {"verdict": "Reject"}}}, ["spec.decision is set once"], id="other"
        ),
        pytest.param(
            APPROVED,
            {"spec": {"decision": {"verdict": "Approve", "decidedBy": "Eve"}}},
            ["spec.decision is set once"],
            id="by another",
        ),
        pytest.param(APPROVED, {"spec": {}}, ["spec.decision is set once"], id="decision taken away"),
        pytest.param(APPROVED, {}, ["spec.decision is set once"], id="spec taken away"),
    ],
)
def test_a_decision_is_set_once(old: dict[str, Any], new: dict[str, Any], want: list[str]) -> None:
    assert find_problems(read_schema("AgentApproval"), new, old) == want


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


def test_every_rule_says_what_is_wrong() -> None:
    found = list(rules())
    assert len(found) > 20
    for kind in KINDS:
        for _, schema, _ in walk_schema(read_schema(kind)):
            for rule in schema.get("x-kubernetes-validations", ()):
                assert set(rule) == {"rule", "message"}
                assert 10 < len(rule["message"]) < 200
