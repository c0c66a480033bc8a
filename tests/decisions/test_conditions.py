"""Typed tests: what holds, what does not, and what is an error rather than either."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.run import Condition
from agentrun.contract.value_tests import ValueTest
from agentrun.decisions.conditions import ConditionError, NamedValues, NodeEnd, choose_case, evaluate_test
from agentrun.decisions.references import Given, Missing
from agentrun.decisions.value_paths import Found

BIG = Decimal("0.12345678901234567890123456789012345678901")


@dataclass(frozen=True)
class Scope:
    """A test scope of nodes by name, and inputs."""

    nodes: dict[str, NodeEnd] = field(default_factory=dict)
    inputs: JsonObject = field(default_factory=dict)

    def root_value(self, root: str) -> Found | Missing:
        return NamedValues({"inputs": self.inputs}).root_value(root)

    def node_end(self, name: str) -> NodeEnd | Missing:
        return self.nodes.get(name, Missing(f"there is no node {name}"))


def end_of(result: JsonValue) -> NodeEnd:
    return NodeEnd("Succeeded", "Completed", None, "Executed", Given(result))


def judge(value: JsonValue, op: str, against: JsonValue) -> bool:
    test = ValueTest.model_validate({"path": "result.x", "op": op, "value": against})
    return evaluate_test(test, NamedValues({"result": {"x": value}}))


@pytest.mark.parametrize(
    "value,op,against,want",
    [
        pytest.param(Decimal("5.0"), "eq", 5, True, id="integral decimal is the integer"),
        pytest.param(Decimal("1e3"), "eq", 1000, True, id="exponent is spelling"),
        pytest.param(9007199254740993, "eq", 9007199254740992, False, id="integers beyond a double differ"),
        pytest.param(BIG, "eq", BIG + Decimal("1e-41"), False, id="the 41st digit counts"),
        pytest.param(Decimal("-0"), "eq", 0, True, id="minus zero is zero"),
        pytest.param("x' == 'x", "eq", "x' == 'x", True, id="quotes are text"),
        pytest.param("{{true}}", "eq", "true", False, id="template text is text"),
        pytest.param('a"b', "ne", "a", True, id="double quote is text"),
        pytest.param("ref/x", "eq", "ref/x", True, id="slash is text"),
        pytest.param("wanted-but-not", "eq", "wanted", False, id="hyphens are text"),
        pytest.param("é", "eq", "e\u0301", False, id="no unicode normalisation"),
        pytest.param(True, "eq", True, True, id="boolean equals itself"),
        pytest.param(True, "ne", False, True, id="booleans differ"),
        pytest.param(None, "eq", None, True, id="null equals null"),
        pytest.param(None, "eq", "x", False, id="null is no text"),
        pytest.param(0, "eq", None, False, id="zero is not null"),
        pytest.param("", "ne", None, True, id="empty text is not null"),
        pytest.param([1, {"a": 2}], "eq", [Decimal("1.0"), {"a": 2}], True, id="lists compare deeply"),
        pytest.param([1, True], "eq", [1, 1], False, id="true inside a list is no one"),
        pytest.param({"a": 1, "b": 2}, "eq", {"b": 2, "a": 1}, True, id="objects know no order"),
        pytest.param(10, "gt", 9, True, id="ten is more than nine"),
        pytest.param("10", "gt", "9", False, id="texts are ordered as text"),
        pytest.param("2024-05-02", "ge", "2024-05-01", True, id="ISO dates are ordered"),
        pytest.param(Decimal("500.01"), "gt", 500, True, id="decimal over integer"),
        pytest.param(500, "gt", 500, False, id="gt is strict"),
        pytest.param(500, "ge", 500, True, id="ge is not"),
        pytest.param(Decimal("0.1"), "lt", Decimal("0.10000000000000000000000000000000001"), True, id="exact lt"),
        pytest.param(3, "le", 3, True, id="le"),
        pytest.param("b", "in", ["a", "b"], True, id="listed"),
        pytest.param("c", "in", ["a", "b"], False, id="not listed"),
        pytest.param(5, "in", ["a", Decimal("5.0")], True, id="listed by value among others"),
        pytest.param(None, "in", ["a", None], True, id="null listed"),
        pytest.param(None, "in", ["a"], False, id="null not listed"),
        pytest.param("c", "in", [], False, id="nothing listed"),
        pytest.param([1, 2], "contains", 2, True, id="list contains"),
        pytest.param([1, 2], "contains", 3, False, id="list does not contain"),
        pytest.param([], "contains", "x", False, id="empty list contains nothing"),
        pytest.param([None], "contains", "x", False, id="list of nulls contains no text"),
        pytest.param([["a"]], "contains", ["a"], True, id="list contains a list"),
        pytest.param("wanted-but-not", "contains", "but", True, id="substring"),
        pytest.param("abc", "contains", "", True, id="empty substring"),
        pytest.param(None, "exists", True, True, id="null exists"),
        pytest.param(0, "exists", False, False, id="exists false on a field that is there"),
    ],
)
def test_typed_comparison(value: JsonValue, op: str, against: JsonValue, want: bool) -> None:
    assert judge(value, op, against) is want


@pytest.mark.parametrize(
    "value,op,against,want_shown",
    [
        pytest.param("9", "gt", 10, 'string "9"', id="text against number"),
        pytest.param(10, "lt", "9", "number 10", id="number against text"),
        pytest.param("5", "eq", 5, 'string "5"', id="text is never read as a number"),
        pytest.param("true", "eq", True, 'string "true"', id="text is no boolean"),
        pytest.param(1, "eq", True, "number 1", id="one is not true"),
        pytest.param(1, "ne", True, "number 1", id="nor is it simply different"),
        pytest.param(True, "gt", False, "boolean true", id="booleans have no order"),
        pytest.param(None, "gt", 1, "null null", id="null has no order"),
        pytest.param([1], "lt", [2], "array [1]", id="lists have no order"),
        pytest.param({"a": 1}, "eq", "a", 'object {"a":1}', id="object against text"),
        pytest.param("9", "in", [9, 10], 'string "9"', id="text among numbers"),
        pytest.param(True, "in", [1, 0], "boolean true", id="boolean among numbers"),
        pytest.param([9, 10], "contains", "9", 'string "9"', id="list of numbers asked for text"),
        pytest.param(12, "contains", 1, "number 12", id="number contains nothing"),
        pytest.param("12", "contains", 1, 'string "12"', id="text contains no number"),
        pytest.param({"a": 1}, "contains", "a", 'object {"a":1}', id="object contains nothing"),
    ],
)
def test_other_type_is_an_error_that_shows_type_and_value(
    value: JsonValue, op: str, against: JsonValue, want_shown: str
) -> None:
    with pytest.raises(ConditionError) as caught:
        judge(value, op, against)

    assert caught.value.path == "result.x"
    assert want_shown in caught.value.problem


def test_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConditionError) as caught:
        judge("\U0001f680" * 5000, "gt", 1)

    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "path,want_problem",
    [
        pytest.param("nodes.diff.result.total", "has no field 'total'", id="field the node did not give"),
        pytest.param("nodes.diff.result.items[3]", "has 1 items", id="index past the end"),
        pytest.param("nodes.diff.result.items.sku", "is array", id="field of a list"),
        pytest.param("nodes.none.result.x", "there is no node none", id="unknown node"),
        pytest.param("nodes.diff.status", "not status", id="field nodes do not show"),
        pytest.param("nodes.diff", "nodes.<name>.phase", id="node alone"),
        pytest.param("nodes.skipped.result.x", "it was skipped (NotChosen)", id="skipped node"),
        pytest.param("inputs.month", "has no field 'month'", id="input"),
        pytest.param("params.x", "params is not readable here", id="root of another place"),
        pytest.param("nodes.diff.phase.x", "is string", id="field of a phase"),
    ],
)
def test_missing_path_is_an_error_that_says_why(path: str, want_problem: str) -> None:
    skipped = NodeEnd("Skipped", "NotChosen", None, None, Missing("it was skipped (NotChosen)"))
    scope = Scope({"diff": end_of({"items": [1]}), "skipped": skipped}, {"day": 1})

    with pytest.raises(ConditionError, match="is missing") as caught:
        evaluate_test(ValueTest.model_validate({"path": path, "op": "eq", "value": 1}), scope)

    assert want_problem in caught.value.problem
    assert str(caught.value).startswith(path)


@pytest.mark.parametrize(
    "path,value,want",
    [
        pytest.param("nodes.a.result.x", True, True, id="there"),
        pytest.param("nodes.a.result.y", True, False, id="not there"),
        pytest.param("nodes.a.result.y", False, True, id="not there and not wanted"),
        pytest.param("nodes.a.result.x.z", None, False, id="inside a number; true is the default"),
        pytest.param("nodes.b.result", True, False, id="node that is not there"),
    ],
)
def test_exists_is_never_an_error(path: str, value: JsonValue, want: bool) -> None:
    test = ValueTest.model_validate({"path": path, "op": "exists", "value": value})

    assert evaluate_test(test, Scope({"a": end_of({"x": 1})})) is want


@pytest.mark.parametrize(
    "path,value,want",
    [
        pytest.param("nodes.pay.phase", "Dead", True, id="phase"),
        pytest.param("nodes.pay.reason", "HttpStatus", True, id="reason"),
        pytest.param("nodes.pay.class", "Permanent", True, id="class"),
        pytest.param("nodes.pay.effect", "NotExecuted", True, id="effect"),
        pytest.param("nodes.fine.class", "Permanent", False, id="no class where nothing failed"),
        pytest.param("nodes.fine.class", None, True, id="which is null"),
        pytest.param("nodes.pay.result.rate", "1.0", True, id="default of a tolerated node"),
    ],
)
def test_condition_routes_on_how_a_node_ended(path: str, value: JsonValue, want: bool) -> None:
    dead = NodeEnd("Dead", "HttpStatus", "Permanent", "NotExecuted", Missing("it is dead", {"result.rate": "1.0"}))
    scope = Scope({"pay": dead, "fine": end_of({})})

    assert evaluate_test(ValueTest.model_validate({"path": path, "op": "eq", "value": value}), scope) is want


def build_switch(default: str | None) -> Condition:
    return Condition.model_validate(
        {
            "cases": [
                {"when": {"path": "nodes.a.result.n", "op": "gt", "value": 10}, "goto": "many"},
                {"when": {"path": "nodes.a.result.n", "op": "gt", "value": 0}, "goto": "some"},
            ],
            **({"default": default} if default else {}),
        }
    )


@pytest.mark.parametrize(
    "n,default,want",
    [
        pytest.param(11, "none", "many", id="first case that holds"),
        pytest.param(5, "none", "some", id="second"),
        pytest.param(0, "none", "none", id="default for values that match no case"),
        pytest.param(0, None, None, id="no branch without a default"),
    ],
)
def test_condition_chooses(n: int, default: str | None, want: str | None) -> None:
    assert choose_case(build_switch(default), Scope({"a": end_of({"n": n})})) == want


@pytest.mark.parametrize("result", [{}, {"n": "11"}, {"n": None}], ids=["missing", "text", "null"])
def test_value_that_cannot_be_judged_never_takes_the_default(result: JsonValue) -> None:
    with pytest.raises(ConditionError):
        choose_case(build_switch("none"), Scope({"a": end_of(result)}))


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.decimals(allow_nan=False, allow_infinity=False, places=12)


@given(NUMBERS, NUMBERS)
def test_numbers_are_ordered_totally(left: int | Decimal, right: int | Decimal) -> None:
    assert judge(left, "lt", right) + judge(left, "eq", right) + judge(left, "gt", right) == 1
    assert judge(left, "le", right) is not judge(left, "gt", right)
    assert judge(left, "eq", right) is not judge(left, "ne", right)
