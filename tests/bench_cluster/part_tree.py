"""tree: many runs of many nodes at once, and what each node costs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bench_cluster.bench_site import Site, describe_between
from bench_cluster.figures import used_share
from bench_cluster.manifests import build_tree
from bench_cluster.part_raw import UPDATE

_RUNS = 100
_NODES = 50
_SLOTS = 64
_WITHIN = 1800.0


async def measure_tree(site: Site, scale: float, raw_per_s: dict[str, float]) -> dict[str, Any]:
    """Run trees of 50 nodes at once; ``raw_per_s`` are the rates of the same API server."""
    place = "tree"
    runs = max(2, round(_RUNS * scale))
    await site.prepare(place)
    site.start_operator()
    site.start_worker([place], _SLOTS)
    await site.warm_up(place)
    before = await site.look()
    began = await site.submit((place, build_tree(f"tree-{at}", _NODES)) for at in range(runs))
    await site.until_ended(runs + 1, _WITHIN)
    after = await site.look()
    found = [run for run in await site.api.list_all("agentruns", place) if run["metadata"]["name"] != "warm-up"]
    ended = max(read_time(run["status"]["finishedAt"]) for run in found if "finishedAt" in run.get("status", {}))
    seconds, nodes = ended - began, runs * _NODES
    calls = [word for word, at in site.read_clock() if at >= began]
    used = describe_between(before, after, nodes, seconds)
    operators = used["api_writes"]["operator"]
    share = used_share({kind: count / seconds for kind, count in operators.items()}, raw_per_s, UPDATE)
    return {
        "runs": runs,
        "nodes": nodes,
        "seconds": round(seconds, 2),
        "nodes_per_s": round(nodes / seconds, 1),
        "succeeded": sum(run["status"].get("phase") == "Succeeded" for run in found),
        "calls_missing": nodes - len(set(calls)),
        "calls_repeated": len(calls) - len(set(calls)),
        "share_of_raw": round(share, 3),
        "operator_cpu_ms_per_node": round(used["cpu_seconds"]["operator"] / nodes * 1000, 2),
        "worker_cpu_ms_per_node": round(used["cpu_seconds"]["worker"] / nodes * 1000, 2),
        **used,
    }


def read_time(text: str) -> float:
    """Return a status's time as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
