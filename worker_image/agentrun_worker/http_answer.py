"""What an HTTP answer means: effect, class and reason by status, and the result from the body. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agentrun.contract.exact_json import JsonRefusedError, parse_json
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import HttpCall
from agentrun_worker.outcomes import failed, succeeded, useless

_UNDECIDED_4XX = frozenset({408, 409})
"""4xx that do not say that nothing was done."""
_PASSING_4XX = frozenset({408, 425, 429})


def read_answer(
    call: HttpCall, status: int, content_type: str, body: bytes, retry_after: str, now: datetime
) -> AttemptOutcome:
    """Return what a whole answer means."""
    shown = body[:4096].decode("utf-8", "replace")
    if status not in range(200, 300) or status in call.not_executed_on:
        return _failure(call, status, shown, retry_after, now)
    if not body:
        return succeeded(None)
    media = content_type.split(";", 1)[0].strip().lower()
    if media != "application/json" and not media.endswith("+json"):
        said = f"status {status} with content type {media or '(none)'}, expected application/json"
        return useless(Reason.INVALID_ANSWER, said, shown)
    try:
        return succeeded(parse_json(body))
    except JsonRefusedError as error:
        return useless(Reason.INVALID_ANSWER, f"status {status} with a body that is no usable JSON: {error}", shown)


def read_cut_answer(call: HttpCall, status: int, problem: str, shown: str, reason: str) -> AttemptOutcome:
    """Return what an answer means of which only status and headers came."""
    if status in range(200, 300) and status not in call.not_executed_on:
        return useless(reason, f"status {status}, then {problem}", shown)
    return _failure(call, status, shown, "", datetime.now(UTC))


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
        return min(int(text), 10**9) * 1000
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round((moment - now).total_seconds() * 1000))


def _failure(call: HttpCall, status: int, shown: str, retry_after: str, now: datetime) -> AttemptOutcome:
    passing = status in _PASSING_4XX or status >= 500 or status in call.retry_on or status in call.not_executed_on
    reason = Reason.RATE_LIMITED if status == 429 else Reason.HTTP_STATUS
    return failed(
        effect_of(call, status),
        FailureClass.RETRYABLE if passing else FailureClass.PERMANENT,
        reason,
        f"status {status}: {shown[:300]}" if shown else f"status {status}",
        raw_output=shown,
        retry_after_ms=read_retry_after(retry_after, now) if retry_after else None,
    )
