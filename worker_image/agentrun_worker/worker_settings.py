"""The numbers of a worker's own pace: how often it is heard, how long it waits, how it stops."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from agentrun.contract.defaults import HEARTBEAT_INTERVAL


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What an operator may set about a worker."""

    heartbeat: timedelta = HEARTBEAT_INTERVAL
    take_block: timedelta = timedelta(seconds=2)
    """How long one look for orders waits."""
    longest_rate_wait: timedelta = timedelta(seconds=5)
    """A call that its tool's rate allows later than this is handed back."""
    closed_pause: timedelta = timedelta(seconds=1)
    """How long to wait before asking a closed gate again."""
    cancel_grace: timedelta = timedelta(seconds=5)
    """How long a cancelled call may take to end by itself before it is interrupted."""
    drain_grace: timedelta = timedelta(seconds=25)
    """How long calls under way may take after the worker was told to stop."""
    ledger_pause: timedelta = timedelta(milliseconds=200)
    """First pause after the ledger did not answer; it doubles up to 25 times that."""
    idle_patience: timedelta = timedelta(seconds=10)
    """How long a worker that is to end when idle waits for a ledger that does not answer."""
    tools_kept: int = 256
