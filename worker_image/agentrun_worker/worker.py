"""The worker: takes orders of one pool, passes the gate, makes the calls, commits what happened.

``Worker(ledger, identity, executors, validator).run()`` works until :meth:`Worker.request_drain`; local mode and the
worker image use it alike. It decides nothing: whether a call may be made is the gate's answer, what follows an outcome
is the scheduler's. While the ledger is away nothing new begins, what runs goes on until its claim ends by the worker's
own clock, and an outcome is committed as soon as the ledger is back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import structlog

from agentrun.contract.defaults import HEARTBEAT_INTERVAL
from agentrun.contract.failures import FailureClass, Reason
from agentrun.contract.orders import CONTRACT_VERSION, AttemptOutcome, OrderKind
from agentrun.contract.tool import AgentToolSpec, ToolType
from agentrun.ledger.port import (
    Claim,
    ClaimAnswer,
    ClaimVerdict,
    CommitVerdict,
    Delivery,
    LedgerUnavailableError,
    WorkerIdentity,
    WorkerLedger,
)
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.attempt import AttemptMaker, CallWindow
from agentrun_worker.executor import Executor
from agentrun_worker.outcomes import not_started
from agentrun_worker.recovery import Recoverer

_Answer = TypeVar("_Answer")
_log = structlog.get_logger("agentrun.worker")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What an operator may set about a worker."""

    heartbeat: timedelta = HEARTBEAT_INTERVAL
    take_block: timedelta = timedelta(seconds=2)
    """How long one look for orders waits."""
    longest_rate_wait: timedelta = timedelta(seconds=5)
    """A call that its tool's rate allows later than this is handed back."""
    cancel_grace: timedelta = timedelta(seconds=5)
    """How long a cancelled call may take to end by itself before it is interrupted."""
    drain_grace: timedelta = timedelta(seconds=25)
    """How long calls under way may take after the worker was told to stop."""
    ledger_pause: timedelta = timedelta(milliseconds=200)
    """First pause after the ledger did not answer; it doubles up to 25 times that."""
    tools_kept: int = 256


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
    ) -> None:
        self._ledger = ledger
        self._identity = identity
        self._settings = settings or WorkerSettings()
        self._new_token = new_token
        self._maker = AttemptMaker(executors, validator)
        self._recoverer = Recoverer(self._maker)
        self._tools: dict[str, AgentToolSpec] = {}
        self._active: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Event] = set()
        self._draining = asyncio.Event()
        self._slot_free = asyncio.Event()
        self.attempts_total = 0
        """Calls that were made, recoveries included."""

    def request_drain(self) -> None:
        """Take nothing more, hand back what has not begun, let the rest end within its grace."""
        self._draining.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until drained; with ``until_idle`` only until nothing is left to take and all calls have ended."""
        await self._insist(lambda: self._ledger.register_worker(self._identity, CONTRACT_VERSION))
        alive = asyncio.create_task(self._keep_alive())
        try:
            await self._take_until_drained(until_idle)
            await self._let_calls_end()
        finally:
            alive.cancel()
            for task in self._active:
                task.cancel()
            await asyncio.gather(alive, *self._active, return_exceptions=True)
        try:
            await self._ledger.retire_worker(self._identity)
        except LedgerUnavailableError as error:
            _log.warning("retire_failed", cause=str(error))

    # --- taking

    async def _take_until_drained(self, until_idle: bool) -> None:
        failures = 0
        block_ms = 1 if until_idle else self._milliseconds(self._settings.take_block)
        while not self._draining.is_set():
            free = self._identity.slots - len(self._active)
            if free <= 0:
                self._slot_free.clear()
                await self._first_of(self._slot_free.wait())
                continue
            taking = asyncio.ensure_future(self._ledger.take_orders(self._identity, free, block_ms))
            try:
                deliveries = await self._unless_draining(taking)
                failures = 0
            except LedgerUnavailableError as error:
                failures += 1
                _log.warning("ledger_unavailable", cause=str(error))
                await self._first_of(asyncio.sleep(self._pause(failures)))
                continue
            for delivery in deliveries or ():
                self._begin(delivery)
            if until_idle and not deliveries and not self._active:
                return

    def _begin(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._handle(delivery), name=f"order {delivery.order.request_id}")
        self._active.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._active.discard(task)
        self._slot_free.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("order_failed", task=task.get_name(), exc_info=task.exception())

    async def _let_calls_end(self) -> None:
        if not self._active:
            return
        await asyncio.wait(set(self._active), timeout=self._settings.drain_grace.total_seconds())
        for cancelled in list(self._calls):
            cancelled.set()
        if self._active:
            # What was interrupted still commits what it knows.
            await asyncio.wait(set(self._active), timeout=self._settings.cancel_grace.total_seconds())

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat.total_seconds())
            try:
                await self._ledger.keep_alive(self._identity)
            except LedgerUnavailableError as error:
                _log.warning("ledger_unavailable", cause=str(error))

    # --- one order

    async def _handle(self, delivery: Delivery) -> None:
        order = delivery.order
        if order.contract_version > CONTRACT_VERSION:
            await self._hand_back(delivery, f"Version {order.contract_version} is newer than this worker")
            return
        if self._draining.is_set():
            await self._hand_back(delivery, "Draining")
            return
        tool = await self._fetch_tool(order.namespace, order.tool_digest)
        lookup = await self._fetch_tool(order.namespace, order.lookup.tool_digest) if order.lookup else None
        if tool is None or (order.lookup is not None and lookup is None):
            await self._hand_back(delivery, "the ledger has no definition of the tool")
            return
        token = self._new_token()
        asked = await self._pass_gate(delivery, token)
        if asked is None:
            return
        answer, asked_at = asked
        claim = Claim(order, token, delivery.stream, delivery.entry_id)
        window = CallWindow(
            deadline=asked_at + answer.remaining_ms / 1000,
            send_before=asked_at + answer.lease_ms / 1000,
            cancelled=asyncio.Event(),
        )
        if self._draining.is_set() and await self._abandon(claim):
            return
        outcome = await self._execute(claim, tool, lookup, answer, window)
        await self._commit(claim, outcome)

    async def _pass_gate(self, delivery: Delivery, token: str) -> tuple[ClaimAnswer, float] | None:
        """Return the gate's leave and when it was asked for; None when the order is nothing to be done about."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            asked_at = loop.time()
            try:
                answer = await self._ledger.claim(self._identity, delivery, token)
            except LedgerUnavailableError as error:
                failures += 1
                _log.warning("ledger_unavailable", cause=str(error), request=delivery.order.request_id)
                await asyncio.sleep(self._pause(failures))
                continue
            match answer.verdict:
                case ClaimVerdict.EXECUTE | ClaimVerdict.RECOVER:
                    return answer, asked_at
                case ClaimVerdict.REPORTED | ClaimVerdict.STALE:
                    _log.info("not_executed", request=delivery.order.request_id, why=answer.report_kind or "Stale")
                    return None
                case ClaimVerdict.WAIT_RATE:
                    wait = answer.wait_ms / 1000
                    if self._draining.is_set() or wait > self._settings.longest_rate_wait.total_seconds():
                        await self._hand_back(delivery, "Rate")
                        return None
                    await self._first_of(asyncio.sleep(wait))
                case ClaimVerdict.LEDGER_CLOSED:
                    if self._draining.is_set():
                        return None
                    await self._first_of(asyncio.sleep(1.0))

    async def _execute(
        self,
        claim: Claim,
        tool: AgentToolSpec,
        lookup: AgentToolSpec | None,
        answer: ClaimAnswer,
        window: CallWindow,
    ) -> AttemptOutcome:
        order = claim.order
        self.attempts_total += 1
        self._calls.add(window.cancelled)
        beating = asyncio.create_task(self._beat(claim, window))
        try:
            if answer.verdict is ClaimVerdict.RECOVER:
                return await self._recoverer.recover(
                    order, tool, lookup, answer, window, lambda: self._insist(lambda: self._ledger.adopt(claim))
                )
            loop = asyncio.get_running_loop()
            if loop.time() >= min(window.deadline, window.send_before):
                said = "the claim ran out before the call could begin"
                return not_started(Reason.ATTEMPT_TIMEOUT, said, FailureClass.RETRYABLE)
            return await self._maker.make(
                order.tool, tool, order.params, order.request_id, order.record.key, window, order.cost
            )
        finally:
            self._calls.discard(window.cancelled)
            beating.cancel()

    async def _beat(self, claim: Claim, window: CallWindow) -> None:
        """Extend the claim while the call is at work; interrupt the call when it may not go on."""
        loop = asyncio.get_running_loop()
        lease_ends = window.send_before
        pause = self._settings.heartbeat.total_seconds()
        while True:
            await asyncio.sleep(min(pause, max(0.0, lease_ends - loop.time())))
            asked_at = loop.time()
            if asked_at >= lease_ends:
                # By our own clock the claim may be another's now.
                _log.warning("claim_ran_out", request=claim.order.request_id)
                window.cancelled.set()
                return
            try:
                async with asyncio.timeout(max(0.05, lease_ends - asked_at)):
                    answer = await self._ledger.heartbeat(self._identity, claim)
            except (LedgerUnavailableError, TimeoutError) as error:
                _log.warning("heartbeat_failed", request=claim.order.request_id, cause=str(error))
                continue
            if answer.fenced:
                _log.warning("claim_fenced", request=claim.order.request_id)
                window.cancelled.set()
                return
            lease_ends = asked_at + answer.lease_ms / 1000
            if answer.cancelled and claim.order.kind is OrderKind.EXECUTE:
                await asyncio.sleep(self._settings.cancel_grace.total_seconds())
                window.cancelled.set()
                # It goes on beating: what it did is still to be committed.
                pause = self._settings.heartbeat.total_seconds()

    async def _commit(self, claim: Claim, outcome: AttemptOutcome) -> None:
        verdict = await self._insist(lambda: self._ledger.commit(claim, outcome))
        failure = outcome.failure
        _log.info(
            "attempt_ended",
            request=claim.order.request_id,
            run=claim.order.run_name,
            node=claim.order.node_path,
            attempt=claim.order.attempt,
            effect=str(outcome.effect),
            reason=failure.reason if failure else "Completed",
            committed=verdict is CommitVerdict.COMMITTED,
        )

    # --- the ledger

    async def _fetch_tool(self, namespace: str, digest: str) -> AgentToolSpec | None:
        known = self._tools.get(digest)
        if known is not None:
            return known
        found = await self._insist(lambda: self._ledger.fetch_tool(namespace, digest))
        if found is None:
            return None
        if len(self._tools) >= self._settings.tools_kept:
            self._tools.pop(next(iter(self._tools)))
        self._tools[digest] = AgentToolSpec.model_validate(found)
        return self._tools[digest]

    async def _hand_back(self, delivery: Delivery, reason: str) -> None:
        await self._insist(lambda: self._ledger.hand_back(self._identity, delivery, reason))

    async def _abandon(self, claim: Claim) -> bool:
        return await self._insist(lambda: self._ledger.abandon_claim(claim, "Draining"))

    async def _insist(self, step: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Repeat a step until the ledger has answered; every step recognises its own repetition."""
        failures = 0
        while True:
            try:
                return await step()
            except LedgerUnavailableError as error:
                failures += 1
                _log.warning("ledger_unavailable", cause=str(error))
                await asyncio.sleep(self._pause(failures))

    def _pause(self, failures: int) -> float:
        first = self._settings.ledger_pause.total_seconds()
        longest: float = first * min(2.0 ** min(failures - 1, 10), 25.0)
        # Jitter from the token source, so that a test owns this chance as well.
        return longest * (0.5 + int(self._new_token()[:4], 16) / 0x20000)

    async def _first_of(self, waiting: Awaitable[object]) -> None:
        await self._unless_draining(asyncio.ensure_future(waiting))

    async def _unless_draining(self, future: asyncio.Future[_Answer]) -> _Answer | None:
        """Wait for the future, or for the drain, which cancels it."""
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((future, draining), return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            return None
        finally:
            draining.cancel()
            if not future.done():
                future.cancel()
                await asyncio.gather(future, return_exceptions=True)

    @staticmethod
    def _milliseconds(duration: timedelta) -> int:
        return round(duration / timedelta(milliseconds=1))
