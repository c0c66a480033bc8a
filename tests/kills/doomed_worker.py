"""The product's worker with a diary at its seams: the ledger's steps, the executor, the network, the observer.

Run by the nursery in a process of its own. Every wrapper notes a point, calls what it wraps and returns its answer; what
the worker decides stays its own.
"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import httpcore

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.orders import AttemptOutcome, Order, OrderKind
from agentrun.contract.tool import ToolType
from agentrun.ledger.port import Claim, ClaimAnswer, CommitVerdict, Delivery, HeartbeatAnswer, WorkerIdentity
from agentrun.ledger.redis_connection import LedgerSettings, RedisConnection
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.executor import Executor, ToolCall
from agentrun_worker.http_executor import HttpExecutor
from agentrun_worker.identity import build_identity
from agentrun_worker.observer import CallEnded, CallsUnderWay, CommitAnswered, WorkerFact
from agentrun_worker.secret_sources import EnvironmentSecrets
from agentrun_worker.worker import Worker, WorkerSettings
from kills.diary import Diary, Fate

CLAIM_LEASE = timedelta(seconds=4)
"""Silence that counts as death, unless a site says otherwise; everybody who shares a ledger agrees on it."""
_PACE = WorkerSettings(
    heartbeat=timedelta(milliseconds=400),
    take_block=timedelta(milliseconds=500),
    closed_pause=timedelta(milliseconds=100),
    ledger_pause=timedelta(milliseconds=50),
)
_TRUST = ssl.create_default_context()
"""Read once, before any worker is forked: it takes longer than everything else that a call does."""
_about: ContextVar[str] = ContextVar("about", default="")


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Everything that one worker process is told."""

    name: str
    pool: str
    redis: str
    install: str
    folder: str
    """Where its diary is kept."""
    slots: int = 1
    lease_seconds: float = CLAIM_LEASE.total_seconds()
    fate: Fate = field(default_factory=Fate)

    @property
    def diary(self) -> Path:
        """Its diary."""
        return Path(self.folder) / f"{self.pool}.{self.name}.diary"

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read it back."""
        read = json.loads(text)
        return cls(**{**read, "fate": Fate(**read["fate"])})


def ledger_settings(install: str, lease: timedelta = CLAIM_LEASE) -> LedgerSettings:
    """Return the settings that workers and schedulers of these tests share."""
    return LedgerSettings(install=install, claim_lease=lease, reclaim_every=timedelta(milliseconds=200))


def work(plan: WorkerPlan) -> None:
    """Be the worker until SIGTERM, or until its fate."""
    asyncio.run(_work(plan))


async def _work(plan: WorkerPlan) -> None:
    diary = Diary(plan.diary, plan.fate)
    lease = timedelta(seconds=plan.lease_seconds)
    ledger = _WatchedLedger(RedisConnection(plan.redis, ledger_settings(plan.install, lease)), diary)
    # The library's class, not the product's: every connection that a call makes is one of these.
    httpcore.AnyIOBackend = _build_backend(diary)  # type: ignore[assignment,misc]
    executor = _WatchedExecutor(HttpExecutor(EnvironmentSecrets(), trust=_TRUST), diary)
    identity = build_identity("default", plan.pool, plan.name, plan.slots)
    observer = _WatchedObserver(diary)
    worker = Worker(ledger, identity, {ToolType.HTTP: executor}, SchemaValidator(), _PACE, observer=observer)
    diary.on_drain = worker.request_drain
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.request_drain)
    await worker.run()
    diary.note("worker: ended")
    await ledger.close()


class _WatchedLedger(RedisLedger):
    def __init__(self, connection: RedisConnection, diary: Diary) -> None:
        super().__init__(connection)
        self._diary = diary

    async def take_orders(self, worker: WorkerIdentity, count: int, block_ms: int) -> Sequence[Delivery]:
        self._diary.note("take: called")
        found = await super().take_orders(worker, count, block_ms)
        if found:
            self._diary.note("take: answered")
        return found

    async def fetch_tool(self, namespace: str, digest: str) -> JsonObject | None:
        self._diary.note("definition: called")
        found = await super().fetch_tool(namespace, digest)
        self._diary.note("definition: answered")
        return found

    async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
        step = _step("claim", delivery.order)
        self._diary.note(f"{step}: called")
        answer = await super().claim(worker, delivery, token)
        self._diary.note(f"{step}: answered")
        return answer

    async def heartbeat(self, worker: WorkerIdentity, claim: Claim) -> HeartbeatAnswer:
        self._diary.note("heartbeat: called")
        answer = await super().heartbeat(worker, claim)
        self._diary.note("heartbeat: answered")
        return answer

    async def commit(self, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        step = _step("commit", claim.order)
        self._diary.note(f"{step}: called")
        verdict = await super().commit(claim, outcome)
        self._diary.note(f"{step}: answered")
        self._diary.note(f"{step}: {verdict}")
        return verdict

    async def hand_back(self, worker: WorkerIdentity, delivery: Delivery, reason: str) -> None:
        self._diary.note("hand back: called")
        await super().hand_back(worker, delivery, reason)
        self._diary.note("hand back: answered")

    async def abandon_claim(self, claim: Claim, reason: str) -> bool:
        self._diary.note("abandon: called")
        undone = await super().abandon_claim(claim, reason)
        self._diary.note("abandon: answered")
        return undone

    async def retire_worker(self, worker: WorkerIdentity) -> None:
        self._diary.note("retire: called")
        await super().retire_worker(worker)
        self._diary.note("retire: answered")


def _step(name: str, order: Order) -> str:
    return f"recovery {name}" if order.kind is OrderKind.RECOVER else name


class _WatchedExecutor:
    def __init__(self, executor: Executor, diary: Diary) -> None:
        self._executor = executor
        self._diary = diary

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Make the call; the lookups of recoveries are told apart by their request ids."""
        about = "lookup " if call.request_id.endswith("-lookup") else ""
        _about.set(about)
        self._diary.note(f"{about}execute: called")
        outcome = await self._executor.execute(call)
        self._diary.note(f"{about}execute: answered")
        return outcome


class _WatchedObserver:
    def __init__(self, diary: Diary) -> None:
        self._diary = diary

    def note(self, happened: WorkerFact) -> None:
        """Write the facts down that lie between two steps."""
        match happened:
            case CallEnded():
                self._diary.note("outcome: known")
            case CallsUnderWay(count=0):
                self._diary.note("call: let go")
            case CommitAnswered():
                self._diary.note("commit: noted")
            case _:
                return


def _build_backend(diary: Diary) -> type[httpcore.AsyncNetworkBackend]:
    class WatchedBackend(httpcore.AnyIOBackend):
        """Connects as the library does."""

        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> httpcore.AsyncNetworkStream:
            about = _about.get()
            diary.note(f"{about}connect: called")
            stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
            diary.note(f"{about}connect: answered")
            return _WatchedStream(stream, diary, about)

    return WatchedBackend


class _WatchedStream(httpcore.AsyncNetworkStream):
    """The bytes of one request; the product's send check has passed before the first is written."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, diary: Diary, about: str) -> None:
        self._stream = stream
        self._diary = diary
        self._about = about
        self._writes = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        self._diary.note(f"{self._about}request: sent")
        data = await self._stream.read(max_bytes, timeout)
        self._diary.note(f"{self._about}answer: arrived")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._writes += 1
        if self._writes > 1:
            await self._stream.write(buffer, timeout)
            return
        self._diary.note(f"{self._about}first byte: due")
        await self._stream.write(buffer[:1], timeout)
        self._diary.note(f"{self._about}first byte: sent")
        await self._stream.write(buffer[1:], timeout)
        self._diary.note(f"{self._about}head: sent")

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
