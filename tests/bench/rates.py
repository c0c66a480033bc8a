"""Times many equal steps, one after another or so many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from bench_cluster.figures import percentile

Item = TypeVar("Item")


async def time_all(items: Sequence[Item], width: int, act: Callable[[Item], Awaitable[object]]) -> dict[str, Any]:
    """Do every step, ``width`` at once, and return the rate and how long a step took."""
    left = iter(items)
    seconds: list[float] = []

    async def work() -> None:
        for item in left:
            began = time.perf_counter()
            await act(item)
            seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(width)))
    return describe_rate(seconds, time.perf_counter() - began)


def describe_rate(seconds: Sequence[float], took: float) -> dict[str, Any]:
    """Return steps a second and p50 and p99 of a step in milliseconds; ``took``: the seconds of all together."""
    return {
        "per_s": round(len(seconds) / took),
        "p50_ms": round(percentile(seconds, 0.5) * 1000, 3),
        "p99_ms": round(percentile(seconds, 0.99) * 1000, 3),
    }
