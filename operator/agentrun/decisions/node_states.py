"""The node state machine, written once, as data.

Everything that moves a node asks :func:`find_row`; the docs table, metrics and the tests' coverage report are made from
:data:`TRANSITIONS`. A move that has no row here is a programming error and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.contract.failures import Reason
from agentrun.contract.node import TERMINAL_NODE_PHASES, NodePhase

R = Reason
P = NodePhase


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """One permitted move: from where, to where, for which reasons, and when in words."""

    from_phase: NodePhase
    to_phase: NodePhase
    reasons: frozenset[str]
    when: str

    @property
    def name(self) -> str:
        """Return how the row is named in reports: ``Pending -> Ready``."""
        return f"{self.from_phase} -> {self.to_phase}"


class IllegalTransitionError(Exception):
    """A move that the table does not hold was tried."""

    def __init__(self, from_phase: NodePhase, to_phase: NodePhase, reason: str) -> None:
        super().__init__(f"no transition {from_phase} -> {to_phase} for reason {reason}")


def _row(from_phase: NodePhase, to_phase: NodePhase, when: str, *reasons: Reason) -> TransitionRow:
    return TransitionRow(from_phase, to_phase, frozenset(str(reason) for reason in reasons), when)


_FAILURE_REASONS = tuple(
    reason
    for reason in Reason
    if reason
    in {
        R.CONNECTION_REFUSED, R.CONNECTION_LOST, R.ADDRESS_REFUSED, R.HTTP_STATUS, R.RATE_LIMITED, R.SECRET_MISSING,
        R.TOOL_FAILED, R.TOOL_NOT_LOADABLE, R.TOOL_CRASHED, R.INVALID_ANSWER, R.RESULT_INVALID, R.RESULT_TOO_LARGE,
        R.ATTEMPT_TIMEOUT, R.NOT_DURABLE, R.PARAMS_INVALID, R.DEADLINE_EXCEEDED, R.RECOVERED_NOT_EXECUTED, R.EFFECT_UNKNOWN,
    }
)  # fmt: skip
"""What an attempt can fail with; tools' own reasons are reported as ToolFailed with the tool's word in the message."""

TRANSITIONS: tuple[TransitionRow, ...] = (
    _row(P.PENDING, P.READY, "the run is admitted and the join rule is met by upstream nodes that ended", R.DEPENDENCIES_MET),
    _row(P.PENDING, P.SUCCEEDED, "a finished node of the run that this one continues was adopted (retryOf)", R.ADOPTED),
    _row(P.PENDING, P.SKIPPED, "a condition chose another branch; an upstream was skipped and the rule hands that on; all upstream nodes ended and the rule cannot be met", R.NOT_CHOSEN, R.UPSTREAM_SKIPPED, R.JOIN_UNSATISFIABLE),
    _row(P.PENDING, P.QUARANTINED, "the wait for upstream nodes passed its maximum; a reference cannot be resolved", R.DEPENDENCY_WAIT_EXCEEDED, R.REFERENCE_UNRESOLVED),
    _row(P.READY, P.QUEUED, "params passed the gate, slot and budget were taken, the order was appended", R.DISPATCHED),
    _row(P.READY, P.SUCCEEDED, "a Condition or Join was evaluated by the scheduler", R.CONDITION_MET, R.JOIN_MET),
    _row(P.READY, P.FAILED, "a Condition could not be evaluated; a fan-out has too many items; the budget is exhausted, the backlog full, the queue wait passed, the run's deadline reached: no attempt was used", R.CONDITION_ERROR, R.TOO_MANY_ITEMS, R.BUDGET_EXHAUSTED, R.BACKLOG_FULL, R.QUEUE_WAIT_EXCEEDED, R.DEADLINE_EXCEEDED),
    _row(P.READY, P.EXPANDED, "a FanOut's children exist", R.EXPANDED),
    _row(P.READY, P.WAITING_APPROVAL, "the tool's policy asks for a human (decided on the final params), or it is an Approval node", R.APPROVAL_REQUIRED),
    _row(P.READY, P.QUARANTINED, "the params gate failed; the tool has no definition any more; the idempotency record was held by another for too long", R.TOOL_NOT_FOUND, R.PARAMS_INVALID, R.PARAMS_TOO_LARGE, R.REFERENCE_UNRESOLVED, R.HELD_BY_OTHER),
    _row(P.QUEUED, P.RUNNING, "a worker claimed it at the gate", R.CLAIMED),
    _row(P.QUEUED, P.READY, "dispatch was refused; the order was lost or never claimed in time; the gate answered busy; the worker handed it back: after it was withdrawn", R.HANDED_BACK, R.ORDER_LOST, R.NEVER_CLAIMED),
    _row(P.QUEUED, P.SUCCEEDED, "the gate answered replay: an equal call's result counts", R.REPLAYED),
    _row(P.QUEUED, P.TIMED_OUT, "the gate answered recover: a Once call stands under this key with an open or useless outcome; or the ledger was lost while the order was out", R.EFFECT_UNKNOWN, R.LEDGER_LOST),
    _row(P.QUEUED, P.QUARANTINED, "the gate answered conflict (same key, other params); the order is poison", R.CONFLICT, R.POISON_ORDER),
    _row(P.QUEUED, P.FAILED, "the deadline passed before the claim (no attempt used); a duplicate is to be rejected", R.DEADLINE_EXCEEDED, R.QUEUE_WAIT_EXCEEDED, R.DUPLICATE_REJECTED),
    _row(P.QUEUED, P.WAITING_APPROVAL, "a duplicate is to be asked about", R.DUPLICATE_ASKED),
    _row(P.RUNNING, P.SUCCEEDED, "committed under the current claim", R.COMPLETED),
    _row(P.RUNNING, P.FAILED, "a failure was committed with its class and effect", *_FAILURE_REASONS),
    _row(P.RUNNING, P.READY, "the worker undid its claim before anything was executed (drain)", R.HANDED_BACK),
    _row(P.RUNNING, P.TIMED_OUT, "the attempt's deadline and one heartbeat passed without a report; no heartbeat came for too long; the worker of a Once tool reported the effect as unknown; the worker that had found it still being executed gave the recovery back (drain)", R.ATTEMPT_TIMEOUT, R.HEARTBEAT_LOST, R.EFFECT_UNKNOWN, R.LEDGER_LOST, R.HANDED_BACK),
    _row(P.TIMED_OUT, P.RUNNING, "the recovery found it still executing and adopted it: it polls and commits, it never executes", R.RECOVERED_RUNNING),
    _row(P.RUNNING, P.QUARANTINED, "an adopted call's outcome stayed unknown and the tool is Once", R.OUTCOME_UNKNOWN),
    _row(P.TIMED_OUT, P.SUCCEEDED, "the recovery established that it completed", R.RECOVERED_COMPLETED),
    _row(P.TIMED_OUT, P.FAILED, "the recovery established that it was not executed; or the tool has no side effect or is idempotent", R.RECOVERED_NOT_EXECUTED, R.ATTEMPT_TIMEOUT, R.HEARTBEAT_LOST, R.EFFECT_UNKNOWN, R.LEDGER_LOST),
    _row(P.TIMED_OUT, P.QUARANTINED, "the outcome stayed unknown and the tool is Once", R.OUTCOME_UNKNOWN),
    _row(P.FAILED, P.DEAD, "rejected or expired; nothing else applies (tolerated under Continue); dropped after the last retry", R.REJECTED, R.EXPIRED, R.NODE_FAILED, R.RETRIES_EXHAUSTED, R.TOLERATED, R.DROPPED, R.TOO_MANY_ITEMS),
    _row(P.FAILED, P.SKIPPED, "the node is optional", R.OPTIONAL_FAILED),
    _row(P.FAILED, P.QUARANTINED, "a human is needed: by the failure's class, because the result was no use, or afterLast: Human", R.TOOL_FAILED, R.RESULT_INVALID, R.RETRIES_EXHAUSTED),
    _row(P.FAILED, P.RETRY_WAIT, "retryable, nothing was executed (or repeating is harmless), attempts left", R.RETRY_SCHEDULED),
    _row(P.FAILED, P.READY, "retries spent or budget exhausted, nothing executed, a cheaper tool is left on the ladder", R.DEGRADED),
    _row(P.FAILED, P.WAITING_APPROVAL, "retries spent and afterLast: Ask", R.RETRIES_EXHAUSTED),
    _row(P.RETRY_WAIT, P.READY, "due", R.RETRY_DUE),
    _row(P.WAITING_APPROVAL, P.READY, "approved; edited params go through the gate again", R.APPROVED, R.RETRY_GRANTED),
    _row(P.WAITING_APPROVAL, P.SUCCEEDED, "an Approval node was approved", R.APPROVED),
    _row(P.WAITING_APPROVAL, P.FAILED, "rejected or expired", R.REJECTED, R.EXPIRED),
    _row(P.QUARANTINED, P.READY, "released by a human (an unknown outcome was answered with NotExecuted), or the record had moved since it was asked about", R.RELEASED),
    _row(P.QUARANTINED, P.SUCCEEDED, "resolved by a human with a result", R.RESOLVED),
    _row(P.QUARANTINED, P.DEAD, "discarded by a human, or expired", R.DISCARDED, R.EXPIRED),
    _row(P.EXPANDED, P.SUCCEEDED, "the join rule over the children is met (no children: at once)", R.JOIN_MET),
    _row(P.EXPANDED, P.FAILED, "the join rule over the children cannot be met any more", R.CHILDREN_FAILED),
    _row(P.DEAD, P.READY, "re-driven by a human while the run lives", R.REDRIVEN),
    *(
        _row(phase, P.CANCELLED, "the run ended, or the parent needs it no more", R.CANCELLED, R.RUN_ENDED, R.NO_LONGER_NEEDED)
        for phase in NodePhase
        if phase not in TERMINAL_NODE_PHASES
    ),
)  # fmt: skip

_BY_MOVE: dict[tuple[NodePhase, NodePhase], TransitionRow] = {
    (row.from_phase, row.to_phase): row for row in TRANSITIONS
}


def find_row(from_phase: NodePhase, to_phase: NodePhase, reason: str) -> TransitionRow:
    """Return the row that permits a move. Raises :class:`IllegalTransitionError` when there is none."""
    row = _BY_MOVE.get((from_phase, to_phase))
    if row is None or reason not in row.reasons:
        raise IllegalTransitionError(from_phase, to_phase, reason)
    return row
