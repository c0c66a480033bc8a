"""Threads that have done one call and wait for the next: starting a thread costs more than a trivial call in it.

Used by the Python executor. A thread that a call does not give back is simply never used again. Knows nothing of calls.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable

_IDLE_SECONDS = 10.0
"""A thread that nobody needed for so long ends."""


class SpareThreads:
    """Runs jobs in threads, any number at once; idle ones are used again."""

    def __init__(self) -> None:
        self._idle: list[_Spare] = []

    def run(self, job: Callable[[], None]) -> None:
        """Run the job in a thread, in a context of its own. Called from one thread alone."""
        try:
            spare = self._idle.pop()
        except IndexError:
            spare = _Spare(self._idle)
        spare.jobs.put(job)


class _Spare:
    """One thread."""

    def __init__(self, home: list[_Spare]) -> None:
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._home = home
        threading.Thread(target=self._work, name="tool", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                try:
                    self._home.remove(self)
                except ValueError:
                    # It was taken just now: its job is on the way.
                    continue
                return
            # What a call leaves in context variables is not the next one's.
            contextvars.Context().run(job)
            del job
            self._home.append(self)
