"""Histories of the simulation in the suite: a fixed two hundred, those that once broke a promise, and replay."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.contract.tool import SideEffect
from simulation.invariants import BookedEffect, BrokenPromiseError, no_once_effect_happens_twice
from simulation.one_history import live_seed
from simulation.plans import draw_history

HISTORIES = 200
PARTS = 8
ONCE_BROKEN = (34, 71, 148, 191, 317)
"""A leader that stood still wrote its old states over its successor's when it woke up."""


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_a_history_that_once_broke_a_promise_keeps_it(seed: int) -> None:
    assert live_seed(seed).said == ""


@pytest.mark.parametrize("part", range(PARTS))
def test_every_history_keeps_every_promise(part: int, suite_seed: int) -> None:
    for number in range(part, HISTORIES, PARTS):
        found = live_seed(suite_seed + number)
        assert not found.promise, f"make simulate SEED={found.seed}: {found.said}"


def test_a_seed_is_the_same_history_in_every_process() -> None:
    tests = Path(__file__).parents[1]
    told = [
        subprocess.run(
            [sys.executable, "-m", "simulation", "--seed", "71"],
            env={"PYTHONPATH": str(tests), "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert told[0] == told[1]
    assert "the scheduler stands still" in told[0]
    assert "every promise held" in told[0]


def test_plans_differ_and_repeat() -> None:
    assert draw_history(5) == draw_history(5)
    assert len({draw_history(seed).runs for seed in range(50)}) > 40


def test_a_second_effect_of_what_may_happen_only_once_is_seen() -> None:
    first, second = (
        BookedEffect(at, "once", SideEffect.ONCE, "key", request, "", "run") for at, request in ((1.0, "a"), (2.0, "b"))
    )
    no_once_effect_happens_twice(first, [])
    with pytest.raises(BrokenPromiseError, match=r"by b at 2\.000, and by a at 1\.000"):
        no_once_effect_happens_twice(second, [first])
