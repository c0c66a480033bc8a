"""One attempt: from a claimed order to the outcome that is committed. Gates the result; decides nothing further."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from agentrun.contract.defaults import RESULT_MAX_BYTES
from agentrun.contract.exact_json import JsonObject, canonical_json
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun.contract.tool import AgentToolSpec, ToolType
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.executor import Executor, ToolCall
from agentrun_worker.outcomes import failed, not_started, useless


@dataclass(frozen=True, slots=True)
class CallWindow:
    """When a call may begin and how long it may take, on the running loop's clock."""

    deadline: float
    send_before: float
    cancelled: asyncio.Event


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
        """Make one call and return its outcome, with duration and usage."""
        executor = self._executors.get(tool.type)
        if executor is None:
            return not_started(Reason.TOOL_NOT_LOADABLE, f"this worker has no executor for type {tool.type}")
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
        )
        try:
            outcome = await executor.execute(call)
        except Exception as error:  # noqa: BLE001 - an executor's own bug: nobody knows what happened
            said = f"the executor failed: {type(error).__name__}: {error}"
            outcome = failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED, said)
        outcome = self.gate(tool, outcome)
        duration_ms = max(0, round((loop.time() - began) * 1000))
        return outcome.model_copy(update={"duration_ms": duration_ms, "usage": _usage(outcome, cost)})

    def gate(self, tool: AgentToolSpec, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome, or that it is no use: a result that is too large or misses the tool's schema."""
        if not outcome.succeeded:
            return outcome
        text = canonical_json(outcome.result)
        size = len(text.encode())
        if size > RESULT_MAX_BYTES:
            said = f"the result has {size} bytes, at most {RESULT_MAX_BYTES} are kept: return a reference to it"
            return useless(Reason.RESULT_TOO_LARGE, said, text[:4096])
        if tool.result is None:
            return outcome
        problems = self._validator.validate(tool.result.schema_, outcome.result)
        if problems:
            said = "; ".join(f"result{_at(problem.path)}: {problem.message}" for problem in problems)
            return useless(Reason.RESULT_INVALID, said, text[:4096])
        return outcome


def _usage(outcome: AttemptOutcome, cost: Amount) -> Amount:
    reported = outcome.usage
    if reported.micros or reported.tokens or reported.model_calls:
        return reported
    # Of an unknown outcome the ledger books the hold as an estimate.
    return cost if outcome.effect is Effect.EXECUTED else Amount()


def _at(path: str) -> str:
    return f".{path}" if path and not path.startswith("[") else path
