"""The command line: ``python -m bench_cluster``, in ``make bench-cluster``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench_cluster.aims import judge
from bench_cluster.bench_site import Site, open_site
from bench_cluster.command_line import build_parser, conclude, end_when_told, parse
from bench_cluster.machine import describe_control_plane, describe_machine
from bench_cluster.one_part import measure_part
from bench_cluster.part_burst import measure_burst
from bench_cluster.part_chain import measure_chain
from bench_cluster.part_large import measure_large
from bench_cluster.part_priorities import measure_ageing, measure_priorities
from bench_cluster.part_raw import measure_raw
from bench_cluster.part_tree import measure_tree
from bench_cluster.showing import show
from support.control_plane import find_assets

PARTS = ("raw", "tree", "chain", "burst", "priorities", "large")
_EXAMPLES = """parts:
  raw         the API server's own rates: creating AgentNodes, replacing and patching their statuses
  tree        100 runs of 50 nodes at once: nodes a second, writes of each, processor time, memory
  chain       50 steps one after another: how long a step takes
  burst       5,100 runs of one call in 51 namespaces at once: lost, made twice, when the last has ended
  priorities  10,000 nodes of P3 in line, and what P0 and P1 wait meanwhile; waiting raises a priority
  large       one run of 5,000 nodes, and how an operator takes over after it

examples:
  make bench-cluster                                      everything, about half an hour
  make bench-cluster ARGS="--only chain"                  one part
  make bench-cluster ARGS="--only tree --only chain"      two (tree measures raw first)
  make bench-cluster ARGS="--scale 0.1"                   a tenth of everything, about five minutes
  make bench-cluster ARGS="--only large --terminal-nodes 50000 --json large.json"

exit codes: 0 measured (aims may be missed), 1 a part failed, or a run was lost or a call made twice,
2 the arguments cannot be used, 6 there is no control plane here, 130 interrupted
"""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = build_parser(
        "bench_cluster",
        "Measure the operator: one operator, one worker process and one ledger on a control plane of its own.",
        _EXAMPLES,
        PARTS,
    )
    parser.add_argument(
        "--terminal-nodes", type=int, default=None, help="part large: nodes of ended runs in the cluster; default: 5000"
    )
    given = parse(parser, arguments)
    if given.terminal_nodes is None:
        given.terminal_nodes = round(5000 * given.scale)
    return given


async def measure(given: argparse.Namespace, assets: Path) -> dict[str, Any]:
    """Measure the chosen parts, each on a control plane of its own; raw and tree share one."""
    end_when_told()
    chosen = given.only or list(PARTS)
    found: dict[str, Any] = {
        "machine": describe_machine() | describe_control_plane(assets),
        "scale": given.scale,
        "parts": {},
    }
    parts = found["parts"]
    show("machine", found["machine"])

    async def part(name: str, act: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        await measure_part(name, act, found, given.json)

    async def alone(act: Callable[[Site], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        async with open_site(assets) as site:
            return await act(site)

    if {"raw", "tree"} & set(chosen):
        async with AsyncExitStack() as stack:
            site = await stack.enter_async_context(open_site(assets))
            await part("raw", lambda: measure_raw(site, given.scale))
            if "tree" in chosen:
                await part("tree", lambda: measure_tree(site, given.scale, parts["raw"]["per_s"]))
    if "chain" in chosen:
        await part("chain", lambda: alone(lambda site: measure_chain(site, given.scale)))
    if "burst" in chosen:
        await part("burst", lambda: alone(lambda site: measure_burst(site, given.scale)))
    if "priorities" in chosen:
        await part("priorities", lambda: alone(lambda site: measure_priorities(site, given.scale)))
        await part("ageing", lambda: alone(measure_ageing))
    if "large" in chosen:
        await part("large", lambda: alone(lambda site: measure_large(site, given.scale, given.terminal_nodes)))
    return found


def main() -> int:
    """Return the exit code."""
    given = parse_arguments()
    assets = find_assets()
    if assets is None:
        print("no control plane on this machine: tests/cluster/prepare builds one", file=sys.stderr)
        return 6
    try:
        found = asyncio.run(measure(given, assets))
    except asyncio.CancelledError:
        return 130
    return conclude(found, judge(found["parts"]), given.json)


if __name__ == "__main__":
    sys.exit(main())
