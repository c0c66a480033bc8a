"""AgentRun: one execution, written by users and GitOps; the operator writes its status only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from agentrun.contract.model_base import (
    ContractModel,
    Digest,
    Duration,
    FreeObject,
    FreeValue,
    LongText,
    MediumText,
    Money,
    NodeName,
    ObjectName,
    ShortText,
    Timestamp,
    ValuePath,
)
from agentrun.contract.object_meta import API_VERSION, ObjectMeta, StatusCondition
from agentrun.contract.tool import Retry
from agentrun.contract.value_tests import ValueTest

MAX_NODES_IN_SPEC = 500
MAX_FANOUT_ITEMS = 1000


class Priority(StrEnum):
    """How urgent a node is; carries default timeout, retries and what follows the last of them."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    P3 = "P3"


class NodeType(StrEnum):
    """What a node does."""

    TASK = "Task"
    CONDITION = "Condition"
    APPROVAL = "Approval"
    JOIN = "Join"
    FAN_OUT = "FanOut"


class FailurePolicy(StrEnum):
    """What the run does when a node is Dead."""

    ABORT = "Abort"
    CONTINUE = "Continue"
    SUSPEND = "Suspend"


class JoinRule(StrEnum):
    """Which ends of the upstream nodes let a node go on."""

    ALL = "All"
    ANY = "Any"
    AT_LEAST = "AtLeast"
    NO_FAILURE_ONE_SUCCESS = "NoFailureOneSuccess"
    ALWAYS = "Always"


class Join(ContractModel):
    """A join rule; ``count`` goes with AtLeast only."""

    rule: JoinRule = JoinRule.ALL
    count: Annotated[int, Field(ge=1, le=MAX_FANOUT_ITEMS)] | None = None

    @model_validator(mode="after")
    def _count_goes_with_at_least(self) -> Join:
        if (self.rule is JoinRule.AT_LEAST) != (self.count is not None):
            raise ValueError("count is needed by rule AtLeast and goes with no other rule")
        return self


class ConditionCase(ContractModel):
    """One case: the test, and the node that runs when it holds."""

    when: ValueTest
    goto: NodeName


class Condition(ContractModel):
    """A typed switch; the first case that holds chooses, ``default`` is for values that match none."""

    cases: tuple[ConditionCase, ...] = Field(min_length=1, max_length=32)
    default: NodeName | None = None
    """Unset: no branch is chosen when no case holds, and all targets are skipped."""


class ApprovalQuestion(ContractModel):
    """What an Approval node asks."""

    message: MediumText
    expires_after: Duration | None = None


class PriorityFrom(ContractModel):
    """A priority taken from a typed field of an upstream result."""

    path: ValuePath
    map: dict[Annotated[str, Field(max_length=64)], Priority] = Field(min_length=1, max_length=32)
    default: Priority


class NodeIdempotency(ContractModel):
    """The author's own key: says that two calls are the same, or that a repetition is meant."""

    key: Annotated[str, Field(min_length=1, max_length=512)]
    """May hold references, such as ``fx-${inputs.day}``."""


class Budget(ContractModel):
    """The most that may be spent; unset is unlimited, zero is nothing."""

    limit: Money | None = None
    tokens: Annotated[int, Field(ge=0, le=10**12)] | None = None
    model_calls: Annotated[int, Field(ge=0, le=10**9)] | None = None


class NodeBase(ContractModel):
    """What a node may carry anywhere in the tree."""

    name: NodeName
    tool: ObjectName | None = None
    params: FreeObject = Field(default_factory=dict)
    depends_on: tuple[NodeName, ...] = Field(default=(), max_length=MAX_NODES_IN_SPEC)
    join: Join | None = None
    condition: Condition | None = None
    approval: ApprovalQuestion | None = None
    optional: bool = False
    """A failure ends Skipped instead of Dead."""
    on_failure: FailurePolicy | None = None
    defaults: dict[Annotated[str, Field(max_length=512)], FreeValue] = Field(default_factory=dict, max_length=64)
    """Values for what this node did not give (``result.rate``): when it was skipped, or is dead and tolerated."""
    timeout: Duration | None = None
    retry: Retry | None = None
    priority: Priority | None = None
    priority_from: PriorityFrom | None = None
    idempotency: NodeIdempotency | None = None
    budget: Budget | None = None


class InstanceNode(NodeBase):
    """A node inside each instance of a fan-out; ``${item}``, ``${item.field}`` and ``${index}`` are its own."""

    type: Literal[NodeType.TASK, NodeType.CONDITION, NodeType.APPROVAL, NodeType.JOIN] = NodeType.TASK

    @model_validator(mode="after")
    def _fields_fit_type(self) -> InstanceNode:
        check_fields_of_type(self, self.type, None)
        return self


class SingleNode(ContractModel):
    """The short form of a fan-out's instance: one task."""

    tool: ObjectName
    params: FreeObject = Field(default_factory=dict)
    timeout: Duration | None = None
    retry: Retry | None = None
    priority: Priority | None = None
    idempotency: NodeIdempotency | None = None
    budget: Budget | None = None
    optional: bool = False
    on_failure: FailurePolicy | None = None
    defaults: dict[Annotated[str, Field(max_length=512)], FreeValue] = Field(default_factory=dict, max_length=64)


class FanOut(ContractModel):
    """The same work for every item of a list, in item order."""

    items: FreeValue
    """A list, or a reference to one (``${inputs.skus}``)."""
    max_items: Annotated[int, Field(ge=0, le=MAX_FANOUT_ITEMS)] = MAX_FANOUT_ITEMS
    max_parallel: Annotated[int, Field(ge=1, le=MAX_FANOUT_ITEMS)] | None = None
    """Instances at work at once; unset is bounded by the tools' own limits only."""
    node: SingleNode | None = None
    nodes: tuple[InstanceNode, ...] = Field(default=(), max_length=32)
    """A small graph for each item, where one task is not enough."""
    result: NodeName | None = None
    """Which of ``nodes`` gives the instance's result; default: the last one."""
    join: Join | None = None
    """Over the instances; default All."""

    @model_validator(mode="after")
    def _one_form(self) -> FanOut:
        if (self.node is None) == (not self.nodes):
            raise ValueError("needs either node (one task for each item) or nodes (a small graph for each item)")
        if self.result is not None and self.result not in {node.name for node in self.nodes}:
            raise ValueError(f"result names {self.result}, which is not among nodes")
        return self


class RunNode(NodeBase):
    """A node of the run's own list."""

    type: NodeType = NodeType.TASK
    fan_out: FanOut | None = None

    @model_validator(mode="after")
    def _fields_fit_type(self) -> RunNode:
        check_fields_of_type(self, self.type, self.fan_out)
        return self


def check_fields_of_type(node: NodeBase, kind: NodeType, fan_out: FanOut | None) -> None:
    """Raise :class:`ValueError` when a node lacks the field its type needs or carries another type's field."""
    wanted = {
        NodeType.TASK: {"tool"},
        NodeType.CONDITION: {"condition"},
        NodeType.APPROVAL: {"approval"},
        NodeType.JOIN: set(),
        NodeType.FAN_OUT: {"fanOut"},
    }[kind]
    present = {
        name
        for name, value in (
            ("tool", node.tool),
            ("condition", node.condition),
            ("approval", node.approval),
            ("fanOut", fan_out),
        )
        if value is not None
    }
    for name in sorted(wanted - present):
        raise ValueError(f"type {kind} needs the field {name}")
    for name in sorted(present - wanted):
        raise ValueError(f"field {name} does not go with type {kind}: remove it or change the type")
    if node.params and kind is not NodeType.TASK and kind is not NodeType.APPROVAL:
        raise ValueError(f"field params does not go with type {kind}")
    if node.priority is not None and node.priority_from is not None:
        raise ValueError("give priority or priorityFrom, not both")


class Waits(ContractModel):
    """How long this run's nodes may stand in states where nothing runs."""

    dependencies: Duration | None = None
    """For upstream nodes; default 30 m."""
    queue: Duration | None = None
    """Ready or Queued; default 30 m."""
    recovery: Duration | None = None
    """For a recovery's answer; default 5 m."""
    inbox: Duration | None = None
    """For a human; default 72 h."""
    suspended: Duration | None = None
    """For the whole run to stand still; default 7 days."""


class AgentRunSpec(ContractModel):
    """What is to be executed.

    Immutable after admission, except suspend, cancel, budget, priority, timeout, ttlAfterFinished.
    """

    intent: MediumText
    session: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    priority: Priority | None = None
    timeout: Duration | None = None
    """For the whole run; default 30 m."""
    budget: Budget | None = None
    on_node_failure: FailurePolicy = FailurePolicy.ABORT
    suspend: bool | None = None
    cancel: bool | None = None
    ttl_after_finished: Duration | None = None
    retry_of: ObjectName | None = None
    """A finished run of this namespace whose succeeded nodes are adopted."""
    rerun_token: ShortText | None = None
    """Says that a repetition of a finished run of the same name and content is meant."""
    waits: Waits | None = None
    inputs: FreeObject = Field(default_factory=dict)
    nodes: tuple[RunNode, ...] = Field(min_length=1, max_length=MAX_NODES_IN_SPEC)


MUTABLE_SPEC_FIELDS = frozenset({"suspend", "cancel", "budget", "priority", "timeout", "ttl_after_finished"})
"""Fields that may change after admission; all others are part of the spec's digest."""


class RunPhase(StrEnum):
    """Where a run stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    REJECTED = "Rejected"
    DEAD = "Dead"


TERMINAL_RUN_PHASES = frozenset(
    {RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED, RunPhase.REJECTED, RunPhase.DEAD}
)


class Spent(ContractModel):
    """What has been used up, settled amounts only."""

    cost: Money = 0
    tokens: int = 0
    model_calls: int = 0


class AgentRunStatus(ContractModel):
    """What became of the run so far: counts, waits and open inboxes, never a list of all nodes."""

    phase: RunPhase = RunPhase.PENDING
    reason: ShortText = ""
    message: LongText = ""
    observed_generation: int = 0
    admitted_generation: int = 0
    spec_digest: Digest = ""
    epoch: int = 0
    admitted_at: Timestamp | None = None
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    suspended_at: Timestamp | None = None
    suspended_total: Duration | None = None
    """How long the run's clock has stood still, without the suspension under way."""
    cancel_requested: bool = False
    """Latched at the first sight of spec.cancel."""
    deadline: Timestamp | None = None
    counts: dict[str, int] = Field(default_factory=dict, max_length=16)
    """Nodes by phase."""
    inbox: tuple[Annotated[str, Field(max_length=140)], ...] = Field(default=(), max_length=50)
    """Nodes that wait for a human, the first 50."""
    spent: Spent | None = None
    root_uid: ShortText = ""
    """The run whose idempotency this one continues (retryOf, or a deleted first run); empty: its own."""
    copy_of: ShortText = ""
    """The uid of the run whose recorded outcome this object shows (AlreadyFinished)."""
    conditions: tuple[StatusCondition, ...] = Field(default=(), max_length=16)


class AgentRun(ContractModel):
    """One execution: an intent and the tree of nodes that carries it out."""

    api_version: Literal["agentrun.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["AgentRun"] = "AgentRun"
    metadata: ObjectMeta
    spec: AgentRunSpec
    status: AgentRunStatus | None = None
