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
MAX_WAITS_SHOWN = 16
MAX_FANOUT_ITEMS = 1000


class Priority(StrEnum):
    """How urgent a node is; carries default timeout, retries and what follows the last of them."""

    P0 = "P0"
    """A human waits: 30 s, 2 retries, then a human."""
    P1 = "P1"
    """60 s, 2 retries, then a human is asked."""
    P2 = "P2"
    """180 s, 1 retry, then dead."""
    P3 = "P3"
    """600 s, no retry, then dropped."""


class NodeType(StrEnum):
    """What a node does."""

    TASK = "Task"
    """One call of a tool."""
    CONDITION = "Condition"
    """Chooses one of several branches."""
    APPROVAL = "Approval"
    """Asks a human."""
    JOIN = "Join"
    """Waits for others and does nothing."""
    FAN_OUT = "FanOut"
    """The same work for every item of a list."""


class FailurePolicy(StrEnum):
    """What the run does when a node is Dead."""

    ABORT = "Abort"
    """The run fails; what runs ends first, the rest is cancelled."""
    CONTINUE = "Continue"
    """The run goes on: dependants take ``defaults``."""
    SUSPEND = "Suspend"
    """The run waits until a human has repaired it."""


class JoinRule(StrEnum):
    """Which ends of the upstream nodes let a node go on."""

    ALL = "All"
    """Each succeeded, or is dead and tolerated."""
    ANY = "Any"
    """One succeeded."""
    AT_LEAST = "AtLeast"
    """``count`` succeeded."""
    NO_FAILURE_ONE_SUCCESS = "NoFailureOneSuccess"
    """None failed and one succeeded."""
    ALWAYS = "Always"
    """Each has ended, however."""


class Join(ContractModel):
    """A join rule; ``count`` goes with AtLeast only."""

    rule: JoinRule = JoinRule.ALL
    """Which ends count."""
    count: Annotated[int, Field(ge=1, le=MAX_FANOUT_ITEMS)] | None = None
    """How many, for rule AtLeast."""

    @model_validator(mode="after")
    def _count_goes_with_at_least(self) -> Join:
        if (self.rule is JoinRule.AT_LEAST) != (self.count is not None):
            raise ValueError("count is needed by rule AtLeast and goes with no other rule")
        return self


class ConditionCase(ContractModel):
    """One case: the test, and the node that runs when it holds."""

    when: ValueTest
    """The test."""
    goto: NodeName
    """The node that runs when it holds; it depends on the condition by itself."""


class Condition(ContractModel):
    """A typed switch; the first case that holds chooses, ``default`` is for values that match none."""

    cases: tuple[ConditionCase, ...] = Field(min_length=1, max_length=32)
    """Looked at in this order."""
    default: NodeName | None = None
    """Unset: no branch is chosen when no case holds, and all targets are skipped."""


class ApprovalQuestion(ContractModel):
    """What an Approval node asks."""

    message: MediumText
    """The question."""
    expires_after: Duration | None = None
    """How long a human may take. Default: ``spec.waits.inbox``."""


class PriorityFrom(ContractModel):
    """A priority taken from a typed field of an upstream result."""

    path: ValuePath
    """The field, such as ``nodes.route.result.urgency``."""
    map: dict[Annotated[str, Field(max_length=64)], Priority] = Field(min_length=1, max_length=32)
    """Priority by the field's value."""
    default: Priority
    """For values that the map does not hold."""


class NodeIdempotency(ContractModel):
    """The author's own key: says that two calls are the same, or that a repetition is meant."""

    key: Annotated[str, Field(min_length=1, max_length=512)]
    """May hold references, such as ``fx-${inputs.day}``."""


class Budget(ContractModel):
    """The most that may be spent; unset is unlimited, zero is nothing."""

    limit: Money | None = None
    """Money."""
    tokens: Annotated[int, Field(ge=0, le=10**12)] | None = None
    """Tokens of models."""
    model_calls: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Calls of models."""


class NodeBase(ContractModel):
    """What a node may carry anywhere in the tree."""

    name: NodeName
    """Unique in its list."""
    tool: ObjectName | None = None
    """The AgentTool a Task calls."""
    params: FreeObject = Field(default_factory=dict)
    """What the tool is called with; whole values and texts may hold ``${…}``."""
    depends_on: tuple[NodeName, ...] = Field(default=(), max_length=MAX_NODES_IN_SPEC)
    """Nodes of the same list that must end first."""
    join: Join | None = None
    """Which of their ends count; default All."""
    condition: Condition | None = None
    """The switch, for type Condition."""
    approval: ApprovalQuestion | None = None
    """The question, for type Approval."""
    optional: bool = False
    """A failure ends Skipped instead of Dead."""
    on_failure: FailurePolicy | None = None
    """What the run does when this node is dead. Default: ``spec.onNodeFailure``."""
    defaults: dict[Annotated[str, Field(max_length=512)], FreeValue] = Field(default_factory=dict, max_length=64)
    """Values for what this node did not give (``result.rate``): when it was skipped, or is dead and tolerated."""
    timeout: Duration | None = None
    """Longest time of one attempt. Default: the tool's."""
    retry: Retry | None = None
    """Retries. Default: the tool's, else the priority's."""
    priority: Priority | None = None
    """Default: the run's, else P2."""
    priority_from: PriorityFrom | None = None
    """Takes the priority from an upstream result."""
    idempotency: NodeIdempotency | None = None
    """A key of the author's own."""
    budget: Budget | None = None
    """The most this node may spend."""


class InstanceNode(NodeBase):
    """A node inside each instance of a fan-out; ``${item}``, ``${item.field}`` and ``${index}`` are its own."""

    type: Literal[NodeType.TASK, NodeType.CONDITION, NodeType.APPROVAL, NodeType.JOIN] = NodeType.TASK
    """What it does."""

    @model_validator(mode="after")
    def _fields_fit_type(self) -> InstanceNode:
        check_fields_of_type(self, self.type, None)
        return self


class SingleNode(ContractModel):
    """The short form of a fan-out's instance: one task."""

    tool: ObjectName
    """The AgentTool that is called for each item."""
    params: FreeObject = Field(default_factory=dict)
    """May hold ``${item}``, ``${item.field}`` and ``${index}``."""
    timeout: Duration | None = None
    """Longest time of one attempt."""
    retry: Retry | None = None
    """Retries."""
    priority: Priority | None = None
    """Default: the fan-out's."""
    idempotency: NodeIdempotency | None = None
    """A key of the author's own."""
    budget: Budget | None = None
    """The most one instance may spend."""
    optional: bool = False
    """A failure ends Skipped instead of Dead."""
    on_failure: FailurePolicy | None = None
    """Default: ``spec.onNodeFailure``."""
    defaults: dict[Annotated[str, Field(max_length=512)], FreeValue] = Field(default_factory=dict, max_length=64)
    """Values for what an instance did not give."""


class FanOut(ContractModel):
    """The same work for every item of a list, in item order."""

    items: FreeValue
    """A list, or a reference to one (``${inputs.skus}``)."""
    max_items: Annotated[int, Field(ge=0, le=MAX_FANOUT_ITEMS)] = MAX_FANOUT_ITEMS
    """A longer list fails the node with TooManyItems."""
    max_parallel: Annotated[int, Field(ge=1, le=MAX_FANOUT_ITEMS)] | None = None
    """Instances at work at once; unset is bounded by the tools' own limits only."""
    node: SingleNode | None = None
    """One task for each item."""
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
    """What the node does."""
    fan_out: FanOut | None = None
    """The list and the work, for type FanOut."""

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
    """What it is for, in a sentence; shown to those who must decide."""
    session: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Runs of one session do not overlap, and an equal call in it is the same call."""
    priority: Priority | None = None
    """Of all nodes that say nothing themselves. Default P2."""
    timeout: Duration | None = None
    """For the whole run; default 30 m."""
    budget: Budget | None = None
    """The most the run may spend."""
    on_node_failure: FailurePolicy = FailurePolicy.ABORT
    """What happens when a node is dead; a node may say otherwise."""
    suspend: bool | None = None
    """True: nothing new is begun until it is false again."""
    cancel: bool | None = None
    """True: the run ends. It cannot be taken back."""
    ttl_after_finished: Duration | None = None
    """Deletes the run this long after its end. Default: never."""
    retry_of: ObjectName | None = None
    """A finished run of this namespace whose succeeded nodes are adopted."""
    rerun_token: ShortText | None = None
    """Says that a repetition of a finished run of the same name and content is meant."""
    waits: Waits | None = None
    """How long states may last in which nothing runs."""
    inputs: FreeObject = Field(default_factory=dict)
    """Values that nodes read as ``${inputs.…}``."""
    nodes: tuple[RunNode, ...] = Field(min_length=1, max_length=MAX_NODES_IN_SPEC)
    """The tree."""


MUTABLE_SPEC_FIELDS = frozenset({"suspend", "cancel", "budget", "priority", "timeout", "ttl_after_finished"})
"""Fields that may change after admission; all others are part of the spec's digest."""


class RunPhase(StrEnum):
    """Where a run stands."""

    PENDING = "Pending"
    """Not admitted yet."""
    RUNNING = "Running"
    """Nodes are on their way."""
    SUSPENDED = "Suspended"
    """Stands still; its clocks do as well."""
    SUCCEEDED = "Succeeded"
    """Every node ended, and none failed untolerated."""
    FAILED = "Failed"
    """A node failed, or the time was over."""
    CANCELLED = "Cancelled"
    """Somebody cancelled it."""
    REJECTED = "Rejected"
    """Never began: its spec is wrong, or its session busy."""
    DEAD = "Dead"
    """A limit was passed."""


TERMINAL_RUN_PHASES = frozenset(
    {RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED, RunPhase.REJECTED, RunPhase.DEAD}
)


class Spent(ContractModel):
    """What has been used up, settled amounts only."""

    cost: Money = 0
    """Money."""
    tokens: int = 0
    """Tokens of models."""
    model_calls: int = 0
    """Calls of models."""


class RunWait(ContractModel):
    """What nodes of a run wait for, other than their own upstream nodes and humans."""

    waiting_for: MediumText
    """The limit or holder, as the nodes' own ``status.waitingFor`` names it."""
    nodes: int
    """How many nodes it holds back; where the run itself is held back, all of them."""
    since: Timestamp
    """Since when there has been such a node."""
    message: MediumText = ""
    """What would end the wait, for people, where that is known."""


class AgentRunStatus(ContractModel):
    """What became of the run so far: counts, waits and open inboxes, never a list of all nodes."""

    phase: RunPhase = RunPhase.PENDING
    """Where the run stands."""
    reason: ShortText = ""
    """Why, as one word (docs/reference/reasons.md)."""
    message: LongText = ""
    """Why, for people."""
    observed_generation: int = 0
    """The generation of the spec that was looked at."""
    admitted_generation: int = 0
    """The generation that was admitted; 0: none yet."""
    spec_digest: Digest = ""
    """Digest of the admitted, immutable part of the spec."""
    epoch: int = 0
    """Number of the scheduler that wrote this last."""
    admitted_at: Timestamp | None = None
    """When it was admitted."""
    started_at: Timestamp | None = None
    """When its clock began: at admission."""
    finished_at: Timestamp | None = None
    """When it ended."""
    suspended_at: Timestamp | None = None
    """Since when it stands still."""
    suspended_total: Duration | None = None
    """How long the run's clock has stood still, without the suspension under way."""
    cancel_requested: bool = False
    """Latched at the first sight of spec.cancel."""
    deadline: Timestamp | None = None
    """When its time is over, without standing still."""
    counts: dict[str, int] = Field(default_factory=dict, max_length=16)
    """Nodes by phase."""
    inbox: tuple[Annotated[str, Field(max_length=140)], ...] = Field(default=(), max_length=50)
    """Nodes that wait for a human, the first 50."""
    waits: tuple[RunWait, ...] = Field(default=(), max_length=MAX_WAITS_SHOWN)
    """What nodes wait for, the longest wait first."""
    spent: Spent | None = None
    """What has been used up."""
    root_uid: ShortText = ""
    """The run whose idempotency this one continues (retryOf, or a deleted first run); empty: its own."""
    copy_of: ShortText = ""
    """The uid of the run whose recorded outcome this object shows (AlreadyFinished)."""
    conditions: tuple[StatusCondition, ...] = Field(default=(), max_length=16)
    """The same in the words of ``kubectl wait``."""


class AgentRun(ContractModel):
    """One execution: an intent and the tree of nodes that carries it out."""

    api_version: Literal["agentrun.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["AgentRun"] = "AgentRun"
    metadata: ObjectMeta
    spec: AgentRunSpec
    status: AgentRunStatus | None = None
