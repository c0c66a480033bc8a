"""One attempt: from a claimed order to the outcome that is committed. Gates the result; decides nothing further."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from agentrun.contract.defaults import RAW_OUTPUT_MAX_CHARS, RESULT_MAX_BYTES
from agentrun.contract.exact_json import JsonObject, canonical_json
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun.contract.tool import AgentToolSpec, ToolType
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.executor import Executor, ToolCall
from agentrun_worker.outcomes import failed, not_started, useless

_log = structlog.get_logger("agentrun.worker")


@dataclass(slots=True)
class CallWindow:
    """When a call may begin and how long it may take, on the running loop's clock; and the word to stop."""

    deadline: float
    send_before: float
    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    interruption: tuple[Reason, str] | None = None
    """Why the call was interrupted; executors only know that it was."""

    def interrupt(self, reason: Reason, said: str) -> None:
        """End the call at once. The first reason stays."""
        if not self.cancelled.is_set():
            self.interruption = (reason, said)
            self.stop_requested.set()
            self.cancelled.set()


class AttemptMaker:
    """Makes calls with the executor of the tool's type and gates what comes back."""

    def __init__(self, executors: Mapping[ToolType, Executor], validator: SchemaValidator) -> None:
        self._executors = executors
        self._validator = validator

    async def make(
        self,
        name: str,
        tool: AgentToolSpec,
        params: JsonObject,
        request_id: str,
        key: str,
        window: CallWindow,
        cost: Amount,
    ) -> AttemptOutcome:
        """Make one call and return its outcome, with duration and usage.

        ``cost`` is booked for a call that was executed and reports no usage of its own. Of an unknown outcome without
        usage the ledger books the hold as an estimate.
        """
        executor = self._executors.get(tool.type)
        if executor is None:
            return not_started(Reason.TOOL_NOT_LOADABLE, _explain_missing(tool.type))
        loop = asyncio.get_running_loop()
        began = loop.time()
        call = ToolCall(
            tool_name=name,
            tool=tool,
            params=params,
            request_id=request_id,
            idempotency_key=key,
            deadline=window.deadline,
            send_before=window.send_before,
            cancelled=window.cancelled,
            stop_requested=window.stop_requested,
        )
        try:
            outcome = await executor.execute(call)
        except Exception as error:  # noqa: BLE001 - an executor's own bug: nobody knows what happened
            # Its message may hold anything, secrets included; type and place are enough to find the bug.
            place = "".join(traceback.format_tb(error.__traceback__))
            _log.error("executor_failed", tool=name, request=request_id, error=type(error).__name__, place=place)
            said = f"the executor failed: {type(error).__name__}"
            outcome = failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED, said)
        outcome = _with_cause(self.gate(tool, outcome), window)
        if "usage" not in outcome.model_fields_set:
            used = cost if outcome.effect is Effect.EXECUTED else Amount()
            outcome = outcome.model_copy(update={"usage": used})
        return outcome.model_copy(update={"duration_ms": max(0, round((loop.time() - began) * 1000))})

    def gate(self, tool: AgentToolSpec, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome, or that it is no use: a result that is too large or misses the tool's schema."""
        if not outcome.succeeded:
            return outcome
        text = canonical_json(outcome.result)
        size = len(text.encode())
        if size > RESULT_MAX_BYTES:
            said = f"the result has {size} bytes, at most {RESULT_MAX_BYTES} are kept: return a reference to it"
            return _useless(outcome, Reason.RESULT_TOO_LARGE, said, text)
        if tool.result is None:
            return outcome
        problems = self._validator.validate(tool.result.schema_, outcome.result)
        if problems:
            said = "; ".join(f"result{_at(problem.path)}: {problem.message}" for problem in problems)
            return _useless(outcome, Reason.RESULT_INVALID, said, text)
        return outcome


def _explain_missing(kind: ToolType) -> str:
    if kind is ToolType.CONTAINER:
        where = "in a Job of an operator that makes Jobs (chart value jobs.enabled)"
        return f"a tool of type container runs {where}, and nowhere else"
    return f"this worker has no executor for type {kind}"


def _useless(outcome: AttemptOutcome, reason: Reason, said: str, text: str) -> AttemptOutcome:
    found = useless(reason, said, text[:RAW_OUTPUT_MAX_CHARS])
    # What it cost stays true whatever the answer is worth.
    return found.model_copy(update={"usage": outcome.usage}) if "usage" in outcome.model_fields_set else found


def _with_cause(outcome: AttemptOutcome, window: CallWindow) -> AttemptOutcome:
    """Replace an executor's bare "cancelled" by what the worker knows about it."""
    failure = outcome.failure
    if failure is None or window.interruption is None or failure.reason != Reason.CANCELLED:
        return outcome
    reason, said = window.interruption
    told = Failure(
        effect=failure.effect,
        failure_class=failure.failure_class,
        reason=reason,
        message=f"{said}: {failure.message}",
        retry_after_ms=failure.retry_after_ms,
    )
    return outcome.model_copy(update={"failure": told})


def _at(path: str) -> str:
    return f".{path}" if path and not path.startswith("[") else path
