"""The bench measures what it says: its arithmetic, its picture, and a whole run of it at a tiny scale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import parse_arguments
from bench.aims import count_oddities, judge
from bench.clock_log import ClockLog
from bench.cost_plot import draw_costs, tick_step
from bench.part_engine import cost_us, describe_events, find_growth
from bench.rates import describe_rate, time_all
from bench.shapes import ITEMS_MAX, fan_outs, wide_list

_TESTS = Path(__file__).parents[1]


def test_a_rate_is_told_from_the_time_of_all_and_the_time_of_each() -> None:
    assert describe_rate([0.001, 0.002, 0.004, 0.003], 0.005) == {"per_s": 800, "p50_ms": 2.0, "p99_ms": 4.0}


async def test_every_step_is_made_once_however_many_are_made_at_once() -> None:
    made: list[int] = []

    async def act(item: int) -> None:
        made.append(item)

    await time_all(range(10), 4, act)

    assert sorted(made) == list(range(10))


_ENGINE: dict[str, Any] = {
    "runs": 2,
    "nodes": 10,
    "times": 5,
    "scheduler_cpu_s": 0.5,
    "reports": 200,
    "changes": 300,
    "turns": 50,
    "nodes_per_s": 40.0,
    "runs_not_succeeded": 0,
    "calls_missing": 0,
    "calls_repeated": 0,
}


def test_an_event_is_a_report_or_a_change_that_the_watch_told_of() -> None:
    found = describe_events(_ENGINE)

    assert cost_us(_ENGINE) == 1000.0
    assert (found["event_us"], found["node_us"], found["events_per_node"]) == (1000.0, 5000, 5.0)
    assert found["turns_per_node"] == 0.5


@pytest.mark.parametrize(
    "costs, want",
    [
        pytest.param({10: 300.0, 100: 200.0, 1000: 100.0}, 1.0 / 2, id="falls"),
        pytest.param({10: 300.0, 100: 200.0, 1000: 400.0}, 2.0, id="grows-beyond-the-cheapest"),
        pytest.param({10: 300.0}, 1.0, id="one-size-tells-nothing"),
    ],
)
def test_growth_is_against_the_cheapest_smaller_run(costs: dict[int, float], want: float) -> None:
    assert find_growth(costs) == want


def test_a_wide_run_goes_into_as_few_fan_outs_as_it_can() -> None:
    run = fan_outs("wide", 2 * ITEMS_MAX + 1)

    assert [len(run.spec.inputs[f"items{at}"]) for at in range(3)] == [ITEMS_MAX, ITEMS_MAX, 1]
    assert len(run.spec.nodes) == 3
    assert len(wide_list("list", 7).spec.nodes) == 7


def test_calls_that_are_missing_or_were_made_again_are_counted(tmp_path: Path) -> None:
    log = ClockLog(tmp_path / "clock.tsv")
    log.path.write_text("a/n0\t1.0\na/n0\t2.0\na/n1\t3.0\nb/n0\t4.0\nother/n0\t1.0\n")

    assert log.count_oddities({"a": 2, "b": 3}) == {"calls_missing": 2, "calls_repeated": 1}
    assert count_oddities({"x": {"calls_missing": 2, "y": {"runs_not_succeeded": 1}}, "calls_repeated": 4}) == 7


def test_a_missed_aim_is_told_from_a_call_that_was_made_twice() -> None:
    parts = {
        "chain": {"step": {"p50_ms": 3.9}, "steps_per_s": 240.0, "calls_repeated": 1},
        "local": {"many runs": {"nodes_per_s": 571.0}, "one run, fan-outs": {"nodes_per_s": 570.0}},
        "events": {"growth": 1.51},
        "memory": {"error": "it failed"},
    }

    missed = {aim.name: aim.is_promise for aim in judge(parts) if not aim.is_met}

    assert missed == {
        "chain: steps a second": False,
        "local: nodes a second, one run, fan-outs": False,
        "events: cost in the largest run": False,
        "chain: calls made once, runs ended well": True,
    }


@pytest.mark.parametrize(
    "highest, want", [(4.0, 1.0), (79.0, 10.0), (80.0, 20.0), (99.0, 20.0), (200.0, 50.0), (0.9, 0.2)]
)
def test_an_axis_is_divided_by_round_numbers(highest: float, want: float) -> None:
    assert tick_step(highest) == pytest.approx(want)


def test_the_picture_shows_every_size_with_its_cost() -> None:
    picture = draw_costs({10: 812.0, 1000: 433.0}, {"7 runs of 10": (10, 655.0)}, "load <1")

    root = ElementTree.fromstring(picture)
    said = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    points = [element.get("cy") for element in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert {"812", "433", "655 (7 runs of 10)", "load <1", "10", "1,000"} <= set(said)
    assert float(points[0] or 0) < float(points[1] or 0), "what costs more stands higher"


@pytest.mark.parametrize("arguments", [["--scale", "0"], ["--only", "chain", "--plot", "x.svg"], ["--only", "nothing"]])
def test_arguments_that_cannot_be_used_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(arguments)

    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_everything_is_measured_at_a_tiny_scale(tmp_path: Path) -> None:
    kept, plot = tmp_path / "all.json", tmp_path / "cost.svg"

    ended = subprocess.run(
        [sys.executable, "-m", "bench", "--scale", "0.01", "--json", str(kept), "--plot", str(plot)],
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    parts = json.loads(kept.read_text())["parts"]
    assert set(parts) == {"ledger", "local", "chain", "memory", "events"}
    assert {"dispatch", "claim", "commit", "raw PING"} <= set(parts["ledger"]["always, 32 at once"])
    assert parts["chain"]["step"]["count"] == 3 * (5 - 1)
    assert parts["local"]["many runs"]["nodes"] == 20
    assert set(parts["events"]["curve"]) == {"10", "100"}
    # A call is reported on twice: that it was claimed, and how it ended.
    assert parts["events"]["curve"]["100"]["events_per_node"] > 2
    assert parts["memory"]["1 run of 100"]["rss_peak_mb"] >= parts["memory"]["1 run of 100"]["rss_before_mb"]
    assert ElementTree.fromstring(plot.read_text()).tag.endswith("svg")
