"""Pure arithmetic of a measurement: percentiles, gaps, and the share of an API server's rate that was used."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share (0 to 1) of the values does not exceed (nearest rank).

    Raises ValueError when there are no values.
    """
    if not values:
        raise ValueError("no values")
    rank = max(1, math.ceil(share * len(values)))
    return sorted(values)[min(rank, len(values)) - 1]


def summarize_ms(seconds: Sequence[float]) -> dict[str, Any]:
    """Return count, mean, p50, p99 and maximum of durations, in milliseconds; the count alone when there are none."""
    if not seconds:
        return {"count": 0}
    return {
        "count": len(seconds),
        "mean_ms": round(sum(seconds) / len(seconds) * 1000, 1),
        "p50_ms": round(percentile(seconds, 0.5) * 1000, 1),
        "p99_ms": round(percentile(seconds, 0.99) * 1000, 1),
        "max_ms": round(max(seconds) * 1000, 1),
    }


def find_gaps(moments: Iterable[float]) -> list[float]:
    """Return the time between each moment and the next, in order of time."""
    return [later - earlier for earlier, later in itertools.pairwise(sorted(moments))]


def count_repetitions(words: Iterable[str]) -> int:
    """Return how many calls were made beyond the first of each word."""
    return sum(count - 1 for count in Counter(words).values())


def used_share(writes_per_s: Mapping[str, float], raw_per_s: Mapping[str, float], otherwise: str) -> float:
    """Return which share of an API server's time for writes was used: 1 is what raw writers alone reach.

    Both by kind of write; a kind that was not measured raw counts as ``otherwise``.
    """
    return sum(rate / raw_per_s.get(kind, raw_per_s[otherwise]) for kind, rate in writes_per_s.items())
