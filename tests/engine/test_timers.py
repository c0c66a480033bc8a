"""How long the scheduler sleeps by a clock that may be set meanwhile."""

from __future__ import annotations

import pytest

from agentrun.engine.timers import glance_within


@pytest.mark.parametrize(
    "seconds, want",
    [
        pytest.param(0.001, 0.001, id="at once"),
        pytest.param(0.5, 0.5, id="soon"),
        pytest.param(1.5, 1.0, id="a little later"),
        pytest.param(60.0, 1.0, id="within the minute"),
        pytest.param(120.0, 60.0, id="in two minutes"),
        pytest.param(86_400.0, 300.0, id="tomorrow"),
    ],
)
def test_the_clock_is_looked_at_again_the_sooner_the_nearer_the_next_time_is(seconds: float, want: float) -> None:
    assert glance_within(seconds) == want


def test_a_day_of_nothing_costs_few_looks() -> None:
    left, looks = 86_400.0, 0
    while left > 0:
        left -= glance_within(left)
        looks += 1
    assert looks < 400
