"""What the scheduler holds in memory about one run: rebuilt from cluster and ledger, never the only place of a fact.

Owned by the run's turn (one writer). Counters and indexes are kept up to date by each change, so that an event costs
what it changes, whatever the size of the run.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agentrun.contract.approval import AgentApproval, Verdict
from agentrun.contract.exact_json import JsonValue
from agentrun.contract.node import (
    TERMINAL_NODE_PHASES,
    AgentNode,
    AgentNodeSpec,
    AgentNodeStatus,
    CallStatus,
    NodePhase,
)
from agentrun.contract.run import AgentRun, AgentRunSpec, AgentRunStatus, Budget
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.calls import CallRefused
from agentrun.decisions.facts import Ending, OrderSight, WaitLimits
from agentrun.decisions.join_rules import Choice, JoinCounter
from agentrun.decisions.run_waits import find_limit
from agentrun.engine.cluster_port import HeldBackError
from agentrun.engine.run_inputs import ApprovalSeen, ReportArrived, RunInput
from agentrun.engine.run_key import RunKey
from agentrun.engine.tool_catalogue import PinnedTool


@dataclass(slots=True, eq=False)
class NodeMemory:
    """One node as the turn sees it."""

    path: str
    spec: AgentNodeSpec
    name: str
    """The AgentNode object's name."""
    status: AgentNodeStatus
    """The present truth; may be ahead of what the cluster has."""
    counter: JoinCounter
    """Over the upstream nodes by ``dependsOn``."""
    stored: AgentNode | None = None
    """As the cluster last gave it back; None: not created yet."""
    children: list[str] = field(default_factory=list)
    """Paths of the instances' nodes, in order."""
    children_of_instance: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The same by instance."""
    instances: list[str] = field(default_factory=list)
    """Paths of the nodes that give the instances' results, in item order."""
    children_counter: JoinCounter | None = None
    choices: dict[str, Choice] = field(default_factory=dict)
    """What each condition that may choose it did about it."""
    released: int = 0
    """A fan-out's instances that may be at work or have been; those of a higher index are held."""
    open_in_instance: dict[int, int] = field(default_factory=dict)
    """Nodes that have not ended, by instance."""
    call: CallStatus | CallRefused | None = None
    """The built call of a ready task."""
    queued: bool = False
    """The dispatcher knows it as a candidate."""
    granted: bool = False
    """The dispatcher has set slots aside for it."""
    sight: OrderSight = OrderSight.NOT_ASKED
    owner_lives: bool = False
    inbox_pause: timedelta = timedelta()
    """How long its wait for upstream nodes stood still because a human had one in hand."""
    report_ids: list[str] = field(default_factory=list)
    """Reports to acknowledge once the cluster has what they said."""
    asked: str = ""
    """The id of the question whose AgentApproval exists."""
    closed_record_key: str = ""
    """The record that the closed question was about."""
    closed_inbox: str = ""
    """The id of a question that was answered and whose AgentApproval is still to be closed."""

    @property
    def uid(self) -> str:
        """The object's uid; empty before it exists."""
        return self.stored.metadata.uid if self.stored else ""

    @property
    def ended(self) -> bool:
        """Whether the node is in a terminal state."""
        return self.status.phase in TERMINAL_NODE_PHASES

    @property
    def needs_write(self) -> bool:
        """Whether the cluster has an older status."""
        return self.stored is None or self.stored.status is not self.status


@dataclass(slots=True, eq=False)
class RunMemory:
    """One run as the turn sees it."""

    run: AgentRun
    """As last observed: spec and metadata are the user's."""
    status: AgentRunStatus
    waits: WaitLimits
    inputs: deque[RunInput] = field(default_factory=deque)
    """What has happened and was not taken in yet."""
    nodes: dict[str, NodeMemory] = field(default_factory=dict)
    paths_by_uid: dict[str, str] = field(default_factory=dict)
    dependants: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By upstream path: who counts it in a join."""
    targets: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By condition path: the nodes it may choose."""
    by_phase: dict[NodePhase, dict[str, None]] = field(default_factory=lambda: {phase: {} for phase in NodePhase})
    dirty: dict[str, None] = field(default_factory=dict)
    """Paths to decide about, in order of becoming dirty."""
    unwritten: dict[str, None] = field(default_factory=dict)
    """Nodes of which the cluster has an older status."""
    unsorted: dict[str, None] = field(default_factory=dict)
    """Of them, those that were changed since it was decided when they are written."""
    lasting: list[tuple[datetime, str]] = field(default_factory=list)
    """A heap of when the others are written, unless they change before; of several times of one the last counts."""
    tools: dict[str, PinnedTool] = field(default_factory=dict)
    """Pinned at admission: name to definition."""
    loaded: bool = False
    admitted: bool = False
    deleted: bool = False
    closed: bool = False
    """The ledger has the outcome."""
    ending: Ending | None = None
    cancelled_in_ledger: bool = False
    aborting: str = ""
    limit_breaker: str = ""
    suspending: int = 0
    held_by: str = ""
    record_waiters: int = 0
    """Ready nodes that wait for an idempotency record."""
    waiting: Counter[str] = field(default_factory=Counter)
    """Nodes by the limit or holder that they wait for."""
    held_back: dict[str, HeldBackError] = field(default_factory=dict)
    """What the cluster refuses now, by the path of the node it is about; an empty path is the run itself."""
    waits_since: dict[str, datetime] = field(default_factory=dict)
    """Since when there have been nodes that wait for this."""
    waits_told: dict[str, datetime] = field(default_factory=dict)
    """When people were told last that nodes wait for this."""
    stored_status: AgentRunStatus | None = None
    unplaced: list[ReportArrived] = field(default_factory=list)
    """Reports about nodes that are not in memory yet (instances of a fan-out that is being expanded again), or that
    have not begun as far as memory knows, or wait for an answer (what let them go on was lost in a crash, and comes
    again)."""
    spare_report_ids: list[str] = field(default_factory=list)
    """Reports that changed nothing."""
    budget_in_ledger: Budget | None = None
    registered: bool = False
    """The ledger knows the run in this life of the scheduler."""
    released_slots: list[tuple[str, int]] = field(default_factory=list)
    """(node uid, attempt) pairs whose slots are to be freed in the ledger."""
    left_lines: list[tuple[str, str]] = field(default_factory=list)
    """(record key, node uid) pairs of nodes that wait for a record no more, and may still stand in its line."""
    desk_work: dict[str, None] = field(default_factory=dict)
    """Paths of nodes whose question is to be asked or closed, once their status is stored."""
    approvals: dict[str, AgentApproval] = field(default_factory=dict)
    """By name, as last seen."""
    applied_approvals: list[tuple[AgentApproval, str]] = field(default_factory=list)
    """Decisions that were applied in memory and are noted once the nodes are stored."""
    applied_verdicts: dict[str, Verdict] = field(default_factory=dict)
    """What was carried out, by the name of its approval."""
    admitted_spec: AgentRunSpec | None = None
    """What counts of the spec since admission; None: not admitted yet."""
    spec_edited: bool = False
    """The spec in the cluster differs from the admitted one in what may not change."""
    next_status_write: datetime | None = None
    session_renewed_at: datetime | None = None
    """When its session was seen to be its own last; None: it has none, or it is not taken yet."""
    session_due_at: datetime | None = None
    """When the session is to be renewed."""

    @property
    def key(self) -> RunKey:
        """Names the run among all."""
        return (self.namespace, self.uid)

    @property
    def namespace(self) -> str:
        """The run's namespace."""
        return self.run.metadata.namespace

    @property
    def uid(self) -> str:
        """The run object's uid."""
        return self.run.metadata.uid

    @property
    def name(self) -> str:
        """The run object's name."""
        return self.run.metadata.name

    def add(self, node: NodeMemory) -> None:
        """Take a node in: indexes, and dependants of what it waits for."""
        self.nodes[node.path] = node
        self.by_phase[node.status.phase][node.path] = None
        self.record_waiters += _waits_for_record(node.status)
        self._count_wait(node.status, 1)
        if node.uid:
            self.paths_by_uid[node.uid] = node.path
        for upstream in node.spec.upstreams:
            self.dependants[upstream].append(node.path)
        for chooser in node.spec.choosers:
            self.targets[chooser].append(node.path)

    def place(self, nodes: Sequence[NodeMemory]) -> None:
        """Note the objects' uids, and take in what was reported about them before they were known."""
        for node in nodes:
            self.paths_by_uid[node.uid] = node.path
        early = [arrived for arrived in self.unplaced if arrived.report.node_uid in self.paths_by_uid]
        self.unplaced = [arrived for arrived in self.unplaced if arrived not in early]
        self.inputs.extend(early)
        # Decisions about them may have been seen as well, when there was nobody yet to apply them to.
        placed = {node.path for node in nodes}
        for approval in self.approvals.values():
            request = approval.status.request if approval.status else None
            if request is not None and request.node in placed and approval.spec.decision is not None:
                self.inputs.append(ApprovalSeen(approval))

    def recall_reports(self) -> None:
        """Take in what was reported about nodes that were held then, and are not by now."""
        begun = [arrived for arrived in self.unplaced if self._goes_on(arrived.report.node_uid)]
        self.unplaced = [arrived for arrived in self.unplaced if arrived not in begun]
        self.inputs.extend(begun)

    def _goes_on(self, node_uid: str) -> bool:
        path = self.paths_by_uid.get(node_uid)
        return path is not None and not is_held(self.nodes[path].status)

    def set_status(self, node: NodeMemory, status: AgentNodeStatus) -> None:
        """Replace a node's status, keeping the phase index and the list of what is to be written."""
        if status.phase is not node.status.phase:
            del self.by_phase[node.status.phase][node.path]
            self.by_phase[status.phase][node.path] = None
        self.record_waiters += _waits_for_record(status) - _waits_for_record(node.status)
        if status.waiting_for != node.status.waiting_for:
            self._count_wait(node.status, -1)
            self._count_wait(status, 1)
        node.status = status
        self.unwritten[node.path] = None
        self.unsorted[node.path] = None
        if status.inbox is not None or node.closed_inbox:
            self.desk_work[node.path] = None

    def _count_wait(self, status: AgentNodeStatus, by: int) -> None:
        limit = find_limit(status.waiting_for) if status.waiting_for else ""
        if limit:
            self.waiting[limit] += by
            if not self.waiting[limit]:
                del self.waiting[limit]

    def touch(self, path: str) -> None:
        """Have the node decided about again."""
        self.dirty[path] = None

    def pause_total(self, now: datetime) -> timedelta:
        """Return how long the run's clock has stood still, the suspension under way included."""
        total = self.status.suspended_total or timedelta()
        if self.status.suspended_at is not None:
            total += now - self.status.suspended_at
        return total

    def definition(self, node: NodeMemory) -> AgentToolSpec | None:
        """Return the tool definition the node uses now."""
        pinned = self.pinned(node)
        return pinned.spec if pinned else None

    def pinned(self, node: NodeMemory) -> PinnedTool | None:
        """Return the tool the node uses now: its own, or a step down the ladder."""
        own = self.tools.get(node.spec.node.tool or "")
        if own is None or node.status.degraded == 0:
            return own
        ladder = [name for name in own.spec.degrade_to if name in self.tools]
        return self.tools[ladder[min(node.status.degraded, len(ladder)) - 1]] if ladder else own

    def results_of(self, node: NodeMemory) -> list[JsonValue]:
        """Return the results of a fan-out's instances in item order; null where an instance gave none."""
        return [
            self.nodes[path].status.result if self.nodes[path].status.phase is NodePhase.SUCCEEDED else None
            for path in node.instances
        ]


def is_held(status: AgentNodeStatus) -> bool:
    """Tell whether a node cannot have an order out as far as its status says: it has not begun, or asks a human."""
    return status.phase is NodePhase.PENDING or status.inbox is not None


def _waits_for_record(status: AgentNodeStatus) -> bool:
    return status.phase is NodePhase.READY and status.waiting_for.startswith("Idempotency(")
