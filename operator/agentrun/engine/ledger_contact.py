"""Whether the ledger answers the scheduler: since when it does not, when to ask again, and what people are told of it.

Every loop of the scheduler that asks the ledger tells the one contact how it went. The contact tells the log when the
ledger goes away, at growing distances while it stays away, and when it is back; it asks nothing itself.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from agentrun.contract.defaults import HEARTBEAT_INTERVAL
from agentrun.engine.clock import Clock
from agentrun.engine.observer import LedgerUnavailable, Observer
from agentrun.ledger.port import LedgerUnavailableError

_FIRST_PAUSE = timedelta(milliseconds=500)
_LONGEST_PAUSE = timedelta(seconds=5)
_TELL_AGAIN_FIRST = timedelta(seconds=10)
_TELL_AGAIN_AT_MOST = timedelta(minutes=5)
_SAME_OUTAGE = timedelta(minutes=1)
"""Away again this soon after it was back is told of as if it had stayed away: at growing distances."""
_STANDS_STILL = (
    "nothing is sent, no report is read, no run goes on or ends; calls under way go on, their reports are kept, and "
    "nothing needs to be started anew"
)
_REMEDIES = tuple(
    (re.compile(words, re.IGNORECASE), remedy)
    for words, remedy in (
        (r"read.?only|-> replica", "it is a read-only replica: name the primary, or its Sentinels"),
        (r"\boom\b|outofmemory", "it is out of memory: raise its maxmemory"),
        (r"\bmisconf\b", "it cannot write to its disk: look at its log and make room"),
        (r"\bnoauth\b|wrongpass|authentication", "set the right user and password in the URL of the ledger"),
        (r"\bnoperm\b|nopermission", "its ACL forbids the command: give the operator's user that right"),
        (r"\bloading\b|busyloading", "it is loading its data: wait"),
    )
)
"""What to do, by the words with which Redis, Valkey and their client say what is wrong."""

_log = structlog.get_logger("agentrun.engine")


class Step(StrEnum):
    """What the scheduler asks the ledger for, as far as one may work without the other."""

    LOOK = "look"
    """Reading: a glance at the whole, which is repeated every second; and whatever a turn asks for."""
    REPORTS = "reports"
    ACKNOWLEDGEMENTS = "acknowledgements"
    LEAD = "lead"


class LedgerContact:
    """What is known of the ledger's answers, over the scheduler's whole life."""

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self._clock = clock
        self._observer = observer
        self._failures: dict[Step, int] = {}
        self._answered = asyncio.Event()
        self._told_at: datetime | None = None
        self._tell_again = _TELL_AGAIN_FIRST
        self._remedies_told: set[str] = set()
        self._owes_back = False
        self._silent_since: datetime | None = None
        self._silent_until: datetime | None = None
        self._away_since: datetime | None = None
        self._back_at: datetime | None = None

    @property
    def is_away(self) -> bool:
        """Tell whether some step has failed and not succeeded since."""
        return bool(self._failures)

    def failed(self, step: Step, error: LedgerUnavailableError) -> None:
        """Take down that the ledger did not answer a step."""
        now = self._clock.now()
        self._observer.note(LedgerUnavailable())
        self._away_since = self._away_since or now
        if self._silent_since is None:
            self._silent_since = now
            if self._silent_until is None or now - self._silent_until > _SAME_OUTAGE:
                self._told_at = None
        self._failures[step] = self._failures.get(step, 0) + 1
        self._answered.clear()
        self._tell(str(error), now)

    def answered(self, step: Step) -> None:
        """Take down that the ledger has answered a step just now."""
        if step is Step.LOOK:
            now = self._clock.now()
            self._back_at = self.answers_since(now)
            self._away_since = None
        if not self._failures:
            return
        self._failures.pop(step, None)
        # Whoever waits to ask again need not wait any longer.
        self._answered.set()
        if not self._failures:
            self._tell_back()

    def rebuilt(self) -> None:
        """Take down that it answers again after it had lost its data: nothing before counts."""
        self._back_at = self._clock.now()

    def answers_since(self, now: datetime) -> datetime | None:
        """Return since when the ledger has answered without a break; what a heartbeat outlasts is none.

        None: nothing is known of a break.
        """
        away = self._away_since
        return now if away is not None and now - away >= HEARTBEAT_INTERVAL else self._back_at

    async def pause(self, step: Step) -> None:
        """Wait before a failed step is taken again: longer each time, but only until something is answered."""
        failures = self._failures.get(step, 1)
        pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
        # Not at once even so: what answers may not be what failed.
        await asyncio.sleep(_FIRST_PAUSE.total_seconds())
        try:
            async with asyncio.timeout((pause - _FIRST_PAUSE).total_seconds()):
                await self._answered.wait()
        except TimeoutError:
            return

    def _tell(self, cause: str, now: datetime) -> None:
        since = self._silent_since or now
        remedy = find_remedy(cause)
        if self._told_at is None:
            self._tell_again = _TELL_AGAIN_FIRST
            self._remedies_told.clear()
        elif remedy not in self._remedies_told:
            # What is to be done is another thing now: that is not kept back.
            pass
        elif now - self._told_at < self._tell_again:
            return
        else:
            self._tell_again = min(self._tell_again * 2, _TELL_AGAIN_AT_MOST)
        self._told_at, self._owes_back = now, True
        self._remedies_told.add(remedy)
        _log.warning(
            "ledger_unavailable",
            cause=cause,
            away_seconds=round((now - since).total_seconds()),
            stands_still=_STANDS_STILL,
            remedy=remedy,
        )

    def _tell_back(self) -> None:
        now = self._clock.now()
        since = self._silent_since or now
        self._silent_since, self._silent_until = None, now
        if self._owes_back:
            self._owes_back = False
            _log.warning("ledger_back", away_seconds=round((now - since).total_seconds(), 1))


def find_remedy(cause: str) -> str:
    """Return what to do about a ledger that answers so, or not at all."""
    for words, remedy in _REMEDIES:
        if words.search(cause):
            return remedy
    return "see that the server runs and can be reached from here"
