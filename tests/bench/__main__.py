"""The command line: ``python -m bench``, in ``make bench``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from agentrun.telemetry.log_setup import LogLevel, set_up_logs
from bench.aims import judge
from bench.cost_plot import draw_costs
from bench.part_chain import measure_chain
from bench.part_engine import EngineMeasurements
from bench.part_ledger import measure_ledger
from bench.part_local import measure_local
from bench_cluster.command_line import build_parser, conclude, end_when_told, parse
from bench_cluster.machine import describe_machine
from bench_cluster.one_part import measure_part
from bench_cluster.showing import show

PARTS = ("ledger", "local", "chain", "memory", "events")
_EXAMPLES = """parts:
  ledger   the round trips of a call (dispatch, claim, commit), beside PING and XADD; with and without waiting for the disk
  local    2,000 trivial nodes side by side in a local run: as one run, as a list, as many runs
  chain    200 steps one after another in a local run: how long a step takes
  memory   what a scheduler holds: one run of 10,000 nodes, 1,000 runs of 10
  events   what an event costs a scheduler, by the size of its run: 10, 100, 1,000, 10,000 nodes, 1,000 runs of 10

examples:
  make bench                                        everything, a few minutes
  make bench ARGS="--only chain"                    one part
  make bench ARGS="--only memory --only events"     two (what both measure is measured once)
  make bench ARGS="--scale 0.1 --json all.json"     a tenth of everything; all figures in a file
  make bench ARGS="--only events --plot docs/event-cost.svg"

exit codes: 0 measured (aims may be missed), 1 a part failed, or a call was lost or made twice,
2 the arguments cannot be used, 130 interrupted
"""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = build_parser(
        "bench",
        "Measure ledger, engine and worker on this machine, without Kubernetes.",
        _EXAMPLES,
        PARTS,
    )
    parser.add_argument("--plot", type=Path, default=None, help="file that the cost of events is drawn to (SVG)")
    given = parse(parser, arguments)
    if given.plot is not None and given.only and "events" not in given.only:
        parser.error("--plot draws what the part events measures: add --only events")
    return given


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Measure the chosen parts, one after the other."""
    end_when_told()
    chosen = given.only or PARTS
    found: dict[str, Any] = {"machine": describe_machine(), "scale": given.scale, "parts": {}}
    show("machine", found["machine"])
    engine = EngineMeasurements(given.scale)
    acts = {
        "ledger": lambda: measure_ledger(given.scale),
        "local": lambda: measure_local(given.scale),
        "chain": lambda: measure_chain(given.scale),
        "memory": engine.measure_memory,
        "events": engine.measure_events,
    }
    for name in PARTS:
        if name in chosen:
            await measure_part(name, acts[name], found, given.json)
    return found


def draw(found: dict[str, Any]) -> str:
    """Return the picture of what the part events has measured."""
    events, machine = found["parts"]["events"], found["machine"]
    curve = {int(size): figures["event_us"] for size, figures in events["curve"].items()}
    others = {name: (int(name.rpartition(" ")[2]), figures["event_us"]) for name, figures in events["many"].items()}
    said = f"{machine['date'][:10]}, {machine['cores']} cores, load {events['load_before']}, Python {machine['python']}"
    return draw_costs(curve, others, said)


def main() -> int:
    """Return the exit code."""
    given = parse_arguments()
    set_up_logs(LogLevel.ERROR)
    try:
        found = asyncio.run(measure(given))
    except asyncio.CancelledError:
        return 130
    code = conclude(found, judge(found["parts"]), given.json)
    if given.plot is not None and "error" not in found["parts"]["events"]:
        given.plot.write_text(draw(found))
    return code


if __name__ == "__main__":
    sys.exit(main())
