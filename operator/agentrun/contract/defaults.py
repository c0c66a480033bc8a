"""Every number the product assumes when nobody says otherwise, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from agentrun.contract.run import Priority
from agentrun.contract.tool import AfterLast, Reach


@dataclass(frozen=True, slots=True)
class PriorityDefaults:
    """What a priority implies: the bound of a node's active time, its retries, and what follows the last one."""

    timeout: timedelta
    retries: int
    after_last: AfterLast
    ages_after: timedelta | None
    """Waiting longer than this raises the effective priority by one step (never to P0)."""


PRIORITIES: dict[Priority, PriorityDefaults] = {
    Priority.P0: PriorityDefaults(timedelta(seconds=30), 2, AfterLast.HUMAN, None),
    Priority.P1: PriorityDefaults(timedelta(seconds=60), 2, AfterLast.ASK, None),
    Priority.P2: PriorityDefaults(timedelta(seconds=180), 1, AfterLast.DEAD, timedelta(minutes=3)),
    Priority.P3: PriorityDefaults(timedelta(seconds=600), 0, AfterLast.DROP, timedelta(minutes=5)),
}
DEFAULT_PRIORITY = Priority.P2

ATTEMPT_TIMEOUT: dict[Reach, timedelta] = {
    Reach.INTERNAL: timedelta(seconds=15),
    Reach.EXTERNAL: timedelta(seconds=20),
}
RUN_TIMEOUT = timedelta(minutes=30)
DEPENDENCY_WAIT = timedelta(minutes=30)
QUEUE_WAIT = timedelta(minutes=30)
RECOVERY_WAIT = timedelta(minutes=5)
INBOX_WAIT = timedelta(hours=72)
MAX_SUSPENDED = timedelta(days=7)
IDEMPOTENCY_WINDOW = timedelta(days=30)
LOOKUP_POLL = timedelta(seconds=2)
BUSY_RECHECK = timedelta(seconds=30)
"""A node that waits for a busy record looks again this often, should the report that frees it be lost."""

HEARTBEAT_INTERVAL = timedelta(seconds=5)
HEARTBEAT_SILENCE = timedelta(seconds=30)
SLOT_LEASE = timedelta(seconds=60)
"""How long a slot is held without renewal, by heartbeat or by the scheduler."""
CLAIM_WITHIN = timedelta(seconds=60)
"""An order nobody claimed for this long is withdrawn and sent again."""
MAX_DELIVERIES = 3
"""Deliveries of one order without a claim before it is poison."""

BACKOFF_INITIAL = timedelta(seconds=1)
BACKOFF_FACTOR = 2
BACKOFF_MAX = timedelta(seconds=30)

PARAMS_MAX_BYTES = 64 * 1024
RESULT_MAX_BYTES = 96 * 1024
NODE_MAX_BYTES = 128 * 1024
RUN_SPEC_MAX_BYTES = 512 * 1024
RAW_OUTPUT_MAX_CHARS = 2048
