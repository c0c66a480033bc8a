"""How often a node is tried, how long it may be at work, what follows the last try: node's word, tool's, priority's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from agentrun.contract.defaults import BACKOFF_FACTOR, BACKOFF_INITIAL, BACKOFF_MAX, PRIORITIES
from agentrun.contract.node import AgentNodeStatus
from agentrun.contract.run import Priority, RunNode
from agentrun.contract.tool import AfterLast, AgentToolSpec, Backoff
from agentrun.decisions.retry_backoff import BackoffCurve


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The resolved policy of one node."""

    retries: int
    after_last: AfterLast
    curve: BackoffCurve
    active_limit: timedelta | None
    """For Running, TimedOut and RetryWait together; None where the node has a timeout of its own, which wins."""

    def attempts_left(self, status: AgentNodeStatus) -> int:
        """Return how many more attempts are allowed without a human's act."""
        used = status.attempt - status.attempts_before
        return max(0, 1 + self.retries + status.attempts_granted - used)


def find_retry_policy(node: RunNode, tool: AgentToolSpec | None, priority: Priority) -> RetryPolicy:
    """Resolve the policy field by field: the node's own, else the tool's, else the priority's."""
    defaults = PRIORITIES[priority]
    sources = [source for source in (node.retry, tool.retry if tool else None) if source is not None]
    backoffs = [source.backoff for source in sources if source.backoff is not None]
    return RetryPolicy(
        retries=next((source.limit for source in sources if source.limit is not None), defaults.retries),
        after_last=next(
            (source.after_last for source in sources if source.after_last is not None), defaults.after_last
        ),
        curve=BackoffCurve(
            initial=_first(backoffs, "initial", BACKOFF_INITIAL),
            factor=next((backoff.factor for backoff in backoffs if backoff.factor is not None), BACKOFF_FACTOR),
            max=_first(backoffs, "max", BACKOFF_MAX),
        ),
        active_limit=None if node.timeout is not None else defaults.timeout,
    )


def _first(backoffs: list[Backoff], field: str, default: timedelta) -> timedelta:
    for backoff in backoffs:
        value: timedelta | None = getattr(backoff, field)
        if value is not None:
            return value
    return default
