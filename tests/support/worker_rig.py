"""A worker on a real ledger, the scheduler's hand that sends it orders, and an executor that waits for the test."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from agentrun.contract.exact_json import json_digest
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome, Order, OrderKind, Report, ReportKind
from agentrun.contract.tool import AgentToolSpec, ToolType
from agentrun.ledger.port import LedgerUnavailableError, WorkerIdentity
from agentrun.ledger.redis_connection import Durability, LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.executor import Executor, ToolCall
from agentrun_worker.outcomes import failed, succeeded
from agentrun_worker.worker import Worker, WorkerSettings
from support.orders import NAMESPACE, build_order, build_registration
from support.tool_calls import build_python_tool

FAST = WorkerSettings(
    heartbeat=timedelta(milliseconds=50),
    take_block=timedelta(milliseconds=200),
    closed_pause=timedelta(milliseconds=50),
    cancel_grace=timedelta(milliseconds=300),
    drain_grace=timedelta(seconds=5),
    ledger_pause=timedelta(milliseconds=20),
    idle_patience=timedelta(milliseconds=300),
)


class WaitingExecutor:
    """Makes calls that last until the test lets them end, or until they are interrupted."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.began = asyncio.Semaphore(0)
        self.release = asyncio.Event()
        self.at_once = 0
        self.most_at_once = 0
        self.interrupted_at: list[float] = []

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Wait."""
        self.calls.append(call)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.began.release()
        released = asyncio.ensure_future(self.release.wait())
        cancelled = asyncio.ensure_future(call.cancelled.wait())
        try:
            await asyncio.wait((released, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if not released.done():
                self.interrupted_at.append(asyncio.get_running_loop().time())
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.CANCELLED, "it was interrupted")
            return succeeded({"ok": True})
        finally:
            self.at_once -= 1
            released.cancel()
            cancelled.cancel()


class WorkerRig:
    """One install on one server; nothing of it is shared with another test."""

    def __init__(self, url: str, lease: timedelta = timedelta(seconds=30)) -> None:
        self.url = url
        self.settings = LedgerSettings(
            install=f"t{secrets.token_hex(6)}",
            durability=Durability.ACCEPT,
            claim_lease=lease,
            reclaim_every=timedelta(milliseconds=100),
            answer_within=timedelta(seconds=1),
        )
        self.ledger = RedisLedger.connect(url, self.settings)
        self.executor = WaitingExecutor()
        self.reports: list[Report] = []
        self._opened: list[RedisLedger] = [self.ledger]
        self._seen = 0
        self._began = False

    async def send(self, tool: AgentToolSpec | None = None, *, node: str = "node-1", **more: Any) -> Order:
        """Dispatch an order for a tool, as the scheduler does."""
        await self.begin()
        definition = (tool or build_python_tool("never:called")).to_wire()
        digest = json_digest(definition)
        await self.ledger.put_tool(NAMESPACE, digest, definition)
        fields: dict[str, Any] = {"key": f"key-{node}", "tool_digest": digest, **more}
        order = build_order(node, **fields)
        await self.dispatch(order)
        return order

    async def begin(self) -> None:
        """Open the ledger and admit the run that all orders belong to."""
        if not self._began:
            self._began = True
            await self.ledger.open([NAMESPACE])
            await self.ledger.take_epoch(0)
            await self.ledger.admit_run(build_registration())

    async def dispatch(self, order: Order) -> None:
        """Put an order into its stream."""
        answer = await self.ledger.dispatch(order, (), None)
        assert answer.refusal is None, answer

    async def send_recovery(self, order: Order, **more: Any) -> Order:
        """Give an attempt up for lost, and ask for its recovery."""
        assert await self.ledger.fence_attempt(NAMESPACE, order.node_uid, order.seq)
        changes = {"kind": OrderKind.RECOVER, "seq": order.seq + 1, "request_id": f"recover-{order.node_uid}", **more}
        recovery = order.model_copy(update=changes)
        await self.dispatch(recovery)
        return recovery

    async def report(self, kind: ReportKind, within: float = 10.0) -> Report:
        """Return the next report of a kind; those before it are kept."""
        async with asyncio.timeout(within):
            while True:
                while self._seen < len(self.reports):
                    report = self.reports[self._seen]
                    self._seen += 1
                    if report.kind is kind:
                        return report
                await self._read(block_ms=100)

    async def all_reports(self) -> list[str]:
        """Return the kinds of everything that has been reported."""
        await self._read(block_ms=1)
        return [str(report.kind) for report in self.reports]

    async def _read(self, block_ms: int) -> None:
        try:
            found = await self.ledger.read_reports([NAMESPACE], "rig", 100, block_ms)
        except LedgerUnavailableError:
            await asyncio.sleep(0.02)  # the server is on its way back
            return
        self.reports += [report for _, report in found]
        if found:
            await self.ledger.acknowledge_reports(NAMESPACE, [entry for entry, _ in found])

    def build_worker(
        self,
        name: str = "w",
        *,
        slots: int = 4,
        settings: WorkerSettings = FAST,
        ledger: Callable[[str, LedgerSettings], RedisLedger] = RedisLedger.connect,
        url: str | None = None,
        executor: Executor | None = None,
    ) -> Worker:
        """Return a worker with a connection of its own."""
        own = ledger(url or self.url, self.settings)
        self._opened.append(own)
        identity = WorkerIdentity(NAMESPACE, "shared", name, secrets.token_hex(4), slots)
        return Worker(own, identity, dict.fromkeys(ToolType, executor or self.executor), SchemaValidator(), settings)

    async def close(self) -> None:
        """Give the connections back."""
        for ledger in self._opened:
            await ledger.close()


@asynccontextmanager
async def rigged(url: str, lease: timedelta = timedelta(seconds=30)) -> AsyncIterator[WorkerRig]:
    """Run a test with a rig."""
    rig = WorkerRig(url, lease)
    try:
        yield rig
    finally:
        await rig.close()


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker beside the test; at the end it drains, unless the test has ended it otherwise."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
        worker.request_drain()
        async with asyncio.timeout(10):
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
