"""When a retry is due: exponential backoff with full jitter, the provider's Retry-After, capped by the deadline.

Called when a node enters RetryWait. How many retries there are, and what follows the last, is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from agentrun.contract.defaults import BACKOFF_FACTOR, BACKOFF_INITIAL, BACKOFF_MAX


@dataclass(frozen=True, slots=True)
class BackoffCurve:
    """The longest wait before each retry: ``initial * factor^retry``, at most ``max``."""

    initial: timedelta = BACKOFF_INITIAL
    factor: int = BACKOFF_FACTOR
    max: timedelta = BACKOFF_MAX

    def ceiling(self, retry: int) -> timedelta:
        """Return the longest wait before retry number ``retry``, counted from 0."""
        wait = min(self.initial, self.max)
        # Step by step: a power of a large retry number would overflow long before it is capped.
        for _ in range(retry):
            if wait >= self.max or self.factor == 1:
                break
            wait = min(wait * self.factor, self.max)
        return wait


@dataclass(frozen=True, slots=True)
class RetryDue:
    """When the next attempt may start."""

    at: datetime
    cut_by_deadline: bool
    """The wait would have passed the deadline, at which the node ends: no attempt starts then."""


def plan_retry(
    curve: BackoffCurve,
    retry: int,
    fraction: float,
    now: datetime,
    *,
    retry_after: timedelta | None = None,
    deadline: datetime | None = None,
) -> RetryDue:
    """Return when retry number ``retry`` (from 0) is due.

    ``fraction`` is a fresh random number in [0, 1): full jitter picks evenly between no wait and the curve's ceiling
    (AWS Architecture Blog, Exponential Backoff and Jitter). A ``retry_after`` of the provider is waited for at least,
    and neither passes the ``deadline``.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction {fraction} is not in [0, 1)")
    wait = max(curve.ceiling(retry) * fraction, retry_after or timedelta(0))
    due = now + wait
    if deadline is not None and due >= deadline:
        return RetryDue(max(deadline, now), cut_by_deadline=True)
    return RetryDue(due, cut_by_deadline=False)
