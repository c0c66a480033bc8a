"""Whether a process's own loops make progress: the answer to a liveness probe, and nothing else.

What Redis or the API server do has no say in it: an outage of theirs must restart nothing. The event loop beats, and
whoever answers the probe looks from another thread, so that a loop that hangs is told from one that is slow to answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

BEAT = timedelta(seconds=1)
STALE = timedelta(seconds=30)
"""A loop that has made no progress for this long hangs: no step of ours may hold it for a second."""


class Liveness:
    """The beat of one event loop, and the tasks that must not end."""

    def __init__(self, stale: timedelta = STALE, now: Callable[[], float] = time.monotonic) -> None:
        """``now`` gives seconds on a clock that never goes back."""
        self._stale = stale.total_seconds()
        self._now = now
        self._beat_at = now()
        self._expected: tuple[asyncio.Task[Any], ...] = ()
        self._ask: Callable[[], str] | None = None

    async def beat(self) -> None:
        """Beat until cancelled."""
        while True:
            self._beat_at = self._now()
            await asyncio.sleep(BEAT.total_seconds())

    def expect(self, *tasks: asyncio.Task[Any], ask: Callable[[], str] | None = None) -> None:
        """Name the tasks that are to run for as long as the process does; they take the earlier ones' place.

        ``ask`` gives the name of a loop inside of them that has ended, or an empty text; any thread may call it.
        """
        self._expected, self._ask = tasks, ask

    def age(self) -> float:
        """Return the seconds since the loop last made progress."""
        return max(0.0, self._now() - self._beat_at)

    def find_fault(self) -> str:
        """Return what makes no progress any more; empty while all is well. May be called from any thread."""
        age = self.age()
        if age > self._stale:
            return f"the event loop has made no progress for {age:.0f}s"
        ended = [task.get_name() for task in self._expected if task.done()]
        if self._ask is not None and (name := self._ask()):
            ended.append(name)
        return f"ended although nobody asked for it: {', '.join(ended)}" if ended else ""
