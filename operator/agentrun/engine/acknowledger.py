"""Acknowledges reports beside the turns: those of many turns and runs in one step, so that no turn waits for it.

Told by the status writer, once the cluster has what a report said; one loop of the scheduler. What is not acknowledged
when the scheduler dies is read again by the next one, which finds it stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from agentrun.engine.ledger_contact import LedgerContact, Step
from agentrun.engine.observer import Observer, ReportsAcknowledged
from agentrun.ledger.port import LedgerUnavailableError, SchedulerLedger

_LINGER = timedelta(milliseconds=20)
"""How long a report waits for others to be acknowledged with."""


class Acknowledger:
    """Holds the ids of reports that may go."""

    def __init__(self, ledger: SchedulerLedger, observer: Observer, contact: LedgerContact) -> None:
        self._ledger = ledger
        self._contact = contact
        self._observer = observer
        self._due: dict[str, list[str]] = {}
        self._wanted = asyncio.Event()

    @property
    def due_total(self) -> int:
        """How many are still to be acknowledged."""
        return sum(map(len, self._due.values()))

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
                self._contact.failed(Step.ACKNOWLEDGEMENTS, error)
                await self._contact.pause(Step.ACKNOWLEDGEMENTS)
            else:
                self._contact.answered(Step.ACKNOWLEDGEMENTS)

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
