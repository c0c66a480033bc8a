"""What every model of the contract promises: strict, frozen, exact on the wire and back."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentrun.contract.approval import ALLOWED_VERDICTS, AgentApproval, Verdict
from agentrun.contract.exact_json import canonical_json, parse_json
from agentrun.contract.model_base import ContractModel, cut_text
from agentrun.contract.node import AgentNode, AgentNodeStatus, InboxKind
from agentrun.contract.run import AgentRun, AgentRunSpec, Budget, RunNode
from agentrun.contract.tool import AgentTool, AgentToolSpec
from support.manifest_texts import build_run, build_tool
from support.scenario import play

TASK = {"name": "a", "tool": "t"}
HTTP = {"url": "https://shop.example"}


# Strict: what the API server would refuse is refused here as well.


@pytest.mark.parametrize(
    "model, value",
    [
        pytest.param(RunNode, {**TASK, "optional": 1}, id="number as a truth value"),
        pytest.param(RunNode, {**TASK, "optional": "true"}, id="text as a truth value"),
        pytest.param(RunNode, {**TASK, "retry": {"limit": "3"}}, id="text as a number"),
        pytest.param(RunNode, {**TASK, "retry": {"limit": True}}, id="truth value as a number"),
        pytest.param(RunNode, {**TASK, "retry": {"limit": Decimal("1.5")}}, id="fraction as an integer"),
        pytest.param(RunNode, {**TASK, "retry": {"limit": -1}}, id="below its minimum"),
        pytest.param(RunNode, {**TASK, "retry": {"limit": 21}}, id="above its maximum"),
        pytest.param(RunNode, {**TASK, "priority": "p0"}, id="priority in lower case"),
        pytest.param(RunNode, {**TASK, "type": "Planner"}, id="a type that does not exist"),
        pytest.param(RunNode, {**TASK, "timeout": 30}, id="number as a duration"),
        pytest.param(RunNode, {**TASK, "color": "red"}, id="unknown field"),
        pytest.param(RunNode, {**TASK, "depends_on": []}, id="field in snake case"),
        pytest.param(RunNode, {**TASK, "params": [1]}, id="list as params"),
        pytest.param(RunNode, {**TASK, "params": {"x": 2**63}}, id="integer outside int64"),
        pytest.param(RunNode, {**TASK, "params": {"x": float("inf")}}, id="infinity in params"),
        pytest.param(RunNode, {**TASK, "params": {"x": "\ud800"}}, id="lone surrogate in params"),
        pytest.param(RunNode, {"name": "A", "tool": "t"}, id="name in upper case"),
        pytest.param(RunNode, {"name": "1a", "tool": "t"}, id="name that begins with a digit"),
        pytest.param(RunNode, {"name": "a-", "tool": "t"}, id="name that ends with a dash"),
        pytest.param(RunNode, {"name": "a\n", "tool": "t"}, id="name with a line end"),
        pytest.param(RunNode, {"name": "a" * 64, "tool": "t"}, id="name too long"),
        pytest.param(RunNode, {"name": "dеlete", "tool": "t"}, id="name with a look-alike letter"),
        pytest.param(Budget, {"limit": 100}, id="number as money"),
        pytest.param(Budget, {"limit": "-1"}, id="negative money"),
        pytest.param(Budget, {"tokens": "5"}, id="text as tokens"),
        pytest.param(AgentRunSpec, {"intent": "x", "nodes": [TASK], "suspend": "false"}, id="text as suspend"),
        pytest.param(AgentRunSpec, {"intent": "x", "nodes": [TASK], "cancel": 0}, id="number as cancel"),
        pytest.param(AgentRunSpec, {"intent": "x", "nodes": []}, id="no nodes"),
        pytest.param(AgentRunSpec, {"intent": "x", "nodes": [TASK] * 501}, id="501 nodes"),
        pytest.param(AgentRunSpec, {"intent": "x" * 1025, "nodes": [TASK]}, id="intent too long"),
        pytest.param(AgentRunSpec, {"intent": "x", "nodes": {"a": TASK}}, id="nodes as a mapping"),
        pytest.param(AgentToolSpec, {"type": "http", "http": {"url": "file:///etc/passwd"}}, id="file as a URL"),
        pytest.param(AgentToolSpec, {"type": "http", "http": {**HTTP, "method": "TRACE"}}, id="foreign method"),
        pytest.param(
            AgentToolSpec, {"type": "http", "http": {**HTTP, "headers": {"X\r\nY": "1"}}}, id="header with a line end"
        ),
        pytest.param(AgentToolSpec, {"type": "python", "python": {"entryPoint": "os:system; x"}}, id="no entry point"),
    ],
)
def test_a_value_of_another_type_form_or_size_is_refused(model: type[ContractModel], value: object) -> None:
    with pytest.raises(ValidationError):
        model.from_wire(value)


def test_models_do_not_change_once_they_are_read() -> None:
    node = RunNode.from_wire(TASK)
    with pytest.raises(ValidationError, match="frozen"):
        node.name = "b"  # type: ignore[misc]


def test_free_values_are_copied_exact_and_typed() -> None:
    params = {"n": 5.0, "d": 0.1, "big": 2**53 + 1, "none": None, "deep": [{"x": True}]}
    read = RunNode.from_wire({**TASK, "params": params})
    params["deep"] = []
    assert read.params == {"n": 5, "d": Decimal("0.1"), "big": 2**53 + 1, "none": None, "deep": [{"x": True}]}
    assert type(read.params["n"]) is int


# The wire.


def wire_text(model: ContractModel) -> str:
    return canonical_json(model.to_wire())  # type: ignore[arg-type]


def test_the_wire_speaks_camel_case_and_leaves_out_what_is_not_set() -> None:
    node = RunNode.from_wire({**TASK, "dependsOn": ["b"], "onFailure": "Continue"})
    assert parse_json(wire_text(node)) == {
        "name": "a",
        "tool": "t",
        "type": "Task",
        "params": {},
        "dependsOn": ["b"],
        "onFailure": "Continue",
        "optional": False,
        "defaults": {},
    }
    assert parse_json(canonical_json(node.to_wire_set_only())) == {  # type: ignore[arg-type]
        "name": "a",
        "tool": "t",
        "dependsOn": ["b"],
        "onFailure": "Continue",
    }


def test_what_the_author_wrote_is_told_from_what_is_assumed() -> None:
    bare, spelled = RunNode.from_wire(TASK), RunNode.from_wire({**TASK, "optional": False})
    assert bare == spelled
    assert bare.to_wire_set_only() != spelled.to_wire_set_only()


@pytest.mark.parametrize("value", [None, [None], {"a": None}, {"a": [{"b": None}]}], ids=str)
def test_null_in_free_values_survives_the_wire(value: object) -> None:
    node = RunNode.from_wire({**TASK, "params": {"x": value}})
    assert RunNode.from_wire(parse_json(wire_text(node))).params == {"x": value}


def test_a_schema_keeps_its_own_name_on_the_wire() -> None:
    spec = AgentToolSpec.from_wire({"type": "http", "http": HTTP, "params": {"schema": {"type": "object"}}})
    assert spec.params is not None
    assert spec.params.schema_ == {"type": "object"}
    assert parse_json(wire_text(spec.params)) == {"schema": {"type": "object"}}


FREE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12),
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=6,
)


@given(
    params=st.dictionaries(st.sampled_from("xyz"), FREE), micros=st.integers(0, 10**15 - 1), retries=st.integers(0, 20)
)
def test_a_manifest_reads_back_from_the_wire_as_it_was(params: dict[str, Any], micros: int, retries: int) -> None:
    node = {**TASK, "params": params, "retry": {"limit": retries, "backoff": {"initial": "1500ms"}}}
    budget = {"limit": f"{micros // 10**6}.{micros % 10**6:06d}"}
    run = build_run("nodes: [{name: a, tool: t}]").model_copy(
        update={"spec": AgentRunSpec.from_wire({"intent": "x", "nodes": [node], "budget": budget})}
    )
    again = AgentRun.from_wire(parse_json(wire_text(run)))
    assert again == run
    assert wire_text(again) == wire_text(run)


def replace_durations(value: ContractModel) -> ContractModel:
    """Times spent are measured finer than the milliseconds that durations have on the wire."""
    status = getattr(value, "status", None)
    if not isinstance(status, AgentNodeStatus):
        return value
    return value.model_copy(update={"status": status.model_copy(update={"active": None, "pause_at_entry": None})})


def test_whatever_a_run_leaves_behind_reads_back_from_the_wire_as_it_was() -> None:
    played = play(
        "{inputs: {big: 9007199254740993}, nodes: ["
        "{name: a, tool: t, params: {x: '${inputs.big}', none: null}},"
        "{name: ask, type: Approval, dependsOn: [a], approval: {message: go on?}},"
        "{name: f, type: FanOut, dependsOn: [ask], fanOut: {items: [1, 2], node: {tool: t}}}]}",
        "t: {cost: {perCall: '0.25'}}",
        "{tools: {t: [{failure: {message: 'né\\u202e'}}, {result: {n: 1.50, none: null}}]},"
        " humans: [{node: ask, verdict: Approve, by: Ada}]}",
    )
    outcome = played.scenario.outcome
    assert outcome.approvals
    models: list[tuple[type[ContractModel], ContractModel]] = [
        *((AgentRun, run) for run in outcome.runs),
        *((AgentNode, node) for node in outcome.nodes),
        *((AgentApproval, approval) for approval in outcome.approvals),
        (AgentTool, build_tool("t", {"recovery": {"lookup": {"tool": "l"}, "outcome": {}}})),
    ]
    for model, value in models:
        again = model.from_wire(parse_json(wire_text(value)))
        assert wire_text(again) == wire_text(value)
        assert replace_durations(again) == replace_durations(value)


# Texts.


@pytest.mark.parametrize(
    "text, limit, want",
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("🚀🚀🚀", 3, "🚀🚀🚀"),
        ("🚀🚀🚀🚀", 3, "🚀🚀…"),
        ("a\ud83dz", 9, "a\ufffdz"),
        ("a\x00b\x1b[31m\x9b", 20, "a\ufffdb\ufffd[31m\ufffd"),
        ("a\tb\nc", 9, "a\tb\nc"),
        ("a\r\nb", 9, "a\ufffd\nb"),
        ("safe\u202egnp.exe", 20, "safe\ufffdgnp.exe"),
        ("a\u2066b\u2069", 9, "a\ufffdb\ufffd"),
        ("", 1, ""),
        ("ab", 1, "…"),
    ],
)
def test_texts_are_cut_on_code_points_and_cleaned_of_what_no_reader_can_bear(text: str, limit: int, want: str) -> None:
    assert cut_text(text, limit) == want


@given(st.text(st.characters(), max_size=40), st.integers(1, 30))
def test_a_cut_text_fits_can_be_encoded_and_stays_as_it_is(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    assert len(cut) <= limit
    cut.encode("utf-8")
    assert "\x00" not in cut
    assert cut_text(cut, limit) == cut


# Questions.


def test_every_question_has_answers_and_every_answer_a_question() -> None:
    assert set(ALLOWED_VERDICTS) == set(InboxKind)
    assert {verdict for allowed in ALLOWED_VERDICTS.values() for verdict in allowed} == set(Verdict)
    assert all(len(allowed) >= 2 for allowed in ALLOWED_VERDICTS.values())
