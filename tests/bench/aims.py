"""What is aimed at, and whether it was met. Pure."""

from __future__ import annotations

from typing import Any

from bench_cluster.aims import Aim

CHAIN_STEP_MS = 4.0
CHAIN_STEPS_PER_S = 242.0
PARALLEL_NODES_PER_S = 570.0
GROWTH = 1.5
_ODDITIES = ("calls_missing", "calls_repeated", "runs_not_succeeded")


def judge(parts: dict[str, Any]) -> list[Aim]:
    """Return the aims of the parts that were measured."""
    aims = []
    chain, local, events = (parts.get(name, {}) for name in ("chain", "local", "events"))
    if "step" in chain:
        step, rate = chain["step"]["p50_ms"], chain["steps_per_s"]
        aims.append(Aim("chain: step p50", f"under {CHAIN_STEP_MS} ms", f"{step} ms", step < CHAIN_STEP_MS))
        want = f"more than {CHAIN_STEPS_PER_S:.0f}"
        aims.append(Aim("chain: steps a second", want, str(rate), rate > CHAIN_STEPS_PER_S))
    for shape in ("one run, fan-outs", "many runs"):
        if shape in local:
            rate = local[shape]["nodes_per_s"]
            want = f"more than {PARALLEL_NODES_PER_S:.0f}"
            aims.append(Aim(f"local: nodes a second, {shape}", want, str(rate), rate > PARALLEL_NODES_PER_S))
    if "growth" in events:
        growth = events["growth"]
        want = f"at most {GROWTH} times the cheapest smaller run's"
        aims.append(Aim("events: cost in the largest run", want, f"{growth} times", growth <= GROWTH))
    for name, figures in parts.items():
        if name == "ledger" or "error" in figures:
            continue
        odd = count_oddities(figures)
        aims.append(Aim(f"{name}: calls made once, runs ended well", "all", f"{odd} not", odd == 0, is_promise=True))
    return aims


def count_oddities(figures: dict[str, Any]) -> int:
    """Return how many calls are missing or were repeated, and how many runs failed, wherever in a part it stands."""
    here = sum(int(figures.get(name, 0)) for name in _ODDITIES)
    return here + sum(count_oddities(inner) for inner in figures.values() if isinstance(inner, dict))
