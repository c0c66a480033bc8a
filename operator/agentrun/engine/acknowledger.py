"""Acknowledges reports beside the turns: those of many turns and runs in one step, so that no turn waits for it.

Told by the status writer, once the cluster has what a report said; one loop of the scheduler. What is not acknowledged
when the scheduler dies is read again by the next one, which finds it stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog

from agentrun.engine.observer import LedgerUnavailable, Observer, ReportsAcknowledged
from agentrun.ledger.port import LedgerUnavailableError, SchedulerLedger

_LINGER = timedelta(milliseconds=20)
"""How long a report waits for others to be acknowledged with."""
_RETRY_PAUSE = timedelta(milliseconds=500)

_log = structlog.get_logger("agentrun.engine")


class Acknowledger:
    """Holds the ids of reports that may go."""

    def __init__(self, ledger: SchedulerLedger, observer: Observer) -> None:
        self._ledger = ledger
        self._observer = observer
        self._due: dict[str, list[str]] = {}
        self._wanted = asyncio.Event()

    def note(self, namespace: str, ids: Sequence[str]) -> None:
        """Have these reports acknowledged soon."""
        if ids:
            self._due.setdefault(namespace, []).extend(ids)
            self._wanted.set()

    async def run(self) -> None:
        """Acknowledge until cancelled."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(_LINGER.total_seconds())
            try:
                await self.flush()
            except LedgerUnavailableError as error:
                self._observer.note(LedgerUnavailable())
                _log.warning("ledger_unavailable", cause=str(error))
                await asyncio.sleep(_RETRY_PAUSE.total_seconds())

    async def flush(self) -> None:
        """Acknowledge everything that is due now. Raises :class:`LedgerUnavailableError`; nothing is forgotten then."""
        self._wanted.clear()
        for namespace in list(self._due):
            ids = self._due.pop(namespace)
            try:
                await self._ledger.acknowledge_reports(namespace, ids)
            except BaseException:
                self.note(namespace, ids)
                raise
            self._observer.note(ReportsAcknowledged(len(ids)))
