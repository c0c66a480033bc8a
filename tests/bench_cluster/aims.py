"""What is aimed at, and whether it was met. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SHARE_OF_RAW = 0.4
CHAIN_STEP_MS = 40.0


@dataclass(frozen=True, slots=True)
class Aim:
    """One aim, as it was measured."""

    name: str
    want: str
    got: str
    is_met: bool
    is_promise: bool = False
    """A promise of the product that no machine is too slow for."""


def judge(parts: dict[str, Any]) -> list[Aim]:
    """Return the aims of the parts that were measured."""
    aims = []
    tree, chain, burst = (parts.get(name, {}) for name in ("tree", "chain", "burst"))
    if "share_of_raw" in tree:
        share = tree["share_of_raw"]
        want = f"at least {SHARE_OF_RAW:.0%} of the raw write rate"
        aims.append(Aim("tree: writes", want, f"{share:.0%}", share >= SHARE_OF_RAW))
        odd = tree["calls_missing"] + tree["calls_repeated"]
        aims.append(Aim("tree: calls", "each once", f"{odd} not", odd == 0, is_promise=True))
    if "step" in chain:
        step = chain["step"]["p50_ms"]
        aims.append(Aim("chain: step p50", f"under {CHAIN_STEP_MS:.0f} ms", f"{step} ms", step < CHAIN_STEP_MS))
    if "lost" in burst:
        aims.append(Aim("burst: lost runs", "0", str(burst["lost"]), burst["lost"] == 0, is_promise=True))
        again = burst["duplicates"]
        aims.append(Aim("burst: calls made twice", "0", str(again), again == 0, is_promise=True))
    return aims
