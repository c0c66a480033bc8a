"""The failure taxonomy that both planes share: what happened outside, who acts next, and the named reasons."""

from __future__ import annotations

from enum import StrEnum

from agentrun.contract.model_base import ContractModel, LongText, ShortText


class Effect(StrEnum):
    """Whether the side effect of an attempt happened; every attempt ends with one of these."""

    NOT_EXECUTED = "NotExecuted"
    EXECUTED = "Executed"
    UNKNOWN = "Unknown"


class FailureClass(StrEnum):
    """Who acts next: the scheduler again, nobody, or a human."""

    RETRYABLE = "Retryable"
    PERMANENT = "Permanent"
    NEEDS_HUMAN = "NeedsHuman"


class Reason(StrEnum):
    """Every reason the product itself writes into a status or a report. Tools may add reasons of their own."""

    # admission of a run
    INVALID_SPEC = "InvalidSpec"
    INVALID_GRAPH = "InvalidGraph"
    INVALID_REFERENCE = "InvalidReference"
    TOOL_NOT_FOUND = "ToolNotFound"
    TOOL_INVALID = "ToolInvalid"
    SESSION_BUSY = "SessionBusy"
    ALREADY_FINISHED = "AlreadyFinished"
    ADMITTED = "Admitted"
    # waiting and choosing
    DEPENDENCIES_MET = "DependenciesMet"
    NOT_CHOSEN = "NotChosen"
    UPSTREAM_SKIPPED = "UpstreamSkipped"
    JOIN_UNSATISFIABLE = "JoinUnsatisfiable"
    DEPENDENCY_WAIT_EXCEEDED = "DependencyWaitExceeded"
    QUEUE_WAIT_EXCEEDED = "QueueWaitExceeded"
    REFERENCE_UNRESOLVED = "ReferenceUnresolved"
    CONDITION_ERROR = "ConditionError"
    CONDITION_MET = "ConditionMet"
    JOIN_MET = "JoinMet"
    EXPANDED = "Expanded"
    CHILDREN_FAILED = "ChildrenFailed"
    TOO_MANY_ITEMS = "TooManyItems"
    BACKLOG_FULL = "BacklogFull"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    # params and results
    PARAMS_INVALID = "ParamsInvalid"
    PARAMS_TOO_LARGE = "ParamsTooLarge"
    RESULT_INVALID = "ResultInvalid"
    RESULT_TOO_LARGE = "ResultTooLarge"
    # dispatch, claim, execution
    DISPATCHED = "Dispatched"
    CLAIMED = "Claimed"
    HANDED_BACK = "HandedBack"
    ORDER_LOST = "OrderLost"
    NEVER_CLAIMED = "NeverClaimed"
    POISON_ORDER = "PoisonOrder"
    CONFLICT = "IdempotencyConflict"
    DUPLICATE_REJECTED = "DuplicateRejected"
    DUPLICATE_ASKED = "DuplicateAsked"
    HELD_BY_OTHER = "HeldByOther"
    REPLAYED = "Replayed"
    COMPLETED = "Completed"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    HEARTBEAT_LOST = "HeartbeatLost"
    ATTEMPT_TIMEOUT = "AttemptTimeout"
    EFFECT_UNKNOWN = "EffectUnknown"
    NOT_DURABLE = "NotDurable"
    LEDGER_LOST = "LedgerLost"
    # what tools answer
    CONNECTION_REFUSED = "ConnectionRefused"
    CONNECTION_LOST = "ConnectionLost"
    ADDRESS_REFUSED = "AddressRefused"
    HTTP_STATUS = "HttpStatus"
    RATE_LIMITED = "RateLimited"
    SECRET_MISSING = "SecretMissing"
    TOOL_FAILED = "ToolFailed"
    TOOL_NOT_LOADABLE = "ToolNotLoadable"
    TOOL_CRASHED = "ToolCrashed"
    INVALID_ANSWER = "InvalidAnswer"
    # recovery
    RECOVERED_COMPLETED = "RecoveredCompleted"
    RECOVERED_NOT_EXECUTED = "RecoveredNotExecuted"
    RECOVERED_RUNNING = "RecoveredRunning"
    OUTCOME_UNKNOWN = "OutcomeUnknown"
    # retries and ends
    RETRY_SCHEDULED = "RetryScheduled"
    RETRY_DUE = "RetryDue"
    RETRIES_EXHAUSTED = "RetriesExhausted"
    DEGRADED = "Degraded"
    DROPPED = "Dropped"
    TOLERATED = "Tolerated"
    OPTIONAL_FAILED = "OptionalFailed"
    # humans
    APPROVAL_REQUIRED = "ApprovalRequired"
    APPROVED = "Approved"
    REJECTED = "RejectedByHuman"
    EXPIRED = "Expired"
    RELEASED = "Released"
    RESOLVED = "ResolvedByHuman"
    DISCARDED = "Discarded"
    REDRIVEN = "Redriven"
    RETRY_GRANTED = "RetryGranted"
    ADOPTED = "Adopted"
    # runs
    CANCELLED = "Cancelled"
    RUN_ENDED = "RunEnded"
    NODE_FAILED = "NodeFailed"
    RUN_DEADLINE_EXCEEDED = "RunDeadlineExceeded"
    SUSPENDED = "Suspended"
    SUSPENDED_TOO_LONG = "SuspendedTooLong"
    WAITING_FOR_HUMANS = "WaitingForHumans"
    ALL_NODES_ENDED = "AllNodesEnded"
    NO_LONGER_NEEDED = "NoLongerNeeded"


class Failure(ContractModel):
    """How an attempt failed: the effect outside, the class that says who acts next, a reason and a message.

    ``message`` has passed redaction and is cut on a code point; it never holds a secret.
    """

    effect: Effect
    failure_class: FailureClass
    reason: ShortText
    message: LongText = ""
    retry_after_ms: int | None = None
    """What the provider asked for (Retry-After), capped by the node's deadline when it is used."""
