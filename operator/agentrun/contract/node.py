"""AgentNode: one execution unit, created and written by the operator alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agentrun.contract.failures import Effect, Failure
from agentrun.contract.model_base import (
    ContractModel,
    Digest,
    Duration,
    FreeObject,
    FreeValue,
    LongText,
    MediumText,
    Money,
    NodePath,
    ObjectName,
    ShortText,
    Timestamp,
)
from agentrun.contract.object_meta import API_VERSION, Actor, ObjectMeta
from agentrun.contract.run import Priority, RunNode
from agentrun.contract.tool import IdempotencyScope

TIMELINE_LENGTH = 20
ESTIMATES_KEPT = 32


class NodePhase(StrEnum):
    """The states of a node; which may follow which stands in ``agentrun.decisions.node_states``."""

    PENDING = "Pending"
    """waits for upstream nodes"""
    READY = "Ready"
    """may go; waits in line for slots and budget"""
    QUEUED = "Queued"
    """its order is out, and no worker has claimed it"""
    RUNNING = "Running"
    """a worker has claimed it at the gate (or a recovery has adopted it)"""
    EXPANDED = "Expanded"
    """a fan-out whose instances are at work"""
    WAITING_APPROVAL = "WaitingApproval"
    """a human is asked"""
    RETRY_WAIT = "RetryWait"
    """failed; the next attempt is due at a known time"""
    TIMED_OUT = "TimedOut"
    """nobody knows yet what happened; a recovery finds out"""
    FAILED = "Failed"
    """passed through: what follows is decided at once"""
    QUARANTINED = "Quarantined"
    """nothing moves until a human has looked"""
    SUCCEEDED = "Succeeded"
    """done, with a result"""
    SKIPPED = "Skipped"
    """was not needed, or is optional and failed"""
    CANCELLED = "Cancelled"
    """the run ended first, or nobody needs it any more"""
    DEAD = "Dead"
    """failed for good; a human may re-drive it"""


TERMINAL_NODE_PHASES = frozenset({NodePhase.SUCCEEDED, NodePhase.SKIPPED, NodePhase.CANCELLED, NodePhase.DEAD})
INBOX_PHASES = frozenset({NodePhase.WAITING_APPROVAL, NodePhase.QUARANTINED})
"""Non-terminal states in which only a human or a declared expiry moves a node. (Dead is an inbox too, and terminal.)"""


class ToolRef(ContractModel):
    """The definition a node was made with, pinned by its digest."""

    name: ObjectName
    """The AgentTool."""
    uid: ShortText = ""
    """Its uid."""
    generation: int = 1
    """Its generation."""
    digest: Digest
    """Digest of the definition."""


class RunRef(ContractModel):
    """The run a node belongs to."""

    name: ObjectName
    """The AgentRun."""
    uid: ShortText
    """Its uid."""


class AgentNodeSpec(ContractModel):
    """The node's own resolved fields; immutable."""

    run: RunRef
    """The run it belongs to."""
    path: NodePath
    """The node's full name in the tree."""
    node: RunNode
    """The node as its author wrote it (inside a fan-out: the instance's node)."""
    parent: NodePath | None = None
    """The fan-out this node is an instance part of."""
    index: int | None = None
    """Which instance, from 0."""
    item: FreeValue = None
    """The item of that instance."""
    upstreams: tuple[NodePath, ...] = Field(default=(), max_length=1000)
    """Full names of what it depends on by ``dependsOn``."""
    choosers: tuple[NodePath, ...] = Field(default=(), max_length=64)
    """Full names of the conditions that may choose it."""
    tool: ToolRef | None = None
    """The definition it was made with."""


class Transition(ContractModel):
    """One line of a node's timeline."""

    at: Timestamp
    """When."""
    from_phase: NodePhase
    """From where."""
    to_phase: NodePhase
    """To where."""
    reason: ShortText
    """Why, as one word."""
    message: LongText = ""
    """Why, for people."""
    actor: Actor = Actor()
    """Who."""
    attempt: int = 0
    """During which attempt."""


class CallStatus(ContractModel):
    """The call as it was finally decided: what the gate, the worker and a human see is this, and nothing else."""

    request_id: ShortText
    """Names the call in orders, headers, logs and audit."""
    tool: ToolRef
    """What is called."""
    params: FreeObject
    """With what."""
    params_digest: Digest
    """Digest of the params."""
    key: MediumText
    """The idempotency record's key inside its scope."""
    scope: IdempotencyScope
    """Within what an equal key is the same call."""
    hold_micros: int = 0
    """The worst case that is held of the budget, in millionths."""


class InboxKind(StrEnum):
    """What a human is asked about a node."""

    CALL = "Call"
    """May this call be made (tool policy), or: is the Approval node's question agreed to."""
    DUPLICATE = "Duplicate"
    """May a repeated call run under a key of its own (onDuplicate: Ask)."""
    GRANT = "Grant"
    """May one more attempt be made (afterLast: Ask)."""
    QUARANTINE = "Quarantine"
    """What is to become of a quarantined node."""
    DEAD = "Dead"
    """Is a dead node to be driven again."""


class Inbox(ContractModel):
    """The open question about a node."""

    kind: InboxKind
    """What is asked."""
    id: ShortText
    """Names this question; the AgentApproval's name ends with it, and a decision counts for this id only."""
    asked_at: Timestamp
    """When it was asked."""
    expires_at: Timestamp | None = None
    """When it expires."""
    params_digest: Digest = ""
    """Digest of the params it was asked about."""
    record_key: MediumText = ""
    """The idempotency record in question."""
    record_version: int = 0
    """The version of the idempotency record the question was asked about; 0: no record is in question."""
    unknown_outcome: bool = False
    """The effect must be answered before anything else."""
    executed: bool = False
    """The effect is known to have happened: it can be resolved or discarded, never released."""


class BookedEstimate(ContractModel):
    """What stands in an attempt's bill until somebody knows what it cost."""

    attempt: int
    """The attempt's number."""
    cost: Money
    """Its share of the node's cost."""


class AgentNodeStatus(ContractModel):
    """Where the node stands and how it came there."""

    phase: NodePhase = NodePhase.PENDING
    """Where the node stands."""
    reason: ShortText = ""
    """Why, as one word (docs/reference/reasons.md)."""
    message: LongText = ""
    """Why, for people."""
    entered_at: Timestamp
    """When the phase was entered."""
    pause_at_entry: Duration | None = None
    """How long the run's clock had stood still when the phase was entered (Queued: when the wait in line began)."""
    attempt: int = 0
    """Number of the current or last attempt, from 1; an attempt is counted when a worker claims it."""
    attempts_granted: int = 0
    """Attempts allowed by humans beyond the retry limit."""
    attempts_before: int = 0
    """Attempts before the last fresh start (release, re-drive, degradation): they do not count against the limit."""
    seq: int = 0
    """Number of the last order sent out for this node."""
    recovering: bool = False
    """The outstanding order is a recovery."""
    epoch: int = 0
    """Number of the scheduler that wrote this last."""
    tool: ToolRef | None = None
    """The definition now in use; differs from the spec's after a degradation."""
    degraded: int = 0
    """How many steps down the tool's ladder."""
    priority: Priority = Priority.P2
    """The effective priority."""
    call: CallStatus | None = None
    """The call as it was decided."""
    worker: MediumText = ""
    """The worker that claimed the current attempt."""
    deadline: Timestamp | None = None
    """When the present phase ends at the latest."""
    due_at: Timestamp | None = None
    """When a retry or a renewed try is due."""
    waiting_for: MediumText = ""
    """Which limit or holder keeps the node where it is."""
    queued_since: Timestamp | None = None
    """When its waiting in line began (for ageing and the queue wait)."""
    started_at: Timestamp | None = None
    """When an attempt began first."""
    finished_at: Timestamp | None = None
    """When it ended."""
    active: Duration | None = None
    """Time spent so far in Running, TimedOut and RetryWait; bounded by the priority's timeout."""
    failure: Failure | None = None
    """How the last attempt failed."""
    effect: Effect | None = None
    """Whether the last attempt's call was executed outside."""
    result: FreeValue = None
    """What the tool gave."""
    result_digest: Digest = ""
    """Digest of the result."""
    raw_output: LongText = ""
    """What a tool answered when its answer was no use, redacted and cut."""
    cost: Money = 0
    """Money spent so far."""
    tokens: int = 0
    """Tokens of models so far."""
    model_calls: int = 0
    """Calls of models so far."""
    cost_estimated: bool = False
    """Part of the cost is a booked worst case."""
    estimates: tuple[BookedEstimate, ...] = Field(default=(), max_length=ESTIMATES_KEPT)
    """The booked worst cases, by attempt; each goes when it is known what that attempt cost."""
    replay_of: MediumText = ""
    """Whose result was replayed: ``<namespace>/<run>/<node>``."""
    chosen: ShortText = ""
    """The branch a condition chose; ``-`` when none."""
    tolerated: bool = False
    """Dead, and the run goes on."""
    children: int = 0
    """Instances of a fan-out."""
    inbox: Inbox | None = None
    """The open question."""
    questions: int = 0
    """How many questions have been asked about this node so far."""
    approved_digests: tuple[Digest, ...] = Field(default=(), max_length=16)
    """Digests of the params that humans approved; they hold for every attempt."""
    edited_params: FreeObject | None = None
    """Params a human put in place of the author's."""
    own_key: ShortText = ""
    """The id of the approval under whose key a repetition runs."""
    decided: tuple[ShortText, ...] = Field(default=(), max_length=32)
    """Ids of the questions that have been answered."""
    timeline: tuple[Transition, ...] = Field(default=(), max_length=TIMELINE_LENGTH)
    """The last 20 moves."""


class AgentNode(ContractModel):
    """One execution unit of a run."""

    api_version: Literal["agentrun.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["AgentNode"] = "AgentNode"
    metadata: ObjectMeta
    spec: AgentNodeSpec
    status: Annotated[AgentNodeStatus | None, Field()] = None
