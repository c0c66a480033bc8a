"""Every CEL rule of the definitions, wherever it stands: whole objects that it takes and refuses, and changes of them.

The rules of a model stand wherever the model does, so a case is a value of the model, put into a whole object at every
place. About a new object the models must say the same; about a change, what the operator remembers of a run's content.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentrun.contract.approval import AgentApproval
from agentrun.contract.model_base import ContractModel
from agentrun.contract.node import AgentNode
from agentrun.contract.run import MUTABLE_SPEC_FIELDS, AgentRun, AgentRunSpec
from agentrun.contract.tool import AgentTool
from agentrun.engine.run_outcome import spec_digest
from support.custom_resources import KINDS, Schema, find_problems, find_refusals, read_schema, walk_schema

Object = dict[str, Any]
MODELS: dict[str, type[ContractModel]] = {
    "AgentTool": AgentTool,
    "AgentRun": AgentRun,
    "AgentNode": AgentNode,
    "AgentApproval": AgentApproval,
}
TASK: Object = {"name": "a", "tool": "t"}
OTHER_TASK: Object = {"name": "b", "tool": "t"}
JOINING: Object = {"name": "a", "type": "Join"}
CONDITION: Object = {"cases": [{"when": {"path": "inputs.x", "op": "exists"}, "goto": "b"}]}
PRIORITY_FROM: Object = {"path": "inputs.x", "map": {"a": "P1"}, "default": "P2"}
SINGLE: Object = {"tool": "t"}
HTTP: Object = {"url": "https://shop.example/orders"}
PYTHON: Object = {"entryPoint": "a:b"}
CONTAINER: Object = {"image": "reports:1", "command": ["/bin/report"]}


def a_tool(spec: Object) -> Object:
    return {"apiVersion": "agentrun.dev/v1alpha1", "kind": "AgentTool", "metadata": {"name": "t"}, "spec": spec}


def a_run(spec: Object, admitted_generation: int | None = None) -> Object:
    run = {"apiVersion": "agentrun.dev/v1alpha1", "kind": "AgentRun", "metadata": {"name": "run"}, "spec": spec}
    status = {} if admitted_generation is None else {"status": {"admittedGeneration": admitted_generation}}
    return deepcopy({**run, **status})


def a_run_of(node: Object) -> Object:
    return a_run({"intent": "test", "nodes": [node]})


def a_node(node: Object = TASK, *, phase: str = "Pending", **spec: Any) -> Object:
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentNode",
        "metadata": {"name": "run-a"},
        "spec": {"run": {"name": "run", "uid": "u"}, "path": "a", "node": node, **spec},
        "status": {"enteredAt": "2026-01-01T00:00:00Z", "phase": phase},
    }


def an_approval(**spec: Any) -> Object:
    approval = {"apiVersion": "agentrun.dev/v1alpha1", "kind": "AgentApproval", "metadata": {"name": "run-a-1"}}
    return {**approval, **spec}


def a_fan_out(fan_out: Object) -> Object:
    return {"name": "f", "type": "FanOut", "fanOut": fan_out}


def an_instance(node: Object) -> Object:
    return a_fan_out({"items": [], "nodes": [node]})


# The rules about one object.


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one model that one rule takes, and values that this rule alone refuses."""

    taken: tuple[Object, ...]
    refused: tuple[Object, ...]


NODE_CASES = {
    "field tool goes with type Task and needs it": Values(
        taken=(TASK, {**TASK, "type": "Task"}, JOINING),
        refused=({"name": "a"}, {"name": "a", "type": "Task"}, {**JOINING, "tool": "t"}),
    ),
    "field condition goes with type Condition and needs it": Values(
        taken=({"name": "a", "type": "Condition", "condition": CONDITION}, JOINING),
        refused=({"name": "a", "type": "Condition"}, {**TASK, "condition": CONDITION}),
    ),
    "field approval goes with type Approval and needs it": Values(
        taken=({"name": "a", "type": "Approval", "approval": {"message": "?"}}, JOINING),
        refused=({"name": "a", "type": "Approval"}, {**TASK, "approval": {"message": "?"}}),
    ),
    "give priority or priorityFrom, not both": Values(
        taken=(TASK, {**TASK, "priority": "P0"}, {**TASK, "priorityFrom": PRIORITY_FROM}),
        refused=({**TASK, "priority": "P0", "priorityFrom": PRIORITY_FROM},),
    ),
}
RUN_NODE_CASES = NODE_CASES | {
    "field fanOut goes with type FanOut and needs it": Values(
        taken=(a_fan_out({"items": [], "node": SINGLE}), TASK),
        refused=({"name": "a", "type": "FanOut"}, {**TASK, "fanOut": {"items": [], "node": SINGLE}}),
    ),
}
JOIN_CASES = {
    "count is needed by rule AtLeast and goes with no other rule": Values(
        taken=({}, {"rule": "Any"}, {"rule": "AtLeast", "count": 2}),
        refused=({"rule": "AtLeast"}, {"rule": "Any", "count": 2}, {"count": 2}),
    ),
}
FAN_OUT_CASES = {
    "needs either node (one task for each item) or nodes (a small graph for each item)": Values(
        taken=({"items": "${inputs.x}", "node": SINGLE}, {"items": [], "nodes": [TASK]}),
        refused=({"items": []}, {"items": [], "nodes": []}, {"items": [], "node": SINGLE, "nodes": [TASK]}),
    ),
    "result must name one of nodes": Values(
        taken=({"items": [], "nodes": [TASK, OTHER_TASK], "result": "a"}, {"items": [], "nodes": [TASK]}),
        refused=({"items": [], "nodes": [TASK], "result": "b"}, {"items": [], "node": SINGLE, "result": "a"}),
    ),
}
TOOL_CASES = {
    "field http goes with type http and is needed by it": Values(
        taken=({"type": "http", "http": HTTP},),
        refused=({"type": "http"}, {"type": "python", "python": PYTHON, "http": HTTP}),
    ),
    "field python goes with type python and is needed by it": Values(
        taken=({"type": "python", "python": PYTHON},),
        refused=({"type": "python"}, {"type": "http", "python": PYTHON, "http": HTTP}),
    ),
    "field container goes with type container and is needed by it": Values(
        taken=({"type": "container", "container": CONTAINER, "execution": {"mode": "Job"}},),
        refused=(
            {"type": "container", "execution": {"mode": "Job"}},
            {"type": "http", "http": HTTP, "container": CONTAINER},
        ),
    ),
    "type container needs execution.mode: Job, a pod is made for each call": Values(
        taken=({"type": "container", "container": CONTAINER, "execution": {"mode": "Job", "pool": "own"}},),
        refused=(
            {"type": "container", "container": CONTAINER},
            {"type": "container", "container": CONTAINER, "execution": {}},
            {"type": "container", "container": CONTAINER, "execution": {"mode": "Pool"}},
        ),
    ),
    "execution.image is the worker's: with type container name container.image alone": Values(
        taken=({"type": "python", "python": PYTHON, "execution": {"image": "x"}},),
        refused=({"type": "container", "container": CONTAINER, "execution": {"mode": "Job", "image": "x"}},),
    ),
}
SECRET_VOLUME: Object = {"name": "keys", "kind": "Secret", "source": "shop", "mountPath": "/keys"}
DISK: Object = {"name": "disk", "kind": "PersistentVolumeClaim", "source": "disk", "mountPath": "/data"}
EXECUTION_CASES = {
    "scaling goes with mode Pool": Values(
        taken=({"scaling": {}}, {"mode": "Pool", "scaling": {}}, {"mode": "Job"}),
        refused=({"mode": "Job", "scaling": {}},),
    ),
}
SCALING_CASES = {
    "min must be no more than max": Values(
        taken=({}, {"min": 10}, {"min": 3, "max": 3}, {"max": 1}),
        refused=({"min": 11}, {"min": 2, "max": 1}),
    ),
}
ENVIRONMENT_CASES = {
    "names that begin with AGENTRUN_ are the product's own": Values(
        taken=({"name": "REGION", "value": "north"}, {"name": "AGENTRUN"}),
        refused=({"name": "AGENTRUN_WORKER_REDIS", "value": "redis://elsewhere"},),
    ),
}
VOLUME_CASES = {
    "mountPath must be no place of the system or the product, and hold no ..": Values(
        taken=(
            *({**SECRET_VOLUME, "mountPath": path} for path in ("/keys", "/srv/run", "/a..b", "/process", "/keys/")),
        ),
        refused=(
            *(
                {**SECRET_VOLUME, "mountPath": path}
                for path in (
                    "/",
                    "/proc",
                    "/sys/x",
                    "/dev",
                    "/run/x",
                    "/var/run",
                    "/a/../proc",
                    "/..",
                    "/a//b",
                    "/./run",
                )
            ),
        ),
    ),
    "readOnly: false goes with kind PersistentVolumeClaim alone": Values(
        taken=(SECRET_VOLUME, {**SECRET_VOLUME, "readOnly": True}, {**DISK, "readOnly": False}),
        refused=({**SECRET_VOLUME, "readOnly": False},),
    ),
}
EXECUTION_PLACES: dict[str, tuple[dict[str, Values], Callable[[Object], Object]]] = {
    "": (EXECUTION_CASES, lambda execution: execution),
    ".scaling": (SCALING_CASES, lambda scaling: {"scaling": scaling}),
    ".env[]": (ENVIRONMENT_CASES, lambda variable: {"env": [variable]}),
    ".volumes[]": (VOLUME_CASES, lambda volume: {"volumes": [volume]}),
}
"""Below a tool's execution: the rules that stand there, and an execution with a value in that place."""
APPROVAL_RULE_CASES = {
    "needs required: Always, or at least one test under when": Values(
        taken=({"required": "Always"}, {"when": [{"path": "params.x", "op": "exists"}]}),
        refused=({}, {"required": "Conditional"}, {"when": []}),
    ),
    "when may test params only": Values(
        taken=({"when": [{"path": "params.x", "op": "gt", "value": 1}]},),
        refused=(
            {"when": [{"path": "params.x", "op": "exists"}, {"path": "result.x", "op": "exists"}]},
            {"required": "Always", "when": [{"path": "params", "op": "exists"}]},
        ),
    ),
}
DECISION_CASES = {
    "params go with verdict Approve, Release or Redrive": Values(
        taken=({"verdict": "Approve", "params": {"x": 1}}, {"verdict": "Redrive", "params": {}}, {"verdict": "Reject"}),
        refused=({"verdict": "Reject", "params": {"x": 1}}, {"verdict": "Resolve", "params": {}}),
    ),
    "effect must say what happened: NotExecuted or Executed": Values(
        taken=({"verdict": "Release", "effect": "NotExecuted"}, {"verdict": "Release"}),
        refused=({"verdict": "Release", "effect": "Unknown"},),
    ),
}
NODE_PLACES: dict[str, tuple[dict[str, Values], Callable[[Object], Object]]] = {
    "": (RUN_NODE_CASES, lambda node: node),
    ".join": (JOIN_CASES, lambda join: {**TASK, "join": join}),
    ".fanOut": (FAN_OUT_CASES, a_fan_out),
    ".fanOut.join": (JOIN_CASES, lambda join: a_fan_out({"items": [], "node": SINGLE, "join": join})),
    ".fanOut.nodes[]": (NODE_CASES, an_instance),
    ".fanOut.nodes[].join": (JOIN_CASES, lambda join: an_instance({**TASK, "join": join})),
}
"""Below a node: the rules that stand there, and a node with a value in that place."""

Key = tuple[str, str, str]
"""Kind, place in its schema, and the rule's message."""


def object_cases() -> Iterator[tuple[Key, Values]]:
    """Each rule about one object at each of its places, with whole objects."""

    def at(kind: str, path: str, cases: dict[str, Values], build: Callable[[Object], Object]) -> Iterator[Any]:
        for message, values in cases.items():
            whole = Values(tuple(map(build, values.taken)), tuple(map(build, values.refused)))
            yield (kind, path, message), whole

    yield from at("AgentTool", ".spec", TOOL_CASES, a_tool)
    yield from at(
        "AgentTool",
        ".spec.approval",
        APPROVAL_RULE_CASES,
        lambda rule: a_tool({"type": "http", "http": HTTP, "approval": rule}),
    )
    for below, (cases, build) in EXECUTION_PLACES.items():
        yield from at(
            "AgentTool",
            f".spec.execution{below}",
            cases,
            lambda value, build=build: a_tool({"type": "http", "http": HTTP, "execution": build(value)}),
        )
    yield from at(
        "AgentApproval",
        ".spec.decision",
        DECISION_CASES,
        lambda decision: an_approval(spec={"decision": decision}),
    )
    for below, (cases, build) in NODE_PLACES.items():
        yield from at("AgentRun", f".spec.nodes[]{below}", cases, lambda value, build=build: a_run_of(build(value)))
        yield from at("AgentNode", f".spec.node{below}", cases, lambda value, build=build: a_node(build(value)))


# The rules about a change.

RUN_SPEC: Object = {
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
    "inputs": {"day": "Monday", "deep": {"list": [1, 2]}},
    "nodes": [TASK, {**OTHER_TASK, "params": {"x": 1}}, {**an_instance(TASK), "dependsOn": ["a", "b"]}],
}
OTHER_VALUES: dict[str, list[Any]] = {
    "intent": ["another"],
    "session": ["t"],
    "priority": ["P0"],
    "timeout": ["6m"],
    "budget": [{"limit": "2.00"}, {}],
    "onNodeFailure": ["Suspend"],
    "suspend": [True],
    "cancel": [True],
    "ttlAfterFinished": ["2h"],
    "retryOf": ["other"],
    "rerunToken": ["once more", ""],
    "waits": [{"queue": "2m"}, {"queue": "1m", "inbox": "1m"}, {}],
    "inputs": [
        {},
        {"day": "Monday"},
        {"day": "Monday", "deep": {"list": [2, 1]}},
        {"day": "Monday", "deep": {"list": [1, 2]}, "more": None},
    ],
    "nodes": [
        [TASK],
        [*RUN_SPEC["nodes"], {"name": "c", "tool": "t"}],
        [TASK, {**OTHER_TASK, "params": {"x": 2}}, RUN_SPEC["nodes"][2]],
        [TASK, {**OTHER_TASK, "params": {"x": 1}, "optional": True}, RUN_SPEC["nodes"][2]],
        [*RUN_SPEC["nodes"][:2], {**an_instance(OTHER_TASK), "dependsOn": ["a", "b"]}],
        [*RUN_SPEC["nodes"][:2], {**an_instance(TASK), "dependsOn": ["b", "a"]}],
    ],
}
REQUIRED = {"intent", "nodes"}
MUTABLE = {AgentRunSpec.model_fields[name].alias or name for name in MUTABLE_SPEC_FIELDS}
IMMUTABLE = sorted(set(RUN_SPEC) - MUTABLE)

Change = tuple[Object, Object]
"""The old object and the new one."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that one rule takes, and changes that this rule alone refuses."""

    taken: tuple[Change, ...]
    refused: tuple[Change, ...]


def spec_changes(field: str) -> Iterator[Change]:
    """A field of a run's spec changed, and, where it may be absent, added and removed."""
    without = {name: value for name, value in RUN_SPEC.items() if name != field}
    for other in OTHER_VALUES[field]:
        yield RUN_SPEC, {**RUN_SPEC, field: other}
        yield {**RUN_SPEC, field: other}, RUN_SPEC
    if field not in REQUIRED:
        yield without, RUN_SPEC
        yield RUN_SPEC, without


def run_changes(field: str) -> Changes:
    changes = list(spec_changes(field))
    before = [(a_run(old, admitted), a_run(new, admitted)) for old, new in changes for admitted in (None, 0)]
    # The operator's own write, and a manifest that is applied again.
    admission = (a_run(RUN_SPEC), a_run(RUN_SPEC, 1)), (a_run(RUN_SPEC, 3), a_run(RUN_SPEC, 3))
    return Changes(taken=(*before, *admission), refused=tuple((a_run(old, 1), a_run(new, 1)) for old, new in changes))


APPROVED = an_approval(spec={"decision": {"verdict": "Approve", "decidedBy": "Ada", "params": {"x": 1}}})


def decided(**other: Any) -> Object:
    return an_approval(spec={"decision": {**APPROVED["spec"]["decision"], **other}})


def change_cases() -> Iterator[tuple[Key, Changes]]:
    """Each rule about a change."""
    for field in IMMUTABLE:
        message = f"spec.{field} is immutable once the run is admitted: create another run"
        yield ("AgentRun", "", message), run_changes(field)
    pinned = a_node(index=1, item={"sku": 1})
    yield (
        ("AgentNode", ".spec", "the spec of a node is immutable"),
        Changes(
            taken=((a_node(), a_node()), (a_node(), a_node(phase="Ready")), (pinned, pinned)),
            refused=(
                (a_node(), a_node(path="b")),
                (a_node(), a_node({**TASK, "params": {"x": 1}})),
                (a_node(), pinned),
                (pinned, a_node()),
                (pinned, a_node(index=1, item={"sku": 2})),
                (pinned, a_node(index=1, item=[])),
            ),
        ),
    )
    yield (
        ("AgentApproval", "", "spec.decision is set once"),
        Changes(
            taken=(
                (an_approval(), APPROVED),
                (an_approval(spec={}), APPROVED),
                (an_approval(), an_approval(spec={})),
                (an_approval(spec={}), an_approval()),
                (APPROVED, APPROVED),
                (APPROVED, {**APPROVED, "status": {"state": "Applied"}}),
            ),
            refused=(
                (APPROVED, decided(verdict="Release")),
                (APPROVED, decided(decidedBy="Eve")),
                (APPROVED, decided(reason="later")),
                (APPROVED, decided(params={"x": 2})),
                (APPROVED, an_approval(spec={"decision": {"verdict": "Approve", "decidedBy": "Ada"}})),
                (APPROVED, an_approval(spec={})),
                (APPROVED, an_approval()),
            ),
        ),
    )


OBJECT_CASES = dict(object_cases())
CHANGE_CASES = dict(change_cases())


def name_of(key: Key) -> str:
    kind, path, message = key
    return f"{kind}{path}: {message}"


def rules_of_definitions() -> Iterator[tuple[Key, str]]:
    for kind in KINDS:
        for path, schema, _ in walk_schema(read_schema(kind)):
            for rule in schema.get("x-kubernetes-validations", ()):
                yield (kind, path, rule["message"]), rule["rule"]


def is_taken_by_model(kind: str, value: Object) -> bool:
    try:
        MODELS[kind].from_wire(value)
    except ValidationError:
        return False
    return True


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    rules = list(rules_of_definitions())
    assert len(dict(rules)) == len(rules), "a message twice in one place"
    about_changes = {key for key, rule in rules if "oldSelf" in rule}
    assert about_changes == set(CHANGE_CASES)
    assert set(dict(rules)) - about_changes == set(OBJECT_CASES)
    for case in (*OBJECT_CASES.values(), *CHANGE_CASES.values()):
        assert case.taken
        assert case.refused


@pytest.mark.parametrize("key", OBJECT_CASES, ids=name_of)
def test_a_rule_and_the_model_take_and_refuse_the_same_objects(key: Key) -> None:
    kind, path, message = key
    for value in OBJECT_CASES[key].taken:
        assert find_refusals(read_schema(kind), value) == [], value
        assert is_taken_by_model(kind, value), value
    for value in OBJECT_CASES[key].refused:
        assert (path, message) in find_refusals(read_schema(kind), value), value
        assert not is_taken_by_model(kind, value), value


@pytest.mark.parametrize("key", CHANGE_CASES, ids=name_of)
def test_a_rule_about_changes_refuses_them_and_never_a_new_object(key: Key) -> None:
    kind, path, message = key
    for old, new in CHANGE_CASES[key].taken:
        assert find_refusals(read_schema(kind), new, old) == [], (old, new)
    for old, new in CHANGE_CASES[key].refused:
        assert find_refusals(read_schema(kind), new, old) == [(path, message)], (old, new)
        for value in (old, new):
            assert find_refusals(read_schema(kind), value) == [], value
            assert is_taken_by_model(kind, value), value


# What the operator makes of a changed run: the digest of its content says whether it is another one.


def digest_of(spec: Object) -> str:
    return spec_digest(AgentRunSpec.from_wire(spec))


def test_the_table_of_changes_names_every_field_of_a_runs_spec() -> None:
    names = {field.alias or name for name, field in AgentRunSpec.model_fields.items()}
    assert set(RUN_SPEC) == set(OTHER_VALUES) == names


@pytest.mark.parametrize("field", IMMUTABLE)
def test_what_a_rule_refuses_is_another_run_for_the_operator(field: str) -> None:
    for old, new in spec_changes(field):
        assert digest_of(old) != digest_of(new), (old, new)


@pytest.mark.parametrize("field", sorted(MUTABLE))
def test_what_is_mutable_may_be_changed_added_and_removed_and_is_the_same_run_for_the_operator(field: str) -> None:
    for old, new in spec_changes(field):
        assert find_problems(read_schema("AgentRun"), a_run(new, 1), a_run(old, 1)) == []
        assert digest_of(old) == digest_of(new)


SPECS = st.fixed_dictionaries(
    {name: st.sampled_from([RUN_SPEC[name], *OTHER_VALUES[name]]) for name in REQUIRED},
    optional={
        name: st.sampled_from(
            [RUN_SPEC[name], *(value for value in OTHER_VALUES[name] if (name, value) != ("inputs", {}))]
        )
        for name in RUN_SPEC.keys() - REQUIRED
    },
)


@given(SPECS, SPECS)
def test_an_admitted_run_keeps_its_digest_exactly_when_the_rules_take_the_change(old: Object, new: Object) -> None:
    refused = find_problems(read_schema("AgentRun"), a_run(new, 1), a_run(old, 1))
    assert (not refused) == (digest_of(old) == digest_of(new)), refused
    assert refused == [
        f"spec.{name} is immutable once the run is admitted: create another run"
        for name in RUN_SPEC
        if name in IMMUTABLE and old.get(name) != new.get(name)
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"inputs": {}}, id="no inputs"),
        pytest.param({"nodes": [{**TASK, "type": "Task"}]}, id="the type of a task"),
        pytest.param({"nodes": [{**TASK, "optional": False}]}, id="not optional"),
        pytest.param({"nodes": [{**TASK, "dependsOn": []}]}, id="no dependencies"),
    ],
)
def test_a_default_below_the_servers_own_that_is_spelled_out_later_is_refused_and_changes_nothing(
    change: Object,
) -> None:
    old: Object = {"intent": "test", "nodes": [TASK]}
    assert len(find_problems(read_schema("AgentRun"), a_run({**old, **change}, 1), a_run(old, 1))) == 1
    assert digest_of(old) == digest_of({**old, **change})


def test_a_default_of_the_server_may_be_spelled_out_later() -> None:
    old: Object = {"intent": "test", "nodes": [TASK]}
    new = {**old, "onNodeFailure": "Abort"}
    assert find_problems(read_schema("AgentRun"), a_run(new, 1), a_run(old, 1)) == []


@pytest.mark.parametrize(
    "field, old, new",
    [
        pytest.param("inputs", {"day": 1}, {"date": 2}, id="an input under another name"),
        pytest.param("nodes", [TASK, OTHER_TASK], [OTHER_TASK, TASK], id="nodes in another order"),
        pytest.param(
            "nodes",
            [a_fan_out({"items": [], "nodes": [TASK, OTHER_TASK]})],
            [a_fan_out({"items": [], "nodes": [OTHER_TASK, TASK]})],
            id="nodes of a fan-out in another order",
        ),
        pytest.param(
            "nodes", [{**TASK, "params": {"x": 1}}], [{**TASK, "params": {"y": 1}}], id="a param under another name"
        ),
    ],
)
def test_what_the_servers_comparison_does_not_see_is_another_run_for_the_operator_alone(
    field: str, old: Any, new: Any
) -> None:
    before, after = {**RUN_SPEC, field: old}, {**RUN_SPEC, field: new}
    assert find_problems(read_schema("AgentRun"), a_run(after, 1), a_run(before, 1)) == []
    assert digest_of(before) != digest_of(after)


# The stand-in for the server asks rules about changes where the server does.

KEPT = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "kept"}]}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
ITEMS: Schema = {"type": "object", "properties": {"name": {"type": "string"}, "a": KEPT}}


@pytest.mark.parametrize(
    "schema, old, new, want",
    [
        pytest.param(ITEMS, {"a": "x"}, {"a": "y"}, [".a"], id="changed"),
        pytest.param(ITEMS, {}, {"a": "y"}, [], id="added"),
        pytest.param(ITEMS, {"a": "x"}, {}, [], id="removed"),
        pytest.param(
            {"type": "array", "items": ITEMS, **KEYED},
            [{"name": "n", "a": "x"}, {"name": "m", "a": "y"}],
            [{"name": "m", "a": "y"}, {"name": "n", "a": "z"}],
            ["[].a"],
            id="changed under its key",
        ),
        pytest.param({"type": "array", "items": ITEMS}, [{"a": "x"}], [{"a": "y"}], [], id="changed in a list"),
        pytest.param(
            {"type": "object", "additionalProperties": KEPT}, {"k": "x"}, {"k": "y", "l": "z"}, [".*"], id="in a map"
        ),
    ],
)
def test_a_rule_about_changes_is_asked_only_where_an_old_value_stands(
    schema: Schema, old: Any, new: Any, want: list[str]
) -> None:
    assert [path for path, _ in find_refusals(schema, new, old)] == want
