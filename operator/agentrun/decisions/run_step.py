"""The next step of a run: its outcome, first match, and whether its clock stands still."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from agentrun.contract.failures import Reason
from agentrun.contract.node import INBOX_PHASES, TERMINAL_NODE_PHASES, NodePhase
from agentrun.contract.run import AgentRunSpec, AgentRunStatus, RunPhase
from agentrun.decisions.facts import Ending, WaitLimits

_ACTIVE = frozenset(
    {NodePhase.READY, NodePhase.QUEUED, NodePhase.RUNNING, NodePhase.TIMED_OUT, NodePhase.RETRY_WAIT, NodePhase.FAILED}
)

_ACTIVE_WHILE_HELD = _ACTIVE - {NodePhase.READY, NodePhase.RETRY_WAIT}


@dataclass(frozen=True, slots=True)
class RunView:
    """What a run's decision is made from; counts are kept by the engine, never rescanned."""

    spec: AgentRunSpec
    status: AgentRunStatus
    waits: WaitLimits
    now: datetime
    counts: Mapping[NodePhase, int]
    deadline: datetime | None
    deleted: bool
    ending: Ending | None
    limit_breaker: str = ""
    """The first node that is Dead because of a limit, and not tolerated."""
    aborting: str = ""
    """The first untolerated Dead node whose policy is Abort."""
    cause: str = ""
    """Why that node is Dead, for people: which node's failure it was, its reason and message."""
    suspending: int = 0
    """Dead nodes whose policy is Suspend."""
    record_waiters: int = 0
    """Ready nodes that wait for an idempotency record which another node holds."""
    held: bool = False
    """An open approval pauses the whole run: nothing that is Ready goes on."""


@dataclass(frozen=True, slots=True)
class RunDecision:
    """What the run is to be now."""

    phase: RunPhase
    reason: str
    message: str = ""
    ending: Ending | None = None
    """The outcome is decided; when no node is left to end, ``phase`` is it."""


def decide_run(view: RunView) -> RunDecision:
    """Return the run's phase and, once its outcome is decided, the ending."""
    open_nodes = sum(count for phase, count in view.counts.items() if phase not in TERMINAL_NODE_PHASES)
    ending = view.ending or find_ending(view)
    if ending is not None:
        if open_nodes:
            return RunDecision(RunPhase.RUNNING, ending.reason, ending.message, ending)
        return RunDecision(ending.phase, ending.reason, ending.message, ending)
    # A Dead node under Suspend holds the run open until somebody re-drives or discards it.
    if open_nodes == 0 and not view.suspending:
        done = Ending(RunPhase.SUCCEEDED, Reason.ALL_NODES_ENDED)
        return RunDecision(RunPhase.SUCCEEDED, Reason.ALL_NODES_ENDED, "", done)
    active = sum(view.counts.get(phase, 0) for phase in (_ACTIVE_WHILE_HELD if view.held else _ACTIVE))
    if view.spec.suspend:
        working = sum(view.counts.get(phase, 0) for phase in (NodePhase.QUEUED, NodePhase.RUNNING, NodePhase.TIMED_OUT))
        said = f"spec.suspend is true; {working} attempts are still ending" if working else "spec.suspend is true"
        return RunDecision(RunPhase.SUSPENDED, Reason.SUSPENDED, said)
    inboxes = sum(view.counts.get(phase, 0) for phase in INBOX_PHASES) + view.suspending
    # Who waits for a record whose owner waits for a human waits for that human.
    if inboxes and active == (0 if view.held else view.record_waiters):
        said = "1 node waits for a human" if inboxes == 1 else f"{inboxes} nodes wait for a human"
        return RunDecision(RunPhase.SUSPENDED, Reason.WAITING_FOR_HUMANS, said)
    return RunDecision(RunPhase.RUNNING, Reason.ADMITTED)


def find_ending(view: RunView) -> Ending | None:
    """Return the outcome that is decided whatever the nodes come to, or None."""
    if view.limit_breaker:
        return Ending(RunPhase.DEAD, Reason.TOO_MANY_ITEMS, f"node {view.limit_breaker} passed a limit{_why(view)}")
    if view.deleted:
        return Ending(RunPhase.CANCELLED, Reason.CANCELLED, "the run was deleted", cancels_running=True)
    if view.status.cancel_requested:
        return Ending(RunPhase.CANCELLED, Reason.CANCELLED, "spec.cancel was set", cancels_running=True)
    suspended = view.status.suspended_at is not None
    if suspended:
        stood = view.now - (view.status.suspended_at or view.now)
        if stood >= view.waits.suspended:
            return Ending(RunPhase.FAILED, Reason.SUSPENDED_TOO_LONG, f"stood still longer than {view.waits.suspended}")
    elif view.deadline is not None and view.now >= view.deadline:
        return Ending(RunPhase.FAILED, Reason.RUN_DEADLINE_EXCEEDED, "the run's time is over")
    if view.aborting:
        return Ending(RunPhase.FAILED, Reason.NODE_FAILED, f"node {view.aborting} is dead{_why(view)}")
    return None


def _why(view: RunView) -> str:
    return f": {view.cause}" if view.cause else ""
