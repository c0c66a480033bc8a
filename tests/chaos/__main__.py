"""The command line: ``python -m chaos``, in ``make chaos``."""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from chaos.shares import leave, play_share
from support.control_plane import find_assets

_EXAMPLES = """examples:
  make chaos                      ten rounds, each of a new seed
  make chaos ROUNDS=200           more of them
  make chaos ROUNDS=200 JOBS=2    two at a time, each with an API server of its own
  make chaos SEED=4711            the round of one seed again
  make chaos SEED=4711 ROUNDS=20  that one and the nineteen after it

exit codes: 0 everything held, 1 a round ended wrongly, 2 the arguments cannot be used, 6 there is no control plane here
"""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="chaos",
        description="Strike operators, workers, ledger and API server down while runs are at work; everything must end right.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=None, help="how many rounds; default: 10, with --seed 1")
    parser.add_argument("--seed", type=int, default=None, help="the first round's seed; default: drawn anew")
    parser.add_argument("--jobs", type=int, default=1, help="how many rounds are played at once; default: 1")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of text")
    parser.add_argument(
        "--empty-ledger",
        action="store_true",
        help="lose the ledger's data as well (FLUSHALL, or a restart without its files)",
    )
    parser.add_argument("--keep", type=Path, default=None, help="folder in which the rounds' logs are kept")
    given = parser.parse_args(arguments)
    if given.rounds is None:
        given.rounds = 10 if given.seed is None else 1
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    if given.jobs < 1:
        parser.error("--jobs must be at least 1")
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(1, 1_000_000)
    return given


def main() -> int:
    """Return the exit code."""
    given = parse_arguments()
    if find_assets() is None:
        print("no control plane on this machine: tests/cluster/prepare builds one", file=sys.stderr)
        return 6
    began = time.monotonic()
    if given.jobs == 1:
        results = play_share(given, 0)
    else:
        signal.signal(signal.SIGTERM, leave)
        with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as shares:
            results = list(chain.from_iterable(shares.map(partial(play_share, given), range(given.jobs))))
    wrong = [result.seed for result in results if not result.is_right]
    strikes = sum(len(result.strikes) for result in results)
    if not given.json:
        took = f"{len(results)} rounds, {strikes} strikes, {time.monotonic() - began:.0f} s"
        print(f"{took}: {'everything held' if not wrong else f'wrong: seeds {wrong}'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
