"""Deadlines: how long an attempt, a phase and a run may last, and what standing still does to them.

All pure arithmetic; the defaults stand in ``agentrun.contract.defaults``. Which state has which deadline is the state
machine's business.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from agentrun.contract.defaults import ATTEMPT_TIMEOUT, HEARTBEAT_SILENCE, RUN_TIMEOUT
from agentrun.contract.tool import AgentToolSpec


def attempt_timeout(node_timeout: timedelta | None, tool: AgentToolSpec) -> timedelta:
    """Return the longest time of one attempt: the node's own, else the tool's, else its reach's."""
    if node_timeout is not None:
        return node_timeout
    if tool.timeout is not None:
        return tool.timeout
    return ATTEMPT_TIMEOUT[tool.reach]


def attempt_time_left(
    timeout: timedelta, active_limit: timedelta | None, active: timedelta, now: datetime, run_deadline: datetime | None
) -> timedelta:
    """Return how long an attempt that starts now may take: its timeout, cut by the node's active time and the run's.

    ``active`` is what the node has spent so far of ``active_limit`` (None: unlimited). Zero means that no attempt may
    start any more.
    """
    left = timeout
    if active_limit is not None:
        left = min(left, active_limit - active)
    if run_deadline is not None:
        left = min(left, run_deadline - now)
    return max(left, timedelta(0))


def run_deadline(started_at: datetime, timeout: timedelta | None, stood_still: timedelta) -> datetime:
    """Return when the run ends at the latest: its timeout (default 30 m) of time in which its clock ran."""
    return started_at + (RUN_TIMEOUT if timeout is None else timeout) + stood_still


def time_stood_still(before: timedelta | None, suspended_at: datetime | None, now: datetime) -> timedelta:
    """Return how long a clock has stood still in all: ``before``, and since ``suspended_at`` if it stands still now."""
    total = before or timedelta(0)
    if suspended_at is not None:
        total += max(now - suspended_at, timedelta(0))
    return total


def phase_deadline(
    entered_at: datetime, limit: timedelta, stood_still_at_entry: timedelta | None, stood_still: timedelta
) -> datetime:
    """Return when a phase that was entered then ends at the latest, moved by the time the clock stood still in it."""
    return entered_at + limit + max(stood_still - (stood_still_at_entry or timedelta(0)), timedelta(0))


def workers_heard_at(ledger_since: datetime | None, now: datetime) -> datetime | None:
    """Return when every worker has had the time to be heard, if that is still to come.

    What has happened while the ledger was away is told as soon as it is back: until then silence means nothing.
    """
    heard = ledger_since + HEARTBEAT_SILENCE if ledger_since is not None else None
    return heard if heard is not None and now < heard else None


def has_passed(deadline: datetime | None, now: datetime) -> bool:
    """Tell whether the deadline has come. At the very moment it has: one side wins, never both."""
    return deadline is not None and now >= deadline
