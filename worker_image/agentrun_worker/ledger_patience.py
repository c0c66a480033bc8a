"""Waiting for a ledger that does not answer: repeat the step, with growing pauses and jitter. One retry layer only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import structlog

from agentrun.ledger.port import LedgerUnavailableError
from agentrun_worker.observer import LedgerAnswered, LedgerUnavailable, Unobserved, WorkerObserver

_Answer = TypeVar("_Answer")
_MOST_DOUBLINGS = 10
_LONGEST = 25.0
_log = structlog.get_logger("agentrun.worker")


class LedgerPatience:
    """Repeats a step until the ledger has answered; every step of the ledger recognises its own repetition."""

    def __init__(
        self, first_pause: timedelta, new_token: Callable[[], str], observer: WorkerObserver | None = None
    ) -> None:
        """``new_token`` gives random hexadecimal text: the jitter is drawn from it, so that a test owns the chance."""
        self._first_pause = first_pause
        self._new_token = new_token
        self._observer = observer or Unobserved()

    async def insist(
        self, step: Callable[[], Awaitable[_Answer]], *, within: timedelta | None = None, **facts: object
    ) -> _Answer:
        """Return the step's answer. Raises :class:`LedgerUnavailableError` when none came ``within`` that time."""
        loop = asyncio.get_running_loop()
        ends = None if within is None else loop.time() + within.total_seconds()
        failures = 0
        while True:
            try:
                answer = await step()
            except LedgerUnavailableError as error:
                self._observer.note(LedgerUnavailable())
                failures += 1
                pause = self.pause(failures)
                if ends is not None and loop.time() + pause >= ends:
                    raise
                _log.warning("ledger_unavailable", cause=str(error), failures=failures, **facts)
            else:
                self._observer.note(LedgerAnswered())
                return answer
            await asyncio.sleep(pause)

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row: between half and one and a half of the step."""
        first = self._first_pause.total_seconds()
        longest: float = first * min(2.0 ** min(failures - 1, _MOST_DOUBLINGS), _LONGEST)
        return longest * (0.5 + int(self._new_token()[:4], 16) / 0x10000)
