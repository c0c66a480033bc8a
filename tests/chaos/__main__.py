"""The command line: ``python -m chaos``, in ``make chaos``."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

from chaos.api_server import ApiServer
from chaos.one_round import RoundResult, play_round
from chaos.plans import build_plan
from support.control_plane import ControlPlane, find_assets

_REPOSITORY = Path(__file__).parents[2]
_EXAMPLES = """examples:
  make chaos                      ten rounds, each of a new seed
  make chaos ROUNDS=200           more of them
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
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(1, 1_000_000)
    return given


async def play(given: argparse.Namespace, control_plane: ControlPlane, folder: Path) -> list[RoundResult]:
    """Play the rounds one after the other and say how each ended."""
    results = []
    async with ApiServer(control_plane.kubeconfig) as api:
        for seed in range(given.seed, given.seed + given.rounds):
            place = folder / f"round-{seed}"
            place.mkdir(parents=True)
            result = await play_round(build_plan(seed, empty_ledger=given.empty_ledger), control_plane, api, place)
            results.append(result)
            _tell(result, as_json=given.json)
    return results


def main() -> int:
    """Return the exit code."""
    given = parse_arguments()
    # Like SIGINT: what was started is ended.
    signal.signal(signal.SIGTERM, _leave)
    assets = find_assets()
    if assets is None:
        print("no control plane on this machine: tests/cluster/prepare builds one", file=sys.stderr)
        return 6
    began = time.monotonic()
    with ControlPlane(assets) as control_plane, tempfile.TemporaryDirectory(prefix="agentrun-chaos-") as temporary:
        _install_kinds(control_plane)
        results = asyncio.run(play(given, control_plane, given.keep or Path(temporary)))
    wrong = [result.seed for result in results if not result.is_right]
    strikes = sum(len(result.strikes) for result in results)
    if not given.json:
        took = f"{len(results)} rounds, {strikes} strikes, {time.monotonic() - began:.0f} s"
        print(f"{took}: {'everything held' if not wrong else f'wrong: seeds {wrong}'}", flush=True)
    return 1 if wrong else 0


def _leave(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _install_kinds(control_plane: ControlPlane) -> None:
    kubectl = ["kubectl", "--kubeconfig", str(control_plane.kubeconfig)]
    apply = [*kubectl, "apply", "--validate=false", "-f", str(_REPOSITORY / "crds")]
    subprocess.run(apply, check=True, stdout=subprocess.DEVNULL)
    wait = [*kubectl, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]
    subprocess.run(wait, check=True, stdout=subprocess.DEVNULL)


def _tell(result: RoundResult, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(result)), flush=True)
        return
    outcome = " ".join(f"{name}={phase}" for name, phase in result.outcome.items())
    verdict = "ok" if result.is_right else "WRONG"
    strikes = "; ".join(result.strikes)
    print(f"seed {result.seed}  {verdict}  {result.seconds:.1f} s  [{strikes}]  {outcome}", flush=True)
    if result.is_right:
        return
    for violation in result.violations:
        print(f"  ! {violation}", flush=True)
    print(f"{result.report}\nAgain: make chaos SEED={result.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
