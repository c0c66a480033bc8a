"""Priorities: where they come from, and how they age."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.run import Priority, RunNode
from agentrun.decisions.conditions import NamedValues
from agentrun.decisions.priorities import PriorityUndecidedError, effective_priority, next_rise, node_priority

NOTHING = NamedValues()
BY_URGENCY = {"path": "inputs.urgency", "map": {"high": "P0", "2": "P1", "true": "P3", "1.5": "P3"}, "default": "P2"}


def build_node(**fields: object) -> RunNode:
    return RunNode.model_validate({"name": "a", "tool": "t", **fields})


@pytest.mark.parametrize(
    "node,run_priority,want",
    [
        pytest.param(build_node(priority="P0"), Priority.P3, Priority.P0, id="its own"),
        pytest.param(build_node(), Priority.P3, Priority.P3, id="the run's"),
        pytest.param(build_node(), None, Priority.P2, id="the default"),
    ],
)
def test_priority_without_a_field(node: RunNode, run_priority: Priority | None, want: Priority) -> None:
    assert node_priority(node, run_priority, NOTHING) is want


@pytest.mark.parametrize(
    "value,want",
    [
        pytest.param("high", Priority.P0, id="text"),
        pytest.param(Decimal("2.0"), Priority.P1, id="number by its canonical text"),
        pytest.param(Decimal("1.50"), Priority.P3, id="decimal by its canonical text"),
        pytest.param(True, Priority.P3, id="boolean"),
        pytest.param("HIGH", Priority.P2, id="another text takes the default"),
        pytest.param(3, Priority.P2, id="another number takes the default"),
    ],
)
def test_priority_from_a_typed_field(value: JsonValue, want: Priority) -> None:
    scope = NamedValues({"inputs": {"urgency": value}})

    assert node_priority(build_node(priorityFrom=BY_URGENCY), Priority.P3, scope) is want


@pytest.mark.parametrize(
    "inputs,want_problem",
    [
        pytest.param({}, "is missing", id="missing"),
        pytest.param({"urgency": None}, "is null", id="null"),
        pytest.param({"urgency": ["high"]}, r'is array \["high"\]', id="list"),
    ],
)
def test_field_that_says_no_priority_is_an_error(inputs: JsonObject, want_problem: str) -> None:
    with pytest.raises(PriorityUndecidedError, match=rf"inputs\.urgency: {want_problem}"):
        node_priority(build_node(priorityFrom=BY_URGENCY), None, NamedValues({"inputs": inputs}))


@pytest.mark.parametrize(
    "priority,minutes,want",
    [
        pytest.param(Priority.P3, 5, Priority.P3, id="P3 at five minutes"),
        pytest.param(Priority.P3, 5.01, Priority.P2, id="P3 over five"),
        pytest.param(Priority.P3, 8, Priority.P2, id="P3 at eight"),
        pytest.param(Priority.P3, 8.01, Priority.P1, id="P3 over eight"),
        pytest.param(Priority.P2, 3, Priority.P2, id="P2 at three"),
        pytest.param(Priority.P2, 3.01, Priority.P1, id="P2 over three"),
        pytest.param(Priority.P1, 60 * 24 * 365, Priority.P1, id="never to P0"),
        pytest.param(Priority.P0, 60, Priority.P0, id="P0 stays"),
    ],
)
def test_ageing(priority: Priority, minutes: float, want: Priority) -> None:
    assert effective_priority(priority, timedelta(minutes=minutes)) is want


@given(st.sampled_from(Priority), st.timedeltas(min_value=timedelta(0)), st.timedeltas(min_value=timedelta(0)))
def test_waiting_longer_never_lowers_a_priority(priority: Priority, waited: timedelta, other: timedelta) -> None:
    shorter, longer = sorted((waited, other))

    assert effective_priority(priority, longer) <= effective_priority(priority, shorter) <= priority
    assert priority is Priority.P0 or effective_priority(priority, longer) is not Priority.P0


@given(st.sampled_from(Priority), st.timedeltas(min_value=timedelta(0), max_value=timedelta(minutes=20)))
def test_the_next_rise_is_the_first_moment_after_which_the_priority_is_higher(
    priority: Priority, waited: timedelta
) -> None:
    now, rise = effective_priority(priority, waited), next_rise(priority, waited)

    if rise is None:
        assert effective_priority(priority, timedelta.max) is now
        return
    assert rise >= waited
    assert effective_priority(priority, rise) is now
    assert effective_priority(priority, rise + timedelta(microseconds=1)) < now
