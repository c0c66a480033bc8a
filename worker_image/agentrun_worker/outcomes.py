"""Building attempt outcomes: the few shapes in which every executor answers."""

from __future__ import annotations

from agentrun.contract.defaults import RAW_OUTPUT_MAX_CHARS
from agentrun.contract.exact_json import JsonValue
from agentrun.contract.failures import Effect, Failure, FailureClass
from agentrun.contract.model_base import cut_text
from agentrun.contract.orders import AttemptOutcome

_MESSAGE_CHARS = 1000


def succeeded(result: JsonValue) -> AttemptOutcome:
    """Return the outcome of a call that was made and gave a result."""
    return AttemptOutcome(effect=Effect.EXECUTED, result=result)


def failed(
    effect: Effect,
    failure_class: FailureClass,
    reason: str,
    message: str,
    *,
    raw_output: str = "",
    retry_after_ms: int | None = None,
) -> AttemptOutcome:
    """Return the outcome of a call that failed."""
    return AttemptOutcome(
        effect=effect,
        failure=Failure(
            effect=effect,
            failure_class=failure_class,
            reason=cut_text(reason, 128),
            message=cut_text(message, _MESSAGE_CHARS),
            retry_after_ms=retry_after_ms,
        ),
        raw_output=cut_text(raw_output, RAW_OUTPUT_MAX_CHARS),
    )


def not_started(reason: str, message: str, failure_class: FailureClass = FailureClass.PERMANENT) -> AttemptOutcome:
    """Return the outcome of a call of which nothing was sent or begun."""
    return failed(Effect.NOT_EXECUTED, failure_class, reason, message)


def useless(reason: str, message: str, raw_output: str) -> AttemptOutcome:
    """Return the outcome of a call that was executed and whose answer is no use."""
    return failed(Effect.EXECUTED, FailureClass.PERMANENT, reason, message, raw_output=raw_output)
