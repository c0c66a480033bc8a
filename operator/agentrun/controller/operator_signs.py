"""The operator's vital signs: which state it is ready in, and the rounds that keep its numbers fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Protocol

import structlog

from agentrun.controller.operator_metrics import OperatorMetrics
from agentrun.engine.observer import EngineSurvey, LedgerUnavailable
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.telemetry.listen_address import ListenAddress
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.metric_book import build_registry
from agentrun.telemetry.probe_server import ProbeAnswer
from agentrun.telemetry.vital_signs import show_vital_signs

_EVERY = timedelta(seconds=5)
_log = structlog.get_logger("agentrun.controller")


class AskedLedger(Protocol):
    """A ledger that answers, or does not."""

    async def find_slots_in_use(self, namespace: str, name: str) -> int:
        """Return the number of live holders of a limit."""
        ...


class OperatorSigns:
    """What one operator process shows of itself, from its start to its end."""

    def __init__(self, listen: ListenAddress | None) -> None:
        """``listen`` None: nothing is shown."""
        self._listen = listen
        self._registry = build_registry()
        self._liveness = Liveness()
        self.metrics = OperatorMetrics(self._registry, self._liveness)
        self._survey: Callable[[], EngineSurvey] = EngineSurvey
        self._not_ready = "starting"

    def shown(self, ledger: AskedLedger) -> AbstractAsyncContextManager[ListenAddress | None]:
        """Return the block in which probes and scrapes are answered."""

        async def ask_ledger() -> None:
            while True:
                await self._ask(ledger)
                await asyncio.sleep(_EVERY.total_seconds())

        return show_vital_signs(
            self._listen, self._registry, self._liveness, self._readiness, ask_ledger, self._keep_surveying
        )

    def note_candidate(self) -> None:
        """The operator may lead now, or stands by."""
        self._not_ready = ""

    def follow(self, survey: Callable[[], EngineSurvey], *tasks: asyncio.Task[Any]) -> None:
        """Show what a leading scheduler surveys; the tasks are to run until :meth:`note_stopping`."""
        self._survey = survey
        self._liveness.expect(*tasks)

    def note_stopping(self) -> None:
        """The operator was asked to end: its tasks may."""
        self._not_ready = "stopping"
        self._liveness.expect()

    def _readiness(self) -> ProbeAnswer:
        if self._not_ready:
            return ProbeAnswer(good=False, text=self._not_ready)
        return ProbeAnswer(good=True, text="leader" if self.metrics.leads else "standby")

    async def _ask(self, ledger: AskedLedger) -> None:
        try:
            await ledger.find_slots_in_use("", "global")
        except LedgerUnavailableError:
            self.metrics.note(LedgerUnavailable())
        else:
            self.metrics.note_ledger_answer()

    async def _keep_surveying(self) -> None:
        while True:
            try:
                self.metrics.show_survey(self._survey())
            except Exception:  # noqa: BLE001 - the loop's edge: a number that is missing must not cost the others
                _log.exception("survey_failed")
            await asyncio.sleep(_EVERY.total_seconds())
