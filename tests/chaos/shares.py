"""Plays a share of the rounds on an API server of its own, one after the other, and tells of each."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

from chaos.api_server import ApiServer
from chaos.one_round import RoundResult, play_round
from chaos.plans import build_plan
from support.control_plane import ControlPlane, find_assets, install_custom_resources


def play_share(given: argparse.Namespace, share: int) -> list[RoundResult]:
    """Play every so many-th round on an API server of their own."""
    signal.signal(signal.SIGTERM, leave)
    assets = find_assets()
    assert assets is not None
    seeds = range(given.seed + share, given.seed + given.rounds, given.jobs)
    with ControlPlane(assets) as control_plane, tempfile.TemporaryDirectory(prefix="agentrun-chaos-") as temporary:
        install_custom_resources(control_plane.kubeconfig)
        return asyncio.run(_play(given, seeds, control_plane, given.keep or Path(temporary)))


def leave(number: int, _: FrameType | None) -> NoReturn:
    """End as SIGINT would: what was started is ended."""
    sys.exit(128 + number)


async def _play(
    given: argparse.Namespace, seeds: Iterable[int], control_plane: ControlPlane, folder: Path
) -> list[RoundResult]:
    """Play the rounds of these seeds one after the other and say how each ended."""
    results = []
    async with ApiServer(control_plane.kubeconfig) as api:
        for seed in seeds:
            place = folder / f"round-{seed}"
            place.mkdir(parents=True)
            result = await play_round(build_plan(seed, empty_ledger=given.empty_ledger), control_plane, api, place)
            results.append(result)
            _tell(result, as_json=given.json)
    return results


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
    # In one piece: others print at the same time.
    violations = "".join(f"  ! {violation}\n" for violation in result.violations)
    print(f"{violations}{result.report}\nAgain: make chaos SEED={result.seed}", flush=True)
