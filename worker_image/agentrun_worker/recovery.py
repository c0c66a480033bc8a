"""Finding out what became of a call that nobody saw end: evidence first, then the tool's lookup. Never executes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentrun.contract.defaults import ATTEMPT_TIMEOUT
from agentrun.contract.exact_json import JsonValue, canonical_json
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import Amount, AttemptOutcome, LookupOrder, Order
from agentrun.contract.tool import AgentToolSpec, LookupOutcome, LookupOutcomes
from agentrun.decisions.conditions import ConditionError, NamedValues, evaluate_test
from agentrun.decisions.value_paths import Found, lookup_path, parse_path
from agentrun.ledger.port import ClaimAnswer, RecordStatus
from agentrun_worker.attempt import AttemptMaker, CallWindow
from agentrun_worker.outcomes import failed, succeeded

_SHOWN = 500


class Recoverer:
    """Carries recovery orders out."""

    def __init__(self, maker: AttemptMaker) -> None:
        self._maker = maker

    async def recover(
        self,
        order: Order,
        tool: AgentToolSpec,
        lookup_tool: AgentToolSpec | None,
        answer: ClaimAnswer,
        window: CallWindow,
        adopt: Callable[[], Awaitable[bool]],
    ) -> AttemptOutcome:
        """Return what is known about the call in question.

        ``adopt`` is awaited once when the lookup says that it is still running; it is then asked again until the
        window ends.
        """
        known = _from_record(answer)
        if known is not None:
            return known
        if order.lookup is None or lookup_tool is None or tool.recovery is None:
            return _unknown("the tool has no lookup, so nobody can be asked")
        outcomes = tool.recovery.outcome
        adopted = False
        said = "the lookup was never answered"
        running = "the lookup says that it is still running"
        loop = asyncio.get_running_loop()
        while loop.time() < window.deadline and not window.cancelled.is_set():
            reading = await self._ask(order, order.lookup, lookup_tool, window)
            if not reading.succeeded:
                failure = reading.failure
                why = f"the lookup failed: {failure.message if failure else ''}"
                return _unknown(f"{running}; then {why}" if said == running else why, reading.raw_output)
            verdict, detail = _read(outcomes, reading.result)
            match verdict:
                case "completed":
                    return _completed(outcomes.completed, reading.result, tool, self._maker)
                case "notExecuted":
                    return _not_executed(tool, answer, reading.result)
                case "running":
                    said = running
                    if not adopted:
                        adopted = await adopt()
                case _:
                    return _unknown(detail, _shown(reading.result))
            await _pause(order.lookup.poll_ms / 1000, window)
        return _unknown(said)

    async def _ask(
        self, order: Order, lookup: LookupOrder, lookup_tool: AgentToolSpec, window: CallWindow
    ) -> AttemptOutcome:
        loop = asyncio.get_running_loop()
        timeout = lookup_tool.timeout or ATTEMPT_TIMEOUT[lookup_tool.reach]
        ends = min(window.deadline, loop.time() + timeout.total_seconds())
        # It may begin as long as the claim is kept alive: asking changes nothing.
        asked = CallWindow(ends, ends, window.stop_requested, window.cancelled)
        return await self._maker.make(
            lookup.tool,
            lookup_tool,
            lookup.params,
            f"{order.request_id}-lookup",
            f"{order.record.key}-lookup",
            asked,
            Amount(),
        )


def _from_record(answer: ClaimAnswer) -> AttemptOutcome | None:
    # What the fenced worker itself brought late is the best witness there is.
    evidence = answer.evidence
    if evidence is not None and evidence.effect is not Effect.UNKNOWN:
        return evidence
    record = answer.previous
    if record is None:
        return None
    if record.status in (RecordStatus.SUCCESS, RecordStatus.EXECUTED, RecordStatus.FAILED):
        return record.outcome
    return None


def _read(outcomes: LookupOutcomes, result: JsonValue) -> tuple[str, str]:
    """Return the first outcome whose test holds, or why none does."""
    scope = NamedValues({"result": result})
    problems: list[str] = []
    for name, outcome in (
        ("completed", outcomes.completed),
        ("running", outcomes.running),
        ("notExecuted", outcomes.not_executed),
    ):
        if outcome is None:
            continue
        try:
            if evaluate_test(outcome.when, scope):
                return name, ""
        except ConditionError as error:
            problems.append(str(error))
    return "unknown", "; ".join(problems) or "the lookup's answer matches none of completed, running, notExecuted"


def _completed(
    outcome: LookupOutcome | None, result: JsonValue, tool: AgentToolSpec, maker: AttemptMaker
) -> AttemptOutcome:
    value = result
    if outcome is not None and outcome.result is not None:
        path = parse_path(outcome.result)
        found = lookup_path({"result": result}, path)
        if not isinstance(found, Found):
            said = f"the lookup says completed, but its answer has no {outcome.result}"
            return failed(
                Effect.EXECUTED, FailureClass.PERMANENT, Reason.RESULT_INVALID, said, raw_output=_shown(result)
            )
        value = found.value
    return maker.gate(tool, succeeded(value))


def _not_executed(tool: AgentToolSpec, answer: ClaimAnswer, result: JsonValue) -> AttemptOutcome:
    deduplicates = tool.idempotency is not None and tool.idempotency.provider_deduplicates
    if answer.previous_worker_gone or deduplicates:
        said = "the lookup says that it was not executed"
        return failed(Effect.NOT_EXECUTED, FailureClass.RETRYABLE, Reason.RECOVERED_NOT_EXECUTED, said)
    # The old worker may still be about to send: what is not there now may be there in a moment.
    return _unknown(
        "the lookup says that it was not executed, but the worker that had the call is not proven gone",
        _shown(result),
    )


def _unknown(said: str, raw_output: str = "") -> AttemptOutcome:
    return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.OUTCOME_UNKNOWN, said, raw_output=raw_output)


def _shown(value: JsonValue) -> str:
    return canonical_json(value)[:_SHOWN]


async def _pause(seconds: float, window: CallWindow) -> None:
    left = window.deadline - asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(max(0.0, min(seconds, left))):
            await window.cancelled.wait()
    except TimeoutError:
        return
