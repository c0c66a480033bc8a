"""One heap of times at which something is to be looked at again."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime

from agentrun.engine.run_key import RunKey

_NEAR_SECONDS = 60.0
_GLANCE_SECONDS = 1.0
_LONGEST_GLANCE_SECONDS = 300.0


def glance_within(seconds: float) -> float:
    """Return after how many seconds to look at the clock again when the next time is so many away.

    A clock may be set right while one sleeps by it: what is due then must not wait for as long as it was wrong.
    """
    if seconds <= _NEAR_SECONDS:
        return min(seconds, _GLANCE_SECONDS)
    return min(seconds / 2, _LONGEST_GLANCE_SECONDS)


class Timers:
    """Wakes (run, path) at a time; of several times for one pair the earliest counts. An empty path is the run."""

    def __init__(self, on_earlier: Callable[[], None] = lambda: None) -> None:
        """``on_earlier`` is called when the next time of all has come nearer."""
        self._heap: list[tuple[datetime, RunKey, str]] = []
        self._due: dict[RunKey, dict[str, datetime]] = defaultdict(dict)
        self._on_earlier = on_earlier

    def set(self, run: RunKey, path: str, at: datetime) -> None:
        """Wake the pair at ``at``, unless it is to be woken earlier anyway."""
        times = self._due[run]
        known = times.get(path)
        if known is not None and known <= at:
            return
        times[path] = at
        first = not self._heap or at < self._heap[0][0]
        heapq.heappush(self._heap, (at, run, path))
        if first:
            self._on_earlier()

    def next(self) -> datetime | None:
        """Return the next time, or None."""
        while self._heap and self._is_stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: datetime) -> list[tuple[RunKey, str]]:
        """Return what is due, and forget it."""
        due: list[tuple[RunKey, str]] = []
        while self._heap and (self._is_stale(self._heap[0]) or self._heap[0][0] <= now):
            entry = heapq.heappop(self._heap)
            if self._is_stale(entry):
                continue
            _, run, path = entry
            del self._due[run][path]
            due.append((run, path))
        return due

    def forget(self, run: RunKey) -> None:
        """Drop every time of a run."""
        self._due.pop(run, None)

    def _is_stale(self, entry: tuple[datetime, RunKey, str]) -> bool:
        at, run, path = entry
        times = self._due.get(run)
        return times is None or times.get(path) != at
