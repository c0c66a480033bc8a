"""Deadlines: whose timeout counts, and clocks that stand still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.deadlines import (
    attempt_time_left,
    attempt_timeout,
    has_passed,
    phase_deadline,
    run_deadline,
    time_stood_still,
)

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def build_tool(**fields: str) -> AgentToolSpec:
    return AgentToolSpec.model_validate({"type": "http", "http": {"url": "https://shop.internal/"}, **fields})


@pytest.mark.parametrize(
    "node_timeout,tool,want",
    [
        pytest.param(seconds(5), build_tool(timeout="40s"), seconds(5), id="node over tool"),
        pytest.param(seconds(300), build_tool(), seconds(300), id="node may be longer than the reach's"),
        pytest.param(None, build_tool(timeout="40s", reach="Internal"), seconds(40), id="tool over reach"),
        pytest.param(None, build_tool(reach="Internal"), seconds(15), id="internal"),
        pytest.param(None, build_tool(), seconds(20), id="external"),
    ],
)
def test_attempt_timeout(node_timeout: timedelta | None, tool: AgentToolSpec, want: timedelta) -> None:
    assert attempt_timeout(node_timeout, tool) == want


@pytest.mark.parametrize(
    "active_limit,active,run_left,want",
    [
        pytest.param(None, seconds(500), None, seconds(20), id="unlimited"),
        pytest.param(seconds(60), seconds(10), seconds(600), seconds(20), id="enough is left"),
        pytest.param(seconds(60), seconds(52), seconds(600), seconds(8), id="active time cuts"),
        pytest.param(seconds(60), seconds(0), seconds(3), seconds(3), id="the run's end cuts"),
        pytest.param(seconds(60), seconds(61), seconds(600), seconds(0), id="active time is used up"),
        pytest.param(seconds(60), seconds(0), seconds(-1), seconds(0), id="the run's deadline has passed"),
    ],
)
def test_time_left_for_an_attempt(
    active_limit: timedelta | None, active: timedelta, run_left: timedelta | None, want: timedelta
) -> None:
    deadline = None if run_left is None else NOW + run_left

    assert attempt_time_left(seconds(20), active_limit, active, NOW, deadline) == want


@pytest.mark.parametrize(
    "timeout,stood_still,want",
    [
        pytest.param(None, seconds(0), timedelta(minutes=30), id="default"),
        pytest.param(seconds(120), seconds(0), seconds(120), id="its own"),
        pytest.param(seconds(120), timedelta(days=2), timedelta(days=2, seconds=120), id="moved by suspension"),
    ],
)
def test_run_deadline(timeout: timedelta | None, stood_still: timedelta, want: timedelta) -> None:
    assert run_deadline(NOW, timeout, stood_still) == NOW + want


@pytest.mark.parametrize(
    "before,suspended_for,want",
    [
        pytest.param(None, None, seconds(0), id="never suspended"),
        pytest.param(seconds(7), None, seconds(7), id="earlier suspensions"),
        pytest.param(seconds(7), seconds(3), seconds(10), id="and the one under way"),
        pytest.param(None, seconds(-3), seconds(0), id="clock that jumped back"),
    ],
)
def test_time_stood_still(before: timedelta | None, suspended_for: timedelta | None, want: timedelta) -> None:
    suspended_at = None if suspended_for is None else NOW - suspended_for

    assert time_stood_still(before, suspended_at, NOW) == want


def test_phase_counts_only_the_pause_since_its_entry() -> None:
    assert phase_deadline(NOW, seconds(30), seconds(100), seconds(160)) == NOW + seconds(90)
    assert phase_deadline(NOW, seconds(30), None, seconds(0)) == NOW + seconds(30)


@pytest.mark.parametrize(
    "deadline,want",
    [
        pytest.param(None, False, id="none"),
        pytest.param(NOW + timedelta(microseconds=1), False, id="just before"),
        pytest.param(NOW, True, id="at the moment"),
        pytest.param(NOW - seconds(1), True, id="after"),
    ],
)
def test_deadline_has_passed_at_its_own_moment(deadline: datetime | None, want: bool) -> None:
    assert has_passed(deadline, NOW) is want
