"""The command line: ``python -m simulation``, in ``make simulate``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from pathlib import Path

from simulation.decision_coverage import DecisionCoverage, prepare_process
from simulation.one_history import live_history, live_seed, silence
from simulation.plans import draw_history
from simulation.sabotages import SABOTAGES, Sabotage, look_for
from simulation.witness import Findings

_EXAMPLES = """examples:
  make simulate                      2,000 histories from seed 1
  make simulate SEEDS=20000          as many
  make simulate SEED=4711            one of them, with its whole trace
  make simulate SEEDS=5000 ARGS="--first 100000 --json found.json"
  make simulate SEEDS=1000 ARGS=--coverage   which branches of the decisions the histories took, half as fast
  make simulate ARGS="--sabotage list"                     guards that can be taken away, and which invariant must notice
  make simulate ARGS="--sabotage commit-without-token"     look for the first seed that notices; --sabotage all: each alone

exit codes: 0 every promise held (with --sabotage: each was noticed), 1 one was broken (the seed is printed; with
--sabotage: one went unnoticed), 2 the arguments cannot be used
"""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="simulation",
        description="Live hostile histories of the whole system on virtual time, each drawn from its seed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=2000, help="how many histories; default: 2000")
    parser.add_argument("--first", type=int, default=1, help="the first seed; default: 1")
    parser.add_argument("--seed", type=int, default=None, help="live this one alone and print its trace")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one for each core")
    parser.add_argument("--coverage", action="store_true", help="tell which branches of the decisions were taken")
    parser.add_argument("--json", type=Path, default=None, help="file that the findings are written to")
    parser.add_argument("--sabotage", metavar="NAME", default=None, help="take a guard away; list, all, or a name")
    given = parser.parse_args(arguments)
    if given.sabotage is not None and given.sabotage not in (*SABOTAGES, "list", "all"):
        parser.error(f"--sabotage: there is no {given.sabotage}; --sabotage list names them")
    if given.sabotage == "all" and given.seed is not None:
        parser.error("--seed tells one history: name one sabotage")
    if given.seeds < 1 or given.jobs < 1 or given.first < 0:
        parser.error("--seeds and --jobs must be at least 1, --first at least 0")
    return given


def main() -> int:
    """Return the exit code."""
    given = parse_arguments()
    silence()
    if given.sabotage == "list":
        print("\n".join(f"{one.name:28} {one.promise}\n    {one.says}" for one in SABOTAGES.values()))
        return 0
    if given.sabotage is not None:
        chosen = SABOTAGES.values() if given.sabotage == "all" else [SABOTAGES[given.sabotage]]
        return _search(list(chosen), given)
    if given.seed is not None:
        return _replay(given.seed)
    began = time.monotonic()
    phases: Counter[str] = Counter()
    mishaps: Counter[str] = Counter()
    transitions: Counter[str] = Counter()
    occurred: Counter[tuple[str, str]] = Counter()
    broken: list[Findings] = []
    done = effects = 0
    coverage = DecisionCoverage() if given.coverage else None
    folder = coverage.folder if coverage else ""
    with multiprocessing.get_context("spawn").Pool(given.jobs, prepare_process, (folder,)) as pool:
        for found in pool.imap_unordered(live_seed, range(given.first, given.first + given.seeds), chunksize=8):
            done += 1
            effects += found.effects
            phases += found.phases
            mishaps += found.mishaps
            transitions += found.transitions
            occurred += found.occurred
            if found.promise:
                broken.append(found)
                print(f"seed {found.seed} BROKEN {found.said[:400]}", flush=True)
            if done % 1000 == 0:
                print(f"{done} histories, {done / (time.monotonic() - began):.1f} a second", flush=True)
        pool.close()
        pool.join()
    seconds = time.monotonic() - began
    print(f"\n{done} histories in {seconds:.0f} s ({done / seconds:.1f} a second), {effects} effects outside")
    for name, counts in (("runs", phases), ("mishaps", mishaps), ("transitions", transitions)):
        print(f"{name}: " + ", ".join(f"{what} {count}" for what, count in counts.most_common()))
    for group in sorted({name for name, _ in occurred}):
        counts = Counter({what: count for (name, what), count in occurred.items() if name == group})
        print(f"{group}: " + ", ".join(f"{what} {count}" for what, count in counts.most_common()))
    if coverage is not None:
        print(coverage.report())
    print(
        f"broken promises: {len(broken)}"
        + "".join(f"\n  make simulate SEED={one.seed}  # {one.promise}" for one in broken)
    )
    if given.json is not None:
        given.json.write_text(
            json.dumps(
                {
                    "histories": done,
                    "seconds": round(seconds, 1),
                    "effects": effects,
                    "runs": phases,
                    "mishaps": mishaps,
                    "transitions": transitions,
                    "occurred": {f"{name}: {what}": count for (name, what), count in sorted(occurred.items())},
                    "broken": [{"seed": one.seed, "promise": one.promise, "said": one.said} for one in broken],
                },
                indent=2,
            )
        )
    return 1 if broken else 0


def _search(chosen: list[Sabotage], given: argparse.Namespace) -> int:
    """Take guards away, each alone, and print which seed noticed after how long."""
    if given.seed is not None:
        (sabotage,) = chosen
        with sabotage.committed():
            _replay(given.seed)
        return 0
    print(f"{'sabotage':28} {'noticed by':48} {'seed':>5} {'seconds':>8}")
    missed = 0
    for sabotage in chosen:
        catch = look_for(sabotage, most=given.seeds)
        missed += catch.findings is None
        seed = catch.findings.seed if catch.findings else "none"
        others = "".join(f"; {count} broke {promise} first" for promise, count in catch.others.items())
        print(f"{sabotage.name:28} {sabotage.promise:48} {seed:>5} {catch.seconds:8.1f}{others}", flush=True)
    return 1 if missed else 0


def _replay(seed: int) -> int:
    history = draw_history(seed)
    for mishap in history.mishaps:
        print(f"planned: {mishap.kind} at {mishap.at:g} s for {mishap.lasts:g} s, step {mishap.step or '-'}")
    found = live_history(history, keeps_trace=True)
    print("\n".join(found.trace))
    print(f"broken: {found.said}" if found.promise else "every promise held")
    return 1 if found.promise else 0


if __name__ == "__main__":
    sys.exit(main())
