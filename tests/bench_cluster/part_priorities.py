"""priorities: what urgent calls wait while thousands of others stand in line, and that waiting raises a priority."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from datetime import timedelta
from typing import Any

from bench_cluster.bench_site import Site
from bench_cluster.figures import summarize_ms
from bench_cluster.manifests import build_fan_out, build_run, build_tool
from bench_cluster.part_tree import read_time
from bench_cluster.quick_ageing import FASTER
from bench_cluster.server_metrics import read_counts

_QUEUED = 10_000
_A_RUN = 1000
_SLOTS = 8
_NAP_MS = 100
_IN_LINE_WITHIN = 1800.0
_WINDOW_SECONDS = 60.0
_P0_EVERY, _P1_EVERY = 1.0, 0.5
_PATIENT = {"waits": {"queue": "6h", "dependencies": "6h"}, "timeout": "6h"}
_AGEING_P1, _AGEING_P3 = 300, 3
_AGEING_NAP_MS = 400


async def measure_priorities(site: Site, scale: float) -> dict[str, Any]:
    """Send P0 and P1 calls steadily past a long line of P3; two slots are reserved for P0."""
    place = "priorities"
    queued = max(100, round(_QUEUED * scale))
    await site.prepare(place, build_tool("nap"), build_tool("stamp"))
    site.start_operator({"AGENTRUN_OPERATOR_RESERVED_SLOTS": "P0=2"})
    params = {"word": "p3", "ms": _NAP_MS}
    sizes = [min(_A_RUN, queued - at) for at in range(0, queued, _A_RUN)]
    began = await site.submit(
        (place, build_fan_out(f"p3-{at}", "nap", params, size, priority="P3", **_PATIENT))
        for at, size in enumerate(sizes)
    )

    await _until_in_line(site, "P3", queued)
    filled = time.time()
    # What is only now written about the line is not to be measured with it.
    await asyncio.sleep(5)
    site.start_worker([place], _SLOTS)
    await site.until_called(1, 60)
    window_began = time.time()
    sent = await _send_steadily(site, place, _WINDOW_SECONDS * max(0.25, min(scale, 1.0)))
    window_ended = time.time()
    await asyncio.sleep(10)
    waits: dict[str, list[float]] = defaultdict(list)
    waiting: defaultdict[str, int] = defaultdict(int)
    async for node in site.api.list_pages("agentnodes", place):
        status = node.get("status", {})
        if node["spec"]["path"] == "all":
            continue
        if "startedAt" in status and "queuedSince" in status:
            waits[status["priority"]].append(read_time(status["startedAt"]) - read_time(status["queuedSince"]))
        else:
            waiting[status.get("priority", "none")] += 1
    p3_calls = sum(word == "p3" and window_began <= at < window_ended for word, at in site.read_clock())
    calls = dict(site.read_clock())
    end_to_end = {
        priority: summarize_ms(
            [calls[word] - at for word, at in sent.items() if word in calls and word[:2] == priority]
        )
        for priority in ("P0", "P1")
    }
    return {
        "queued": queued,
        "line_stood_after_s": round(filled - began, 1),
        "slots": _SLOTS,
        "reserved": "P0=2",
        "window_s": round(_WINDOW_SECONDS * max(0.25, min(scale, 1.0)), 1),
        "ready_to_start": {priority: summarize_ms(found) for priority, found in sorted(waits.items())},
        "apply_to_call": end_to_end,
        "sent": len(sent),
        "not_called": sum(word not in calls for word in sent),
        "p3_calls_per_s": round(p3_calls / (window_ended - window_began), 1),
        "still_waiting": dict(waiting),
        "operator_peak_rss_mb": round((await site.look()).use["operator"].peak_rss_bytes / 2**20),
    }


async def measure_ageing(site: Site) -> dict[str, Any]:
    """Have a few P3 calls wait behind more P1 calls than can be made meanwhile; they must rise and go between them."""
    place = "ageing"
    await site.prepare(place, build_tool("nap"), build_tool("stamp"))
    site.start_operator(module="bench_cluster.quick_ageing")
    low = {"word": "low", "ms": _AGEING_NAP_MS}
    began = await site.submit([(place, build_fan_out("low", "nap", low, _AGEING_P3, priority="P3", **_PATIENT))])
    await _until_in_line(site, "P3", _AGEING_P3)
    high = {"word": "high", "ms": _AGEING_NAP_MS}
    await site.submit([(place, build_fan_out("high", "nap", high, _AGEING_P1, priority="P1", **_PATIENT))])
    await _until_in_line(site, "P1", _AGEING_P1)
    site.start_worker([place], 2)
    await site.until_called(_AGEING_P1 + _AGEING_P3, 300)
    calls = site.read_clock()
    lows = sorted(at for word, at in calls if word == "low")
    rises_after = timedelta(minutes=8) / FASTER
    return {
        "faster_by": FASTER,
        "p3_counts_as_p1_after_s": rises_after.total_seconds(),
        "p3_called_after_s": [round(at - began, 1) for at in lows],
        "p1_calls_made_before": sum(word == "high" and at < lows[0] for word, at in calls),
        "p1_calls_made_after": sum(word == "high" and at > lows[-1] for word, at in calls),
        "first_p1_called_after_s": round(min(at for word, at in calls if word == "high") - began, 1),
        "last_p1_called_after_s": round(max(at for word, at in calls if word == "high") - began, 1),
    }


async def _until_in_line(site: Site, priority: str, nodes: int) -> None:
    async def holds() -> bool:
        depth = read_counts(await site.operator_metrics(), "agentrun_queue_depth")
        return sum(count for labels, count in depth.items() if ("priority", priority) in labels) >= nodes

    await site.until(f"{nodes} nodes of {priority} stand in line", holds, _IN_LINE_WITHIN, 1.0)


async def _send_steadily(site: Site, place: str, seconds: float) -> dict[str, float]:
    sent: dict[str, float] = {}

    async def stream(priority: str, every: float) -> None:
        until = time.monotonic() + seconds
        number = 0
        while time.monotonic() < until:
            word = f"{priority}-{number}"
            nodes = [{"name": "call", "tool": "stamp", "params": {"word": word}}]
            sent[word] = await site.submit([(place, build_run(word.lower(), nodes, priority=priority))])
            number += 1
            await asyncio.sleep(max(0.0, sent[word] + every - time.time()))

    await asyncio.gather(stream("P0", _P0_EVERY), stream("P1", _P1_EVERY))
    return sent
