"""When retries are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.decisions.retry_backoff import BackoffCurve, RetryDue, plan_retry

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
ALMOST_ONE = 0.999999
FRACTIONS = st.floats(0, 1, exclude_max=True)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    "curve,want_seconds",
    [
        pytest.param(BackoffCurve(), [1, 2, 4, 8, 16, 30, 30], id="defaults double up to the cap"),
        pytest.param(BackoffCurve(seconds(5), 1, seconds(60)), [5, 5, 5], id="factor one stays"),
        pytest.param(BackoffCurve(seconds(90), 3, seconds(60)), [60, 60], id="initial above the cap"),
        pytest.param(BackoffCurve(seconds(0), 2, seconds(60)), [0, 0, 0], id="no wait at all"),
    ],
)
def test_ceiling_grows_up_to_the_cap(curve: BackoffCurve, want_seconds: list[int]) -> None:
    assert [curve.ceiling(retry) for retry in range(len(want_seconds))] == [seconds(want) for want in want_seconds]


def test_enormous_retry_number_is_capped() -> None:
    assert BackoffCurve().ceiling(10**9) == seconds(30)


@given(FRACTIONS, st.integers(0, 20))
def test_jitter_is_full_and_never_over_the_ceiling(fraction: float, retry: int) -> None:
    due = plan_retry(BackoffCurve(), retry, fraction, NOW)

    assert NOW <= due.at <= NOW + BackoffCurve().ceiling(retry)
    assert plan_retry(BackoffCurve(), retry, 0, NOW).at == NOW


@pytest.mark.parametrize(
    "retry_after,deadline,want",
    [
        pytest.param(seconds(10), None, RetryDue(NOW + seconds(10), False), id="provider's wait is honoured"),
        pytest.param(seconds(3600), NOW + seconds(60), RetryDue(NOW + seconds(60), True), id="but cut by the deadline"),
        pytest.param(None, NOW + seconds(0.5), RetryDue(NOW + seconds(0.5), True), id="backoff is cut as well"),
        pytest.param(None, NOW - seconds(5), RetryDue(NOW, True), id="deadline that has passed"),
        pytest.param(
            seconds(10), NOW + seconds(10), RetryDue(NOW + seconds(10), True), id="due at the deadline is late"
        ),
    ],
)
def test_retry_after_and_deadline(retry_after: timedelta | None, deadline: datetime | None, want: RetryDue) -> None:
    assert plan_retry(BackoffCurve(), 0, ALMOST_ONE, NOW, retry_after=retry_after, deadline=deadline) == want


def test_short_retry_after_does_not_shorten_the_backoff() -> None:
    due = plan_retry(BackoffCurve(), 5, 0.5, NOW, retry_after=seconds(1))

    assert due.at == NOW + seconds(15)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_fraction_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="is not in"):
        plan_retry(BackoffCurve(), 0, fraction, NOW)
