"""What follows a failed attempt: the first fact that holds decides (retry, another tool, a human, the end)."""

from __future__ import annotations

from datetime import datetime, timedelta

from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.node import InboxKind, NodePhase
from agentrun.contract.run import FailurePolicy
from agentrun.contract.tool import AfterLast, SideEffect
from agentrun.decisions.facts import NodeFacts
from agentrun.decisions.inboxes import open_inbox
from agentrun.decisions.moves import Move
from agentrun.decisions.retry_backoff import plan_retry
from agentrun.decisions.retry_policy import RetryPolicy, find_retry_policy

_NO_ATTEMPT_USED = frozenset(
    {
        Reason.CONDITION_ERROR,
        Reason.TOO_MANY_ITEMS,
        Reason.BUDGET_EXHAUSTED,
        Reason.BACKLOG_FULL,
        Reason.QUEUE_WAIT_EXCEEDED,
        Reason.DUPLICATE_REJECTED,
    }
)


def decide_failed(facts: NodeFacts) -> Move:
    """Return where a Failed node goes; a Failed node never stays."""
    status = facts.status
    failure = status.failure or Failure(
        effect=Effect.UNKNOWN, failure_class=FailureClass.PERMANENT, reason=status.reason, message=status.message
    )
    node = facts.spec.node
    policy = find_retry_policy(node, facts.tool, status.priority)
    # A human said no, or said nothing in time.
    if failure.reason in (Reason.REJECTED, Reason.EXPIRED):
        return _skipped(failure) if node.optional else _dead(facts, failure, Reason(failure.reason))
    # The effect happened but its result is no use, or a business rule spoke: a human decides.
    if failure.effect is Effect.EXECUTED:
        return _quarantined(facts, failure, Reason.RESULT_INVALID, executed=True)
    if failure.failure_class is FailureClass.NEEDS_HUMAN:
        return _quarantined(facts, failure, Reason.TOOL_FAILED)
    # Repeating is allowed when nothing happened, or when the tool says that a repetition is harmless.
    harmless = facts.tool is not None and facts.tool.side_effect is not SideEffect.ONCE
    retryable = failure.failure_class is FailureClass.RETRYABLE and (failure.effect is Effect.NOT_EXECUTED or harmless)
    if retryable:
        due = _next_due(facts, policy, failure)
        if due is not None:
            left = policy.attempts_left(status)
            return Move(
                NodePhase.RETRY_WAIT, Reason.RETRY_SCHEDULED, f"{failure.message} ({left} left)", {"due_at": due}
            )
    spent = retryable
    # A cheaper tool may do, as long as nothing was executed.
    if (spent or failure.reason == Reason.BUDGET_EXHAUSTED) and failure.effect is Effect.NOT_EXECUTED:
        if status.degraded < len(facts.degrade_tools):
            return _degraded(facts, failure)
    if node.optional:
        return _skipped(failure)
    if spent:
        match policy.after_last:
            case AfterLast.HUMAN:
                return _quarantined(facts, failure, Reason.RETRIES_EXHAUSTED)
            case AfterLast.ASK:
                return Move(
                    NodePhase.WAITING_APPROVAL,
                    Reason.RETRIES_EXHAUSTED,
                    failure.message,
                    open_inbox(status, InboxKind.GRANT, facts.run.now, facts.run.waits.inbox),
                )
            case AfterLast.DROP:
                return Move(NodePhase.DEAD, Reason.DROPPED, failure.message, {"tolerated": _is_tolerated(facts)})
            case AfterLast.DEAD:
                pass
    if failure.reason == Reason.TOO_MANY_ITEMS:
        return _dead(facts, failure, Reason.TOO_MANY_ITEMS)
    return _dead(facts, failure, Reason.RETRIES_EXHAUSTED if spent else Reason.NODE_FAILED)


def failure_policy(facts: NodeFacts) -> FailurePolicy:
    """Return what the run does when this node is Dead: the node's own word, else the run's."""
    return facts.spec.node.on_failure or facts.run.spec.on_node_failure


def _next_due(facts: NodeFacts, policy: RetryPolicy, failure: Failure) -> datetime | None:
    """Return when the next attempt is due, or None when there is none: spent, or no time is left for it."""
    status, now = facts.status, facts.run.now
    if failure.reason in _NO_ATTEMPT_USED or policy.attempts_left(status) == 0:
        return None
    active_ends = None if policy.active_limit is None else now + policy.active_limit - (status.active or timedelta())
    deadlines = [moment for moment in (active_ends, facts.run.deadline) if moment is not None]
    due = plan_retry(
        policy.curve,
        max(0, status.attempt - status.attempts_before - 1),
        facts.jitter,
        now,
        retry_after=None if failure.retry_after_ms is None else timedelta(milliseconds=failure.retry_after_ms),
        deadline=min(deadlines, default=None),
    )
    return None if due.cut_by_deadline else due.at


def _degraded(facts: NodeFacts, failure: Failure) -> Move:
    status = facts.status
    cheaper = facts.degrade_tools[status.degraded]
    return Move(
        NodePhase.READY,
        Reason.DEGRADED,
        f"{cheaper} takes its place: {failure.message}",
        {"degraded": status.degraded + 1, "call": None, "attempts_before": status.attempt, "tool": None},
    )


def _skipped(failure: Failure) -> Move:
    return Move(NodePhase.SKIPPED, Reason.OPTIONAL_FAILED, failure.message)


def _quarantined(facts: NodeFacts, failure: Failure, reason: Reason, *, executed: bool = False) -> Move:
    unknown = failure.effect is Effect.UNKNOWN and (facts.tool is None or facts.tool.side_effect is SideEffect.ONCE)
    return Move(
        NodePhase.QUARANTINED,
        reason,
        failure.message,
        open_inbox(
            facts.status,
            InboxKind.QUARANTINE,
            facts.run.now,
            facts.run.waits.inbox,
            unknown_outcome=unknown,
            executed=executed,
        ),
    )


def _dead(facts: NodeFacts, failure: Failure, reason: Reason) -> Move:
    if _is_tolerated(facts):
        return Move(NodePhase.DEAD, reason, failure.message, {"tolerated": True})
    return Move(
        NodePhase.DEAD,
        reason,
        failure.message,
        open_inbox(facts.status, InboxKind.DEAD, facts.run.now, facts.run.waits.inbox),
    )


def _is_tolerated(facts: NodeFacts) -> bool:
    return failure_policy(facts) is FailurePolicy.CONTINUE
