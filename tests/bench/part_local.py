"""local: how many trivial nodes a second a local run makes side by side, in each of the shapes they may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from bench.clock_log import open_clock_log
from bench.local_timing import time_local_runs
from bench.shapes import LIST_MAX, fan_outs, process_tool, stamp_tool, wide_list

_NODES = 2000
_NODES_OF_A_RUN = 10
_PROCESSES = 100


async def measure_local(scale: float) -> dict[str, Any]:
    """Measure one run of fan-outs, one run that lists its nodes, many small runs, and calls in processes of their own."""
    nodes = max(20, round(_NODES * scale))
    listed = min(nodes, LIST_MAX)
    small = [wide_list(f"small-{at}", _NODES_OF_A_RUN) for at in range(nodes // _NODES_OF_A_RUN)]
    processes = max(4, round(_PROCESSES * scale))
    return {
        "one run, fan-outs": await _measure(stamp_tool(), [fan_outs("wide", nodes)], [nodes]),
        "one run, listed": await _measure(stamp_tool(), [wide_list("list", listed)], [listed]),
        "many runs": await _measure(stamp_tool(), small, [_NODES_OF_A_RUN] * len(small)),
        "one run, a process each": await _measure(process_tool(), [wide_list("process", processes)], [processes]),
    }


async def _measure(tool: AgentTool, runs: Sequence[AgentRun], calls: Sequence[int]) -> dict[str, Any]:
    log = open_clock_log()
    timing = await time_local_runs(runs, tool)
    names = [run.metadata.name for run in runs]
    return {
        "runs": len(runs),
        "nodes": sum(calls),
        "nodes_per_s": round(sum(calls) / timing.runs_seconds, 1),
        "runs_s": round(timing.runs_seconds, 2),
        "whole_s": round(timing.whole_seconds, 2),
        "runs_not_succeeded": timing.not_succeeded,
        **log.count_oddities(dict(zip(names, calls, strict=True))),
    }
