"""What the ending of a Python function means: effect, class, reason and result. Pure."""

from __future__ import annotations

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.money import parse_micros
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun_worker.outcomes import failed, not_started, succeeded, useless
from agentrun_worker.redaction import Redactor

_LARGEST = 2**62


def read_ending(ending: JsonObject, redactor: Redactor) -> AttemptOutcome:
    """Return the outcome. Raises :class:`ValueError` and its kin for what is no ending at all."""
    outcome = _outcome(ending, redactor)
    usage = ending.get("usage")
    if usage is None:
        return outcome
    used = Amount(
        micros=min(parse_micros(usage["cost"]), _LARGEST),
        tokens=min(usage["tokens"], _LARGEST),
        model_calls=min(usage["modelCalls"], _LARGEST),
    )
    return outcome.model_copy(update={"usage": used})


def _outcome(ending: JsonObject, redactor: Redactor) -> AttemptOutcome:
    if "value" in ending:
        return succeeded(redactor.value(ending["value"]))
    if "notLoadable" in ending:
        return not_started(Reason.TOOL_NOT_LOADABLE, redactor.fragment(ending["notLoadable"]))
    if "refused" in ending:
        said = f"the function returned what JSON cannot carry: {redactor.fragment(ending['refused'])}"
        return useless(Reason.INVALID_ANSWER, said, redactor.fragment(ending["shown"]))
    if "tooLarge" in ending:
        said = f"the result has {ending['tooLarge']} bytes: return a reference to it"
        return useless(Reason.RESULT_TOO_LARGE, said, redactor.fragment(ending["shown"]))
    raised = ending["raised"]
    message = redactor.fragment(raised["message"])
    if "class" not in raised:
        trace = redactor.fragment(raised["trace"])
        return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_FAILED, message, raw_output=trace)
    return failed(
        Effect(raised["effect"]),
        FailureClass(raised["class"]),
        redactor.fragment(raised["reason"]),
        message,
        retry_after_ms=max(0, raised["retryAfterMs"]) or None,
    )
