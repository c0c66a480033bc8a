"""The composition root of the operator: engine, ledger, API server and kopf in one loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_cluster import ApiCluster
from agentrun.controller.kopf_source import KopfSource
from agentrun.controller.node_deletions import NodeDeletions
from agentrun.controller.operator_settings import OperatorSettings
from agentrun.controller.served_kinds import wait_for_kinds
from agentrun.controller.unreadable_objects import UnreadableObjects
from agentrun.engine.clock import SystemClock, SystemEntropy
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.schemas.validator import SchemaValidator

_log = structlog.get_logger("agentrun.controller")
_STOP_WITHIN = 20.0
"""Seconds for everything to end after SIGTERM."""


class OperatorProcess:
    """One operator: observes, decides, and writes, until it is stopped or another one has taken the lead."""

    def __init__(self, settings: OperatorSettings, access: ApiAccess) -> None:
        self._settings = settings
        self._access = access
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Have :meth:`run` end in order."""
        self._stopping.set()

    def listen_to_signals(self) -> None:
        """Stop at SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def run(self) -> None:
        """Work until :meth:`stop`.

        Raises :class:`~agentrun.engine.services.EpochLostError` when another operator has taken the lead, and what a
        part cannot go on from: the process is to be started anew then.
        """
        settings = self._settings
        ledger = RedisLedger.connect(
            settings.redis.get_secret_value(), LedgerSettings(install=settings.install, durability=settings.durability)
        )
        try:
            async with ApiClient(self._access) as client:
                await self._serve(client, ledger)
        finally:
            await ledger.close()

    async def _serve(self, client: ApiClient, ledger: RedisLedger) -> None:
        settings, clock = self._settings, SystemClock()
        namespaces: Sequence[str | None] = settings.namespaces or (None,)
        cluster = ApiCluster(client, settings.namespaces)
        scheduler = Scheduler(
            cluster=cluster,
            ledger=ledger,
            clock=clock,
            entropy=SystemEntropy(),
            validator=SchemaValidator(),
            settings=SchedulerSettings(install=settings.install, global_limit=settings.global_limit),
        )
        source = KopfSource(self._access, settings.namespaces, cluster.tell, UnreadableObjects(client, clock).refuse)
        asked = asyncio.create_task(self._stopping.wait(), name="stop")
        served = asyncio.create_task(wait_for_kinds(client), name="served kinds")
        await asyncio.wait((served, asked), return_when=asyncio.FIRST_COMPLETED)
        if not served.done():
            served.cancel()
            return
        # kopf cancels what was started after it when it ends: our own tasks come first.
        parts: list[Coroutine[Any, Any, None]] = [
            scheduler.run(),
            *(NodeDeletions(client, namespace, cluster.tell).run() for namespace in namespaces),
            source.run(),
        ]
        tasks = [asyncio.create_task(part, name=getattr(part, "__qualname__", "part")) for part in parts]
        _log.info("started", server=self._access.server, namespaces=settings.namespaces or "all")
        done, _ = await asyncio.wait((*tasks, asked), return_when=asyncio.FIRST_COMPLETED)
        scheduler.stop()
        source.stop()
        # The engine ends its turns first, then the watches may go.
        await asyncio.wait((tasks[0], tasks[-1]), timeout=_STOP_WITHIN)
        for task in (*tasks, asked):
            task.cancel()
        await asyncio.gather(*tasks, asked, return_exceptions=True)
        for task in done - {asked}:
            task.result()
        _log.info("stopped")
