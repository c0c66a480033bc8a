"""What an HTTP answer means: effect, class and reason by status, and the result from the body. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agentrun.contract.defaults import RAW_OUTPUT_MAX_CHARS
from agentrun.contract.exact_json import JsonRefusedError, parse_json
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import HttpCall, SideEffect
from agentrun_worker.http_body import Body
from agentrun_worker.outcomes import failed, succeeded, useless
from agentrun_worker.redaction import Redactor

_UNDECIDED_4XX = frozenset({408, 409})
"""4xx that do not say that nothing was done."""
_PASSING_4XX = frozenset({408, 425, 429})
_QUOTED_CHARS = 300


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back."""

    status: int
    content_type: str
    retry_after: str
    body: Body


def read_answer(
    call: HttpCall, side_effect: SideEffect, answer: HttpAnswer, redactor: Redactor, now: datetime
) -> AttemptOutcome:
    """Return what an answer means. A result is not redacted yet, all other texts are."""
    shown = _shown(answer.body, redactor)
    status, body = answer.status, answer.body
    if status not in range(200, 300) or status in call.not_executed_on:
        return _failure(call, answer, shown, now)
    if body.lost and side_effect is SideEffect.NONE:
        # Nothing was done by asking, so the question may be asked again.
        said = f"status {status}, then {body.problem}"
        return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.CONNECTION_LOST, said, raw_output=shown)
    if body.problem:
        reason = Reason.RESULT_TOO_LARGE if body.too_large else Reason.INVALID_ANSWER
        return useless(reason, f"status {status}, then {body.problem}", shown)
    if not body.content:
        return succeeded(None)
    media = answer.content_type.split(";", 1)[0].strip().lower()
    if media != "application/json" and not media.endswith("+json"):
        said = f"status {status} with content type {redactor.text(media) or '(none)'}, expected application/json"
        return useless(Reason.INVALID_ANSWER, said, shown)
    try:
        return succeeded(parse_json(body.content))
    except JsonRefusedError as error:
        said = f"status {status} with a body that is no usable JSON: {redactor.fragment(str(error))}"
        return useless(Reason.INVALID_ANSWER, said, shown)


def effect_of(call: HttpCall, status: int) -> Effect:
    """Return whether the effect happened, by a status that is no success."""
    # The tool's author knows this provider better than any rule.
    if status in call.not_executed_on:
        return Effect.NOT_EXECUTED
    if 400 <= status < 500 and status not in _UNDECIDED_4XX:
        return Effect.NOT_EXECUTED
    return Effect.UNKNOWN


def read_retry_after(text: str, now: datetime) -> int | None:
    """Return Retry-After in milliseconds: seconds, or an HTTP date (RFC 9110, 10.2.3); None when it is neither."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:12]), 10**9) * 1000
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round((moment - now).total_seconds() * 1000))


def _failure(call: HttpCall, answer: HttpAnswer, shown: str, now: datetime) -> AttemptOutcome:
    status = answer.status
    passing = status in _PASSING_4XX or status >= 500 or status in call.retry_on or status in call.not_executed_on
    said = f"status {status}"
    if 300 <= status < 400:
        said += ": redirects are followed for GET and HEAD only"
    elif shown:
        said += f": {shown[:_QUOTED_CHARS]}"
    return failed(
        effect_of(call, status),
        FailureClass.RETRYABLE if passing else FailureClass.PERMANENT,
        Reason.RATE_LIMITED if status == 429 else Reason.HTTP_STATUS,
        said,
        raw_output=shown,
        retry_after_ms=read_retry_after(answer.retry_after, now) if answer.retry_after else None,
    )


def _shown(body: Body, redactor: Redactor) -> str:
    """Return the beginning of a body; secrets are taken out before the cut, which could go through one."""
    text = body.content.decode("utf-8", "replace")
    clean = redactor.fragment(text) if body.problem else redactor.text(text)
    return clean[:RAW_OUTPUT_MAX_CHARS]
