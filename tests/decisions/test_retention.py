"""Which ended runs lose their nodes, and which go themselves."""

from datetime import UTC, datetime, timedelta

import pytest

from agentrun.decisions.retention import EndedRun, find_expired_runs, find_runs_past_retention

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def ended(uid: str, hours_ago: float, ttl: timedelta | None = None, namespace: str = "a") -> EndedRun:
    return EndedRun(namespace, uid, uid, "1", NOW - timedelta(hours=hours_ago), ttl)


@pytest.mark.parametrize(
    "ttl, hours_ago, want",
    [
        pytest.param(None, 10_000, False, id="without a ttl it stays"),
        pytest.param(timedelta(hours=1), 0.99, False, id="not yet"),
        pytest.param(timedelta(hours=1), 1, True, id="to the moment"),
        pytest.param(timedelta(), 0, True, id="at once"),
    ],
)
def test_a_run_expires_by_its_own_ttl_alone(ttl: timedelta | None, hours_ago: float, want: bool) -> None:
    assert bool(find_expired_runs([ended("r", hours_ago, ttl)], NOW)) is want


@pytest.mark.parametrize(
    "runs, most, want",
    [
        pytest.param([ended("old", 24), ended("new", 23.9)], 10, {("a", "old")}, id="by age"),
        pytest.param([ended("x", 3), ended("y", 2), ended("z", 1)], 2, {("a", "x")}, id="the oldest of too many"),
        pytest.param(
            [ended("x", 3), ended("y", 2), ended("z", 1, namespace="b")], 1, {("a", "x")}, id="each namespace by itself"
        ),
        pytest.param([ended("old", 30), ended("x", 1)], 1, {("a", "old")}, id="those that go by age count no more"),
        pytest.param([ended("y", 1), ended("x", 1)], 1, {("a", "x")}, id="equal ends by uid"),
    ],
)
def test_nodes_are_kept_for_a_time_and_for_so_many_runs(
    runs: list[EndedRun], most: int, want: set[tuple[str, str]]
) -> None:
    assert find_runs_past_retention(runs, NOW, timedelta(hours=24), most) == want
