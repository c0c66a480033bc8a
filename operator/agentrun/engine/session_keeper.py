"""Keeps the sessions of live runs: takes them before admission, renews them, gives them back at the end.

Renewal is a matter of the watchdog (:meth:`SessionKeeper.watch`) while a run waits, and of :meth:`SessionKeeper.hold`
right before an order is sent: no order leaves under a Lease that may be another run's by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import structlog

from agentrun.contract.run import RunPhase
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.services import EngineServices
from agentrun.engine.session_port import SessionHolder

_FAILURES = (ClusterUnavailableError, ConflictError, GoneError)
_LOOKS_PER_LEASE = 20
_log = structlog.get_logger("agentrun.engine")


class SessionKeeper:
    """Knows nothing that the runs' memories do not hold."""

    def __init__(self, services: EngineServices) -> None:
        self._services = services

    async def take(self, run: RunMemory) -> SessionHolder | None:
        """Take the run's session; return the live run that holds it, or None when it is this run's."""
        session = run.run.spec.session
        if not session:
            return None
        leases = self._services.sessions
        holder = await leases.take(run.run.metadata, session)
        if holder is not None and not await self.is_live(run.namespace, holder):
            holder = await leases.take(run.run.metadata, session, replacing=holder.uid)
        if holder is None:
            self._note_renewal(run)
        return holder

    async def is_live(self, namespace: str, holder: SessionHolder) -> bool:
        """Tell whether the run that is said to hold a session exists and has not ended."""
        seen = await self._services.cluster.find_run(namespace, holder.name)
        return seen is not None and seen.uid == holder.uid and not seen.ended

    async def release(self, run: RunMemory) -> None:
        """Give the run's session back; what cannot be given back now is free anyway, its run having ended."""
        session = run.run.spec.session
        if not session:
            return
        try:
            await self._services.sessions.release(run.run.metadata, session)
        except _FAILURES as error:
            _log.warning("session_not_released", run=run.name, namespace=run.namespace, cause=str(error))

    async def hold(self, run: RunMemory) -> None:
        """Return when the run's Lease is good for a while longer.

        Raises :class:`ClusterUnavailableError` when it has run out and could not be renewed: nothing may be sent then.
        """
        if run.session_renewed_at is None or not self._is_due(run):
            return
        try:
            await self._renew(run)
        except _FAILURES as error:
            if self._services.now() >= run.session_renewed_at + self._services.sessions.duration * 0.9:
                raise ClusterUnavailableError(f"the Lease of session {run.run.spec.session}: {error}") from error
            _log.warning("session_not_renewed", run=run.name, namespace=run.namespace, cause=str(error))

    async def watch(self, runs: Callable[[], Iterable[RunMemory]]) -> None:
        """Renew what is due until cancelled. A suspended run's Lease is left alone: thousands may be."""
        duration = self._services.sessions.duration
        if duration == timedelta.max:
            return
        while True:
            await asyncio.sleep((duration / _LOOKS_PER_LEASE).total_seconds())
            for run in list(runs()):
                waits = run.closed or run.deleted or run.status.phase is RunPhase.SUSPENDED
                if run.session_renewed_at is None or waits or not self._is_due(run):
                    continue
                try:
                    await self._renew(run)
                except _FAILURES as error:
                    _log.warning("session_not_renewed", run=run.name, namespace=run.namespace, cause=str(error))

    async def _renew(self, run: RunMemory) -> None:
        holder = await self._services.sessions.take(run.run.metadata, run.run.spec.session or "")
        if holder is not None:
            raise ConflictError(f"run {holder.name} ({holder.uid}) holds it")
        self._note_renewal(run)

    def _note_renewal(self, run: RunMemory) -> None:
        now = self._services.now()
        run.session_renewed_at = now
        duration = self._services.sessions.duration
        if duration == timedelta.max:
            run.session_due_at = datetime.max.replace(tzinfo=now.tzinfo)
            return
        # Half of its time, with up to a tenth of jitter: many that began together drift apart.
        run.session_due_at = now + duration * (0.4 + 0.1 * self._services.entropy.fraction())

    def _is_due(self, run: RunMemory) -> bool:
        return run.session_due_at is None or self._services.now() >= run.session_due_at
