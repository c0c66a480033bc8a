"""One order, from its delivery to its commit: definition, gate, call, outcome.

Called by the worker for each delivery, as a task of its own. What may be done is the gate's answer, what follows is the
scheduler's: nothing is decided here but whether there is still time to begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from pydantic import ValidationError

from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import CONTRACT_VERSION, AttemptOutcome, OrderKind, ReportKind
from agentrun.contract.tool import AgentToolSpec
from agentrun.ledger.port import (
    Claim,
    ClaimAnswer,
    ClaimVerdict,
    CommitVerdict,
    Delivery,
    WorkerIdentity,
    WorkerLedger,
)
from agentrun_worker.attempt import AttemptMaker, CallWindow
from agentrun_worker.claim_keeper import ClaimKeeper, usable_seconds
from agentrun_worker.ledger_patience import LedgerPatience
from agentrun_worker.observer import (
    CallEnded,
    CallsInterrupted,
    CallsUnderWay,
    ClaimAnswered,
    CommitAnswered,
    HandedBack,
    WorkerObserver,
)
from agentrun_worker.outcomes import not_started
from agentrun_worker.recovery import Recoverer
from agentrun_worker.worker_settings import WorkerSettings

_log = structlog.get_logger("agentrun.worker")


class OrderHandler:
    """Carries orders out, any number at once."""

    def __init__(
        self,
        ledger: WorkerLedger,
        identity: WorkerIdentity,
        maker: AttemptMaker,
        settings: WorkerSettings,
        new_token: Callable[[], str],
        draining: asyncio.Event,
        observer: WorkerObserver,
    ) -> None:
        self._observer = observer
        self._ledger = ledger
        self._identity = identity
        self._maker = maker
        self._recoverer = Recoverer(maker)
        self._settings = settings
        self._patience = LedgerPatience(settings.ledger_pause, new_token, observer)
        self._keeper = ClaimKeeper(ledger, identity, settings, observer)
        self._new_token = new_token
        self._draining = draining
        self._tools: dict[str, AgentToolSpec] = {}
        self._open: dict[str, tuple[Claim, CallWindow]] = {}
        self.attempts_total = 0
        """Calls that were made, recoveries included."""
        self.interrupted_total = 0
        """Calls that the drain interrupted."""
        self.uncalled_total = 0
        """Orders that ended without a call: reported by the gate, or handed back. The scheduler may send them anew."""

    async def handle(self, delivery: Delivery) -> None:
        """Carry one order out; returns when the ledger knows its end, or that somebody else may have it."""
        order = delivery.order
        if order.contract_version > CONTRACT_VERSION:
            await self._hand_back(delivery, f"ContractVersion({order.contract_version})")
            return
        if self._draining.is_set():
            await self._hand_back(delivery, "Draining")
            return
        try:
            tool = await self._fetch_tool(order.namespace, order.tool_digest)
            lookup = await self._fetch_tool(order.namespace, order.lookup.tool_digest) if order.lookup else None
        except ValidationError as error:
            _log.error("definition_unreadable", tool=order.tool, faults=error.error_count())
            await self._hand_back(delivery, "DefinitionUnreadable")
            return
        if tool is None or (order.lookup is not None and lookup is None):
            await self._hand_back(delivery, "DefinitionMissing")
            return
        token = self._new_token()
        asked = await self._pass_gate(delivery, token)
        if asked is None:
            return
        answer, asked_at = asked
        claim = Claim(order, token, delivery.stream, delivery.entry_id)
        if self._draining.is_set():
            # Nothing has begun: somebody else does it, or holds the claim already.
            await self._abandon(claim, "Draining")
            return
        window = CallWindow(
            deadline=asked_at + answer.remaining_ms / 1000,
            send_before=asked_at + usable_seconds(answer.lease_ms),
        )
        outcome = await self._execute(claim, tool, lookup, answer, window)
        if answer.verdict is ClaimVerdict.RECOVER and window.interruption and outcome.effect is Effect.UNKNOWN:
            # It has only been asking: another worker may ask on, instead of a person.
            await self._abandon(claim, "Draining" if self._draining.is_set() else "ClaimLost")
            return
        await self._commit(claim, outcome)

    def let_recoveries_go(self) -> None:
        """End the recoveries under way: they have changed nothing, and are handed back."""
        for claim, window in self._open.values():
            if claim.order.kind is OrderKind.RECOVER:
                window.interrupt(Reason.CANCELLED, "the worker is draining")

    def interrupt_calls(self) -> None:
        """End the calls under way at once; what they did is still committed."""
        self._observer.note(CallsInterrupted(len(self._open)))
        for _, window in self._open.values():
            self.interrupted_total += 1
            window.interrupt(Reason.CANCELLED, "the worker was stopped and its grace period has passed")

    # --- the gate

    async def _pass_gate(self, delivery: Delivery, token: str) -> tuple[ClaimAnswer, float] | None:
        """Return the gate's leave and when it was asked for; None when the order is nothing to be done about."""
        loop = asyncio.get_running_loop()
        request = delivery.order.request_id
        asked_at = loop.time()
        asked = answered = 0

        async def ask() -> ClaimAnswer:
            nonlocal asked_at, asked
            asked_at = loop.time()
            asked += 1
            return await self._ledger.claim(self._identity, delivery, token)

        while True:
            answer = await self._patience.insist(ask, request=request)
            answered += 1
            self._observer.note(ClaimAnswered(answer.verdict))
            match answer.verdict:
                case ClaimVerdict.EXECUTE | ClaimVerdict.RECOVER:
                    return answer, asked_at
                case ClaimVerdict.STALE if asked > answered:
                    # One of the answers that got lost may have been the leave, and the claim was given up since then.
                    await self._abandon(Claim(delivery.order, token, delivery.stream, delivery.entry_id), "ClaimLost")
                    return None
                case ClaimVerdict.REPORTED | ClaimVerdict.STALE:
                    self.uncalled_total += 1
                    _log.info("not_executed", request=request, why=_why_not(answer))
                    return None
                case ClaimVerdict.WAIT_RATE:
                    wait = answer.wait_ms / 1000
                    if self._draining.is_set() or wait > self._settings.longest_rate_wait.total_seconds():
                        await self._hand_back(delivery, "Rate")
                        return None
                    await self._unless_draining(wait)
                case ClaimVerdict.LEDGER_CLOSED:
                    if self._draining.is_set():
                        # It stays pending under this worker's name and is taken over once it has retired.
                        return None
                    await self._unless_draining(self._settings.closed_pause.total_seconds())

    async def _unless_draining(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        except TimeoutError:
            return

    # --- the call

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
        self._open[claim.token] = (claim, window)
        self._observer.note(CallsUnderWay(len(self._open)))
        keeping = asyncio.create_task(self._keeper.keep(claim, window), name=f"keep {order.request_id}")
        try:
            if answer.verdict is ClaimVerdict.RECOVER:
                return await self._recoverer.recover(
                    order,
                    tool,
                    lookup,
                    answer,
                    window,
                    lambda: self._patience.insist(lambda: self._ledger.adopt(claim)),
                )
            if asyncio.get_running_loop().time() >= min(window.deadline, window.send_before):
                said = "the claim ran out before the call could begin"
                return not_started(Reason.ATTEMPT_TIMEOUT, said, FailureClass.RETRYABLE)
            outcome = await self._maker.make(
                order.tool, tool, order.params, order.request_id, order.record.key, window, order.cost
            )
            self._observer.note(CallEnded(order.tool, outcome))
            return outcome
        finally:
            del self._open[claim.token]
            self._observer.note(CallsUnderWay(len(self._open)))
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _commit(self, claim: Claim, outcome: AttemptOutcome) -> None:
        order, failure = claim.order, outcome.failure
        verdict = await self._patience.insist(lambda: self._ledger.commit(claim, outcome), request=order.request_id)
        self._observer.note(CommitAnswered(verdict))
        _log.info(
            "attempt_ended",
            request=order.request_id,
            run=order.run_name,
            node=order.node_path,
            attempt=order.attempt,
            effect=str(outcome.effect),
            reason=failure.reason if failure else "Completed",
            duration_ms=outcome.duration_ms,
            committed=verdict is CommitVerdict.COMMITTED,
        )

    # --- the ledger

    async def _fetch_tool(self, namespace: str, digest: str) -> AgentToolSpec | None:
        """Return a definition; a digest names its content, so one that is known never changes."""
        known = self._tools.get(digest)
        if known is not None:
            return known
        found = await self._patience.insist(lambda: self._ledger.fetch_tool(namespace, digest))
        if found is None:
            return None
        tool = AgentToolSpec.model_validate(found)
        while len(self._tools) >= self._settings.tools_kept:
            self._tools.pop(next(iter(self._tools)))
        self._tools[digest] = tool
        return tool

    async def _abandon(self, claim: Claim, reason: str) -> None:
        undone = await self._patience.insist(lambda: self._ledger.abandon_claim(claim, reason))
        self.uncalled_total += 1
        self._observer.note(HandedBack(reason))
        _log.info("claim_abandoned", request=claim.order.request_id, why=reason, undone=undone)

    async def _hand_back(self, delivery: Delivery, reason: str) -> None:
        _log.info("handed_back", request=delivery.order.request_id, why=reason)
        self._observer.note(HandedBack(reason))
        await self._patience.insist(lambda: self._ledger.hand_back(self._identity, delivery, reason))
        self.uncalled_total += 1


def _why_not(answer: ClaimAnswer) -> str:
    # What the gate commits itself is the one refusal that is an attempt's end: nothing proves its claim to be on disk.
    kind = answer.report_kind or "Stale"
    return str(Reason.NOT_DURABLE) if kind == str(ReportKind.COMMITTED) else kind
