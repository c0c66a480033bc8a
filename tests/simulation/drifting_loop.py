"""A loop on virtual time in which single processes have a clock of their own, ahead of the others' or behind them.

Made by ``simulation.one_history``. A process is the tasks that were started in its context; whatever they read from the
loop, and whenever they want to be woken, is by that process's clock. Everybody else, the ledger's server and the
cluster included, lives by the true one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from typing import TypeVarTuple, Unpack

from agentrun.local.virtual_time import START, VirtualClock, VirtualTimeLoop

_LONGEST_MOMENT = 100_000
"""Turns of the loop in which no time passes: far more than any moment of a history has that ends."""
_Ts = TypeVarTuple("_Ts")


class Drift:
    """How far the clock of a process is ahead, in seconds; negative: behind."""

    def __init__(self) -> None:
        self.ahead = 0.0


_TRUE = Drift()
_DRIFT: ContextVar[Drift] = ContextVar("drift", default=_TRUE)


def context_of(drift: Drift) -> Context:
    """Return a context whose tasks live by this drift."""
    context = copy_context()
    context.run(_DRIFT.set, drift)
    return context


class DriftingLoop(VirtualTimeLoop):
    """Virtual time, as each process sees it."""

    _ready: deque[asyncio.Handle]
    """What asyncio calls back next."""

    def __init__(self) -> None:
        super().__init__(longest_moment=_LONGEST_MOMENT)

    def time(self) -> float:
        """Return the time by the clock of whoever asks."""
        return self._virtual_seconds + _DRIFT.get().ahead

    def true_time(self) -> float:
        """Return the time by the clock that is right."""
        return self._virtual_seconds

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call back next. Half of what a history costs is its loop: nothing is checked that asyncio checks in debug mode."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a moment of the asker's clock."""
        return super().call_at(when - _DRIFT.get().ahead, callback, *args, context=context)


class TrueClock(VirtualClock):
    """The clock of the ledger's server and of the API server."""

    def __init__(self, loop: DriftingLoop) -> None:
        super().__init__(loop)
        self._true_time = loop.true_time
        self._asked_at, self._answer = 0.0, START

    def now(self) -> datetime:
        """Return the moment."""
        seconds = self._true_time()
        if seconds != self._asked_at:
            self._asked_at, self._answer = seconds, START + timedelta(seconds=seconds)
        return self._answer

    def now_ms(self) -> int:
        """Return it as Unix milliseconds."""
        return int(START.timestamp() * 1000) + int(self._true_time() * 1000)
