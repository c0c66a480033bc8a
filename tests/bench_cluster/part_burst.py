"""burst: thousands of runs of one call each at once, in many namespaces, each in a session of its own."""

from __future__ import annotations

import time
from typing import Any

from bench_cluster.bench_site import TERMINAL, NotReachedError, Site, describe_between
from bench_cluster.figures import count_repetitions, summarize_ms
from bench_cluster.manifests import build_call, build_run, build_tool
from bench_cluster.part_tree import read_time

_NAMESPACES = 51
_RUNS = 5100
_SLOTS = 4
_WITHIN = 1800.0


async def measure_burst(site: Site, scale: float) -> dict[str, Any]:
    """Submit all runs as fast as the API server takes them, and see what becomes of each."""
    runs = max(_NAMESPACES, round(_RUNS * scale))
    places = [f"burst-{at}" for at in range(_NAMESPACES)]
    for place in places:
        await site.prepare(place, build_tool("stamp", "Once"))
    site.start_operator()
    site.start_worker(places, _SLOTS)
    await site.warm_up(places[0])
    before = await site.look()
    names = [f"burst-{at}" for at in range(runs)]
    submitted = [
        (places[at % _NAMESPACES], build_run(name, [build_call(name, "call")], session=f"session-{at}"))
        for at, name in enumerate(names)
    ]
    began = await site.submit(submitted)
    created = time.time()
    late = ""
    try:
        await site.until_ended(runs + 1, _WITHIN * max(scale, 0.2))
    except NotReachedError as error:
        late = str(error)[:2000]
    after = await site.look()
    statuses = {
        run["metadata"]["name"]: run.get("status", {})
        async for run in site.api.list_pages("agentruns")
        if run["metadata"]["name"] in set(names)
    }
    terminal = {name: status for name, status in statuses.items() if status.get("phase") in TERMINAL}
    calls = [(word, at) for word, at in site.read_clock() if word.startswith("burst-")]
    called = {word for word, _ in calls}
    ends = [read_time(status["finishedAt"]) - began for status in terminal.values()]
    seconds = max(ends, default=time.time() - began)
    return {
        "runs": runs,
        "namespaces": _NAMESPACES,
        "submitted_within_s": round(created - began, 2),
        "last_ended_after_s": round(seconds, 2),
        "runs_per_s": round(len(terminal) / seconds, 1),
        "terminal_share": round(len(terminal) / runs, 5),
        "succeeded": sum(status["phase"] == "Succeeded" for status in terminal.values()),
        "lost": sum(name not in terminal or f"{name}/call" not in called for name in names),
        "duplicates": count_repetitions(word for word, _ in calls),
        "ended_after": summarize_ms(ends),
        "not_reached": late,
        **describe_between(before, after, runs, seconds),
    }
