"""chain: how long one step after another takes when nothing else is to be done."""

from __future__ import annotations

from typing import Any

from bench.clock_log import open_clock_log
from bench.local_timing import time_local_runs
from bench.part_engine import run_engine_process
from bench.shapes import chain, stamp_tool
from bench_cluster.figures import find_gaps, summarize_ms

_STEPS = 200
_CHAINS = 3


async def measure_chain(scale: float) -> dict[str, Any]:
    """Run chains one after the other; a step lasts from one call's start to the next one's.

    First as local runs, where scheduler and worker share one process, then with a worker in a process of its own.
    """
    log = open_clock_log()
    steps = max(5, round(_STEPS * scale))
    names = [f"chain-{at}" for at in range(_CHAINS)]
    not_succeeded = 0
    gaps: list[float] = []
    for name in names:
        not_succeeded += (await time_local_runs([chain(name, steps)], stamp_tool())).not_succeeded
        gaps += find_gaps(at for _, at in log.read_calls()[name])
    apart = await run_engine_process(1, steps, _CHAINS, "chain")
    return {
        "chains": _CHAINS,
        "steps": steps,
        "step": summarize_ms(gaps),
        "steps_per_s": round(len(gaps) / sum(gaps), 1),
        "runs_not_succeeded": not_succeeded,
        **log.count_oddities(dict.fromkeys(names, steps)),
        "worker in a process of its own": {
            name: apart[name]
            for name in ("step", "steps_per_s", "runs_not_succeeded", "calls_missing", "calls_repeated")
        },
    }
