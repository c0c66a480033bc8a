"""chain: how long one step after another takes when nothing else is to be done."""

from __future__ import annotations

from typing import Any

from bench_cluster.bench_site import Site
from bench_cluster.figures import find_gaps, summarize_ms
from bench_cluster.manifests import build_chain

_STEPS = 50
_CHAINS = 5
_WITHIN = 300.0


async def measure_chain(site: Site, scale: float) -> dict[str, Any]:
    """Run chains of 50 steps, one chain after the other; a step lasts from one call of a tool to the next."""
    place = "chain"
    chains = max(1, round(_CHAINS * scale))
    await site.prepare(place)
    site.start_operator()
    site.start_worker([place], 4)
    await site.warm_up(place)
    first_calls = []
    for at in range(chains):
        began = await site.submit([(place, build_chain(f"chain-{at}", _STEPS))])
        await site.until_ended(at + 2, _WITHIN, 0.5)
        first_calls.append(min(moment for word, moment in site.read_clock() if word == f"chain-{at}/n0") - began)
    calls = site.read_clock()
    gaps = [
        gap
        for at in range(chains)
        for gap in find_gaps(moment for word, moment in calls if word.startswith(f"chain-{at}/"))
    ]
    return {
        "chains": chains,
        "steps": _STEPS,
        "step": summarize_ms(gaps),
        "apply_to_first_call": summarize_ms(first_calls),
        "steps_per_s": round(len(gaps) / sum(gaps), 1),
    }
