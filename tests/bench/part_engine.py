"""events and memory: what an event costs the scheduler, and what it holds, as runs grow and as they get more.

Each size is measured in a process of its own; see :mod:`bench.engine_process`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from bench.clock_log import forget_clock_log

SIZES = (10, 100, 1000, 10_000)
_NODES_FOR_EACH_SIZE = 1000
"""Small runs are repeated until this many nodes were measured."""
_MANY_RUNS = 1000
_NODES_OF_MANY = 10
_END_SECONDS = 30.0

Engine = Mapping[str, Any]
"""What :mod:`bench.engine_process` has printed."""


class EngineProcessError(Exception):
    """The process ended without figures; the message holds the end of what it said."""


class EngineMeasurements:
    """Measures each size at most once: the parts share them."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._known: dict[tuple[int, int], Engine] = {}

    async def measure_memory(self) -> dict[str, Any]:
        """Return what the largest run takes, and many small ones at once."""
        large = await self._measure(1, self._largest())
        many = await self._measure(self._many(), _NODES_OF_MANY)
        return {
            f"1 run of {self._largest()}": _memory(large),
            f"{self._many()} runs of {_NODES_OF_MANY}": _memory(many),
        }

    async def measure_events(self) -> dict[str, Any]:
        """Return what an event costs in runs of growing size, and in many small ones at once."""
        sizes = [size for size in SIZES if size <= self._largest()]
        curve = {size: await self._measure(1, size) for size in sizes}
        many = await self._measure(self._many(), _NODES_OF_MANY)
        return {
            "curve": {str(size): describe_events(found) for size, found in curve.items()},
            "many": {f"{self._many()} runs of {_NODES_OF_MANY}": describe_events(many)},
            "growth": round(find_growth({size: cost_us(found) for size, found in curve.items()}), 2),
        }

    def _largest(self) -> int:
        return max(SIZES[0], round(SIZES[-1] * self._scale))

    def _many(self) -> int:
        return max(2, round(_MANY_RUNS * self._scale))

    async def _measure(self, runs: int, nodes: int) -> Engine:
        if (runs, nodes) not in self._known:
            times = max(1, round(min(1.0, self._scale) * _NODES_FOR_EACH_SIZE / (runs * nodes)))
            self._known[runs, nodes] = await run_engine_process(runs, nodes, times, "fan-outs")
        return self._known[runs, nodes]


async def run_engine_process(runs: int, nodes: int, times: int, shape: str) -> Engine:
    """Have :mod:`bench.engine_process` schedule that. Raises :class:`EngineProcessError`."""
    arguments = [sys.executable, "-m", "bench.engine_process", str(runs), str(nodes), str(times), shape]
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=forget_clock_log()
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
        raise
    if process.returncode != 0:
        raise EngineProcessError(f"{runs} runs of {nodes}: exit code {process.returncode}\n{err.decode()[-1500:]}")
    found: Engine = json.loads(out)
    return found


def cost_us(found: Engine) -> float:
    """Return the scheduler's processor time for an event, in microseconds."""
    events = int(found["reports"]) + int(found["changes"])
    return float(found["scheduler_cpu_s"]) * 1e6 / events


def describe_events(found: Engine) -> dict[str, Any]:
    """Return the cost of an event and of a node, and what they were counted from."""
    nodes = found["runs"] * found["nodes"] * found["times"]
    return {
        "event_us": round(cost_us(found), 1),
        "node_us": round(float(found["scheduler_cpu_s"]) * 1e6 / nodes),
        "events_per_node": round((found["reports"] + found["changes"]) / nodes, 2),
        "turns_per_node": round(found["turns"] / nodes, 2),
        **_outcome(found),
    }


def find_growth(costs: Mapping[int, float]) -> float:
    """Return how much more an event costs in the largest run than in the cheapest smaller one; 1 is not at all."""
    largest = max(costs)
    smaller = [cost for size, cost in costs.items() if size != largest]
    return costs[largest] / min(smaller) if smaller else 1.0


def _memory(found: Engine) -> dict[str, Any]:
    before, peak = found["rss_before_mb"], found["rss_peak_mb"]
    nodes = found["runs"] * found["nodes"]
    return {
        "rss_before_mb": before,
        "rss_peak_mb": peak,
        "node_kb": round((peak - before) * 1024 / nodes, 1),
        **_outcome(found),
    }


def _outcome(found: Engine) -> dict[str, Any]:
    return {
        name: found[name] for name in ("times", "nodes_per_s", "runs_not_succeeded", "calls_missing", "calls_repeated")
    }
