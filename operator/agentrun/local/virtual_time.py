"""An event loop whose clock jumps: when nothing is ready it is at once as late as the next timer says.

A run of hours takes milliseconds, and the same inputs give the same order of events. Nothing in such a loop may wait
for a real process, thread or socket.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

_Result = TypeVar("_Result")

_RESOLUTION = 1e-9
_LOOKS_BETWEEN = 64
"""Turns of the loop from one question to the system to the next."""
START = datetime(2026, 1, 1, tzinfo=UTC)
"""When virtual time begins."""


class NothingLeftToWaitForError(Exception):
    """Everything waits, and nothing will ever happen: a deadlock in real life."""


class EndlessMomentError(Exception):
    """Something goes on and on, and no time passes: in real life it would take a processor and everything behind it."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on virtual time."""

    def __init__(self, longest_moment: int | None = None) -> None:
        """``longest_moment``: turns of the loop in which no time passes, after which it is taken for endless."""
        self._virtual_seconds = 0.0
        self.longest_moment = longest_moment
        super().__init__(_JumpingSelector(self))
        # A timer counts as due this early. It must be far below the clock's microseconds: somebody who waits for the
        # next of those would be woken without time having passed, for ever.
        self._clock_resolution = _RESOLUTION

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._virtual_seconds

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self._virtual_seconds += seconds


class VirtualClock:
    """Wall-clock time on such a loop."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        """Return the virtual moment."""
        return START + timedelta(seconds=self._loop.time())

    def now_ms(self) -> int:
        """Return it as Unix milliseconds."""
        return int(START.timestamp() * 1000) + int(self._loop.time() * 1000)


def run_on_virtual_time(main: Coroutine[Any, Any, _Result], loop: VirtualTimeLoop) -> _Result:
    """Run a coroutine on the loop and close it. Raises what the coroutine raises."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._looks = 0
        self._turns_of_moment = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; else let time pass until the next timer."""
        # The system is asked now and then alone: all that may ever come from it is a signal.
        self._looks += 1
        ready = super().select(0) if timeout is None or self._looks % _LOOKS_BETWEEN == 0 else []
        if ready:
            return ready
        if timeout is None:
            raise NothingLeftToWaitForError("every task waits for something that no timer and no task will bring")
        self._turns_of_moment += 1
        if timeout > 0:
            self._turns_of_moment = 0
            self._loop.jump(max(timeout, 10 * _RESOLUTION))
        longest = self._loop.longest_moment
        if longest is not None and self._turns_of_moment > longest:
            self._turns_of_moment = 0
            raise EndlessMomentError(f"{longest} turns of the loop, and it is {self._loop.time():g} s all the time")
        return []
