"""The worker: takes orders of one pool, passes the gate, makes the calls, commits what happened.

``Worker(ledger, identity, executors, validator).run()`` works until :meth:`Worker.request_drain`; local mode and the
worker image use it alike. In the pod of a Job it carries a single order out (:meth:`Worker.run_one_order`). It decides
nothing: whether a call may be made is the gate's answer, what follows an outcome is the scheduler's. While the ledger
is away nothing new begins, what runs goes on until its claim ends by the worker's own clock, and an outcome is
committed as soon as the ledger is back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar

import structlog

from agentrun.contract.orders import CONTRACT_VERSION
from agentrun.contract.tool import ToolType
from agentrun.ledger.port import Delivery, LedgerUnavailableError, WorkerIdentity, WorkerLedger
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.attempt import AttemptMaker
from agentrun_worker.executor import Executor, Lingering
from agentrun_worker.ledger_patience import LedgerPatience
from agentrun_worker.observer import LedgerAnswered, LedgerUnavailable, Unobserved, WorkerObserver
from agentrun_worker.order_handler import OrderHandler
from agentrun_worker.worker_settings import WorkerSettings

__all__ = ["Worker", "WorkerSettings"]

_Answer = TypeVar("_Answer")
_log = structlog.get_logger("agentrun.worker")


class Worker:
    """Works for one pool of one namespace."""

    def __init__(
        self,
        ledger: WorkerLedger,
        identity: WorkerIdentity,
        executors: Mapping[ToolType, Executor],
        validator: SchemaValidator,
        settings: WorkerSettings | None = None,
        new_token: Callable[[], str] = lambda: secrets.token_hex(16),
        observer: WorkerObserver | None = None,
    ) -> None:
        """``new_token`` gives fresh random hexadecimal text: claim tokens must never repeat."""
        self._observer = observer or Unobserved()
        self._ledger = ledger
        self._identity = identity
        self._executors = executors
        self._settings = settings or WorkerSettings()
        self._patience = LedgerPatience(self._settings.ledger_pause, new_token, self._observer)
        self._draining = asyncio.Event()
        self._slot_free = asyncio.Event()
        self._active: set[asyncio.Task[None]] = set()
        maker = AttemptMaker(executors, validator)
        self._handler = OrderHandler(ledger, identity, maker, self._settings, new_token, self._draining, self._observer)
        self._alive: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[Literal[True]] | None = None
        """Ends when the drain is asked for: one for all that wait for it as well."""

    @property
    def state(self) -> str:
        """Where it stands, as one word: ``registering``, ``working`` or ``draining``."""
        if self._draining.is_set():
            return "draining"
        return "registering" if self._alive is None else "working"

    @property
    def attempts_total(self) -> int:
        """Calls that were made, recoveries included."""
        return self._handler.attempts_total

    @property
    def interrupted_total(self) -> int:
        """Calls that did not end within the drain's grace period and were interrupted."""
        return self._handler.interrupted_total

    @property
    def uncalled_total(self) -> int:
        """Orders that ended without a call: reported by the gate, or handed back."""
        return self._handler.uncalled_total

    def find_fault(self) -> str:
        """Return which of its loops has ended although nobody asked for it; empty while all is well."""
        alive = self._alive
        ended = alive is not None and alive.done() and not alive.cancelled()
        return "keep alive" if ended else ""

    def request_drain(self) -> None:
        """Take nothing more, hand back what has not begun, let the rest end within its grace."""
        self._draining.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until drained; with ``until_idle`` only until nothing is left to take and all calls have ended.

        An order that was not called, for it had grown too old for example, is sent anew by the scheduler: it is waited
        for as long as one look for orders waits.

        Raises :class:`LedgerUnavailableError` with ``until_idle`` alone, when the ledger stays silent for
        ``idle_patience``; a worker that is to stay waits for it as long as it takes.
        """
        patience = self._settings.idle_patience if until_idle else None
        await self._work(lambda: self._take_until_drained(until_idle), patience)

    async def run_one_order(self, *, within: timedelta) -> bool:
        """Take one order, carry it out, and end; return whether one came, which is waited for so long at most.

        One that comes to no call, for somebody else has made it perhaps, counts as any other: the scheduler knows. A
        drain ends the wait. Raises :class:`LedgerUnavailableError` when the ledger is silent for all that time; an
        order that was taken is carried out to its commit, however long the ledger stays away.
        """
        ends = asyncio.get_running_loop().time() + within.total_seconds()
        came = False

        async def take() -> None:
            nonlocal came
            came = await self._take_one(ends)

        await self._work(take, within)
        return came

    async def _work(self, take: Callable[[], Awaitable[None]], patience: timedelta | None) -> None:
        """Be a worker for as long as ``take`` does, and until all calls have ended."""
        try:
            await self._be_registered(take, patience)
        finally:
            if self._drain is not None:
                self._drain.cancel()

    async def _be_registered(self, take: Callable[[], Awaitable[None]], patience: timedelta | None) -> None:
        registering = asyncio.ensure_future(
            self._patience.insist(
                lambda: self._ledger.register_worker(self._identity, CONTRACT_VERSION), within=patience
            )
        )
        await self._unless_draining(registering)
        if registering.cancelled():
            return
        alive = self._alive = asyncio.create_task(self._keep_alive(), name="keep alive")
        alive.add_done_callback(self._has_ended)
        try:
            await take()
            await self._let_calls_end()
        finally:
            alive.cancel()
            for task in self._active:
                task.cancel()
            await asyncio.gather(alive, *self._active, return_exceptions=True)
        await self._retire()

    # --- taking

    async def _take_until_drained(self, until_idle: bool) -> None:
        block_ms = round(self._settings.take_block / timedelta(milliseconds=1))
        patience = self._settings.idle_patience if until_idle else None
        nothing_left = False
        uncalled = 0
        while not self._draining.is_set():
            free = self._identity.slots - len(self._active)
            if free <= 0 or (nothing_left and self._active):
                self._slot_free.clear()
                await self._unless_draining(asyncio.ensure_future(self._slot_free.wait()))
                nothing_left = False
                continue
            may_come_back = self._handler.uncalled_total > uncalled
            uncalled = self._handler.uncalled_total
            wait_ms = 1 if until_idle and not may_come_back else block_ms
            take = partial(self._ledger.take_orders, self._identity, free, wait_ms)
            # A delivery that the drain lets go is taken over by another worker as soon as this one has retired.
            deliveries = await self._unless_draining(
                asyncio.ensure_future(self._patience.insist(take, within=patience))
            )
            for delivery in deliveries or ():
                self._begin(delivery)
            nothing_left = until_idle and not deliveries
            if nothing_left and not self._active and self._handler.uncalled_total == uncalled:
                return

    async def _take_one(self, ends: float) -> bool:
        loop = asyncio.get_running_loop()
        block = self._settings.take_block
        while not self._draining.is_set() and (left := ends - loop.time()) > 0:
            within = timedelta(seconds=left)
            wait_ms = max(1, round(min(block, within) / timedelta(milliseconds=1)))
            take = partial(self._ledger.take_orders, self._identity, 1, wait_ms)
            found = await self._unless_draining(asyncio.ensure_future(self._patience.insist(take, within=within)))
            for delivery in found or ():
                self._begin(delivery)
            while self._active and not self._draining.is_set():
                self._slot_free.clear()
                await self._unless_draining(asyncio.ensure_future(self._slot_free.wait()))
            if found:
                return True
        return False

    def _begin(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._handler.handle(delivery), name=f"order {delivery.order.request_id}")
        self._active.add(task)
        task.add_done_callback(self._slot_freed)
        task.add_done_callback(self._has_ended)

    def _slot_freed(self, task: asyncio.Task[None]) -> None:
        self._active.discard(task)
        self._slot_free.set()

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        """Show a bug of ours: its claim, if it had one, falls silent and is recovered from."""
        if not task.cancelled() and task.exception() is not None:
            _log.error("task_failed", task=task.get_name(), exc_info=task.exception())

    # --- staying and leaving

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat.total_seconds())
            try:
                await self._ledger.keep_alive(self._identity)
                self._observer.note(LedgerAnswered())
            except LedgerUnavailableError as error:
                self._observer.note(LedgerUnavailable())
                _log.warning("ledger_unavailable", cause=str(error))

    async def _let_calls_end(self) -> None:
        if not self._active:
            return
        _log.info("draining", calls=len(self._active))
        self._handler.let_recoveries_go()
        await asyncio.wait(set(self._active), timeout=self._settings.drain_grace.total_seconds())
        self._handler.interrupt_calls()
        if self._active:
            # What was interrupted still commits what it knows.
            await asyncio.wait(set(self._active), timeout=self._settings.cancel_grace.total_seconds())

    async def _retire(self) -> None:
        """Say that nothing is executed here any more, if that is so: recoveries build on it."""
        if any(isinstance(executor, Lingering) and executor.lingers() for executor in self._executors.values()):
            _log.warning("not_retired", why="a call that was given up is still at work in this process")
            return
        try:
            await self._ledger.retire_worker(self._identity)
        except LedgerUnavailableError as error:
            _log.warning("not_retired", why=str(error))

    async def _unless_draining(self, future: asyncio.Future[_Answer]) -> _Answer | None:
        """Wait for the future, or for the drain, which cancels it."""
        drain = self._drain = self._drain or asyncio.create_task(self._draining.wait(), name="drain")
        either: tuple[asyncio.Future[Any], ...] = (future, drain)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future.done() else None
        finally:
            if not future.done():
                future.cancel()
                await asyncio.gather(future, return_exceptions=True)
