"""One install on a ledger server of its own: scheduler, provider and worker processes, and a view of what became of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from redis.exceptions import RedisError

from agentrun.contract.approval import Decision
from agentrun.contract.node import AgentNodeStatus
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.engine.clock import SystemClock, SystemEntropy
from agentrun.engine.cluster_port import ConflictError
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.local.chance import uid_from
from agentrun.local.memory_cluster import MemoryCluster
from agentrun.schemas.validator import SchemaValidator
from chaos.ledger_view import find_remains
from kills.bookings import BookingProvider
from kills.diary import Fate
from kills.doomed_worker import CLAIM_LEASE, WorkerPlan, ledger_settings
from kills.nursery import Hatchery
from kills.wire import Snag, Wire
from support.ledger_server import DURABLE, LedgerServer

_LOOK_SECONDS = 0.2
INSTALL = "default"
"""The install bears the namespace's name, as the view of what is left expects it."""


class Site:
    """Everything but the worker processes, which are hatched one by one; an asynchronous context manager."""

    def __init__(self, folder: Path, hatchery: Hatchery, lease: timedelta = CLAIM_LEASE) -> None:
        self._lease = lease
        self.folder = folder
        self.server = LedgerServer(DURABLE)
        self.provider = BookingProvider()
        self._hatchery = hatchery
        entropy = SystemEntropy()
        self.cluster = MemoryCluster(lambda: datetime.now(UTC), lambda: uid_from(entropy.token()))
        self._ledger: RedisLedger | None = None
        self._scheduler: Scheduler | None = None
        self._engine: asyncio.Task[None] | None = None
        self._wires: list[Wire] = []

    @property
    def ledger(self) -> RedisLedger:
        """The ledger as the scheduler reaches it."""
        assert self._ledger is not None
        return self._ledger

    async def __aenter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        await asyncio.to_thread(self.server.start)
        await self.provider.__aenter__()
        self._ledger = RedisLedger.connect(self.server.url, ledger_settings(INSTALL, self._lease))
        self._scheduler = Scheduler(
            cluster=self.cluster,
            ledger=self._ledger,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            validator=SchemaValidator(),
            settings=SchedulerSettings(install=INSTALL, coalesce=timedelta(0)),
        )
        self._engine = asyncio.create_task(self._scheduler.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._scheduler is not None
        assert self._engine is not None
        self._scheduler.stop()
        await asyncio.gather(self._engine, return_exceptions=True)
        await self.ledger.close()
        for wire in self._wires:
            await wire.__aexit__(kind, error, trace)
        await self.provider.__aexit__(kind, error, trace)
        await asyncio.to_thread(self.server.stop)

    # --- workers

    async def hatch(
        self, pool: str, name: str, fate: Fate | None = None, *, url: str | None = None, slots: int = 1
    ) -> tuple[int, WorkerPlan]:
        """Start a worker process; ``url``: its way to the ledger, when it is not the straight one."""
        plan = WorkerPlan(
            name=name,
            pool=pool,
            redis=url or self.server.url,
            install=INSTALL,
            folder=str(self.folder),
            slots=slots,
            lease_seconds=self._lease.total_seconds(),
            fate=fate or Fate(),
        )
        return await self._hatchery.hatch(plan.to_json()), plan

    async def lay_wire(
        self, snag: Snag | None, strike: Callable[[], Awaitable[None]], *, passes_on: bool = False
    ) -> Wire:
        """Lay a wire to the ledger's server; it stays until the site ends."""
        wire = Wire(self.server.port, snag, strike, passes_on)
        self._wires.append(await wire.__aenter__())
        return wire

    @staticmethod
    def kill(*pids: int) -> None:
        """End worker processes with SIGKILL; the dead stay what they are."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    # --- the ledger's server

    async def restart_server(self, *, emptied: bool) -> None:
        """Kill the ledger's server and start it again, with its data or without."""
        self.server.crash()
        if emptied:
            for found in self.server.directory.glob("append*"):
                shutil.rmtree(found)
        await asyncio.to_thread(self.server.start)

    # --- runs

    def apply(self, tools: Sequence[AgentTool], run: AgentRun) -> None:
        """Submit tools and a run."""
        for tool in tools:
            self.cluster.apply(tool)
        self.cluster.apply(run)

    def node(self, run: str, path: str = "act") -> AgentNodeStatus | None:
        """Return a node's status."""
        uid = self.cluster.get_run("default", run).metadata.uid
        found = [node for node in self.cluster.nodes_of("default", uid) if node.spec.path == path]
        return found[0].status if found else None

    def has_ended(self, run: str) -> bool:
        """Tell whether the run has its outcome."""
        status = self.cluster.get_run("default", run).status
        return status is not None and status.phase in TERMINAL_RUN_PHASES

    def decide(self, run: str, decision: Decision) -> bool:
        """Answer the run's open question; False: there is none (any more)."""
        uid = self.cluster.get_run("default", run).metadata.uid
        for approval in self.cluster.approvals_of("default", uid):
            if approval.status and approval.status.state == "Open" and approval.spec.decision is None:
                try:
                    self.cluster.patch_decision("default", approval.metadata.name, decision)
                except ConflictError:
                    return False
                return True
        return False

    async def settled_micros(self, run: str) -> int:
        """Return what the run has cost by the ledger's book, once a ledger that lost it has been rebuilt."""
        uid = self.cluster.get_run("default", run).metadata.uid
        async with asyncio.timeout(60):
            while True:
                try:
                    if (await self.ledger.look()).is_sound:
                        return (await self.ledger.find_counters("default", uid)).settled.micros
                except LedgerUnavailableError:
                    # A connection of before its death.
                    pass
                await asyncio.sleep(_LOOK_SECONDS)

    async def find_remains(self, within: float = 15.0) -> list[str]:
        """Return what is left of claims, slots, holds and open runs; leases get a moment to end."""
        uids = [run.metadata.uid for run in self.cluster.runs()]
        found: list[str] = []

        async def is_clean() -> bool:
            nonlocal found
            try:
                found = await find_remains(self.server.url, INSTALL, uids)
            except (RedisError, LedgerUnavailableError) as error:
                found = [f"the ledger cannot be looked at: {error}"]
            return not found

        try:
            async with asyncio.timeout(within):
                while not await is_clean():
                    await asyncio.sleep(0.2)
        except TimeoutError:
            return found
        return found


async def until(holds: Callable[[], bool], within: float, told: Callable[[], object]) -> None:
    """Wait until something holds; else the failure tells what stood there instead."""
    try:
        async with asyncio.timeout(within):
            while not holds():
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {within:.0f} s: {told()}") from None
