"""What a run's status says about waiting: which limits hold its nodes back, since when, and when people are told.

Asked by the engine whenever a run's status is brought up to date. Whom a human or the run's own tree makes wait is not
among these: inboxes and counts show that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agentrun.contract.model_base import cut_text
from agentrun.contract.run import MAX_WAITS_SHOWN, RunWait

TOLD_AFTER = timedelta(minutes=1)
"""A wait that lasts longer than this becomes an Event."""
TOLD_AGAIN = timedelta(minutes=30)
"""An API server keeps Events for an hour: while the wait lasts there is one."""
_MESSAGE_LIMIT = 1024
_POOL = "Pool("
_JOB = "Job("
_OWN_TREE = ("Suspended", "Children", "Human", "FanOut(", "Approval(")
"""What the run itself, its tree or a human makes a node wait for."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds nodes back at this moment."""

    counts: Mapping[str, int]
    """Nodes by what they wait for."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """What is known about how such a wait ends."""


def find_limit(waiting_for: str) -> str:
    """Return the limit or holder that a node's ``waitingFor`` names; empty where it is the run's own matter."""
    limit = waiting_for.partition(" as ")[0]
    return "" if limit.startswith(_OWN_TREE) else limit


def find_pool(limit: str) -> str:
    """Return the pool that a limit names, as the ledger names it; empty where it is another limit."""
    return limit.removeprefix(_POOL)[:-1] if limit.startswith(_POOL) else ""


def job_limit(tool: str) -> str:
    """Return what a node waits for whose order is sent once the pod of its Job has started."""
    return f"{_JOB}{tool})"


def waits_for_job(limit: str) -> bool:
    """Tell whether a limit is the start of a Job's pod."""
    return limit.startswith(_JOB)


def build_waits(holding: Holding, since: Mapping[str, datetime], now: datetime) -> tuple[RunWait, ...]:
    """Return the waits to show, the longest first, then by name; ``since``: when those that go on began."""
    found = [limit for limit, count in holding.counts.items() if count > 0]
    return tuple(
        RunWait(
            waiting_for=cut_text(limit, _MESSAGE_LIMIT),
            nodes=holding.counts[limit],
            since=since.get(limit, now),
            message=cut_text(holding.messages.get(limit, ""), _MESSAGE_LIMIT),
        )
        for limit in heapq.nsmallest(MAX_WAITS_SHOWN, found, key=lambda limit: (since.get(limit, now), limit))
    )


def find_untold(waits: Iterable[RunWait], told: Mapping[str, datetime], now: datetime) -> list[RunWait]:
    """Return the waits that people are to be told of now; ``told``: when they were told of each last."""
    return [wait for wait in waits if now >= _tell_at(wait, told)]


def find_next_telling(waits: Iterable[RunWait], told: Mapping[str, datetime]) -> datetime | None:
    """Return when people are to be told of a wait next, if all of them go on."""
    return min((_tell_at(wait, told) for wait in waits), default=None)


def explain_pool(pool: str, namespace: str, announced: int, note: str = "") -> str:
    """Return what would end a wait for a pool; ``note``: what the operator knows of one that it keeps itself."""
    if announced:
        return f"the {announced} slots of pool {pool} in namespace {namespace} are taken"
    if note:
        return f"no worker of pool {pool} is announced in namespace {namespace}: {note}"
    return (
        f"no worker of pool {pool} is announced in namespace {namespace}; a worker serves one pool of one namespace: "
        f"agentrun-worker run --namespace {namespace} --pool {pool}"
    )


def _tell_at(wait: RunWait, told: Mapping[str, datetime]) -> datetime:
    last = told.get(wait.waiting_for)
    return wait.since + TOLD_AFTER if last is None else last + TOLD_AGAIN
