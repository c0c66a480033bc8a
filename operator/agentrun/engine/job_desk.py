"""The desk for Jobs: which attempts have a Job of their own, which of their pods wait for an order, what holds them up.

Tools of mode ``Job`` have each order sent to a queue of its own, and no sooner than a worker waits there. Asked by the
node's effects and by the scheduler's look at pools; whoever makes the Jobs reads from here what is wanted
(:meth:`JobDesk.survey`) and tells what keeps pods from starting (:meth:`JobDesk.note`). Everything in memory, rebuilt
from the nodes' phases; it writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from agentrun.contract.execution import (
    ExecutionMode,
    find_ledger_pool,
    find_order_queue,
    order_identity,
)
from agentrun.contract.names import job_object_name
from agentrun.contract.node import CallStatus, NodePhase
from agentrun.contract.orders import Order
from agentrun.contract.run import RunPhase
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.deadlines import attempt_timeout
from agentrun.decisions.jobs.job_wishes import JobKey, JobStage, JobWish
from agentrun.decisions.run_waits import job_limit
from agentrun.engine.run_inputs import Granted, RunInput, Woken
from agentrun.engine.run_key import RunKey
from agentrun.engine.run_memory import NodeMemory, RunMemory

_JOB_LINE = ".jobs"
_STARTING = "each call of it has a Job, and is made as soon as the Job's pod has started"
_OUT = (NodePhase.QUEUED, NodePhase.RUNNING)


@dataclass(frozen=True, slots=True)
class JobSurvey:
    """The Jobs that attempts want at one moment."""

    complete: bool = False
    """Of every run that was seen the nodes have been read: what is not wished for here nobody wants."""
    wishes: Mapping[JobKey, JobWish] = field(default_factory=dict)


@dataclass(slots=True)
class _Asked:
    """A node that is ready, holds its slots, and has its order wait for a pod."""

    run: RunKey
    path: str
    key: JobKey
    queue: str
    seq: int
    tool: str
    staffed: bool = False
    note: str = ""


class JobDesk:
    """Of one scheduler."""

    def __init__(self, post: Callable[[RunKey, RunInput], None], *, serves: bool) -> None:
        """``serves``: somebody makes Jobs; else calls of tools of mode ``Job`` go to their pools."""
        self._post = post
        self._serves = serves
        self._asked: dict[str, _Asked] = {}
        self._notes: Mapping[JobKey, str] = {}

    def takes(self, tool: AgentToolSpec) -> bool:
        """Tell whether each attempt of this tool has a Job."""
        return self._serves and tool.execution is not None and tool.execution.mode is ExecutionMode.JOB

    def line_of(self, tool: AgentToolSpec) -> str:
        """Return what the dispatcher counts the tool's attempts under: its pool, or its pool's Jobs."""
        if self.takes(tool) and tool.execution is not None:
            return tool.execution.pool + _JOB_LINE
        return find_ledger_pool(tool.execution)

    def address(self, order: Order, tool: AgentToolSpec) -> Order:
        """Return the order as it is to be sent: to the queue that its Job's worker alone reads."""
        if not self.takes(tool):
            return order
        queue = find_order_queue(tool.execution, order.node_uid, order.seq, order.tool_digest)
        return order.model_copy(update={"pool": queue})

    # --- the order waits for its pod

    def is_staffed(self, run: RunMemory, node: NodeMemory, call: CallStatus, tool: AgentToolSpec) -> bool:
        """Tell whether a worker waits for this node's next order; if not, its Job is asked for."""
        seq = node.status.seq + 1
        queue = find_order_queue(tool.execution, node.uid, seq, call.tool.digest)
        known = self._asked.get(node.uid)
        if known is None or known.queue != queue:
            key = _job_key(run, node, seq, call)
            known = self._asked[node.uid] = _Asked(run.key, node.path, key, queue, seq, call.tool.name)
        return known.staffed

    def forget(self, node_uid: str) -> None:
        """Note that a node's order does not wait any more: it is sent, or not to be sent now."""
        self._asked.pop(node_uid, None)

    def find_wait(self, node_uid: str) -> tuple[str, str]:
        """Return what a node waits for, and what is known about that; empty where its order waits for no pod."""
        asked = self._asked.get(node_uid)
        return ("", "") if asked is None or asked.staffed else (job_limit(asked.tool), asked.note)

    def queues(self) -> list[tuple[str, str]]:
        """Return the (namespace, queue) pairs whose workers orders wait for."""
        return [(asked.run[0], asked.queue) for asked in self._asked.values()]

    def set_slots(self, namespace: str, queue: str, slots: int) -> None:
        """Note what the live workers of a queue announce; the node's order goes out as soon as there is one."""
        for asked in self._asked.values():
            if (asked.run[0], asked.queue) == (namespace, queue):
                if slots and not asked.staffed:
                    self._post(asked.run, Granted(asked.path))
                asked.staffed = bool(slots)

    # --- what is known of Jobs

    def note(self, notes: Mapping[JobKey, str]) -> None:
        """Take in what keeps Jobs from their pods, or has ended these; nodes that wait and have news show it."""
        self._notes = notes
        for asked in self._asked.values():
            note = notes.get(asked.key, "")
            if note != asked.note:
                asked.note = note
                self._post(asked.run, Woken(asked.path))

    def find_end(self, run: RunMemory, node: NodeMemory) -> str:
        """Return how the pod of a node's call under way has ended, if that is known; empty while it lives."""
        call = node.status.call
        return "" if call is None else self._notes.get(_job_key(run, node, node.status.seq, call), "")

    def explain(self, namespace: str, limit: str) -> str:
        """Return what is known about the Jobs of one tool that have not started: of those of which anything is."""
        found = [
            asked for asked in self._asked.values() if asked.run[0] == namespace and job_limit(asked.tool) == limit
        ]
        return min((asked.note for asked in found if asked.note), default=_STARTING)

    # --- what is wanted

    def survey(self, runs: Iterable[RunMemory]) -> JobSurvey:
        """Return the Jobs that are wanted. Costs a little for each run and each attempt under way."""
        complete, wishes = True, dict[JobKey, JobWish]()
        asked: dict[RunKey, list[_Asked]] = defaultdict(list)
        for one in self._asked.values():
            asked[one.run].append(one)
        alive: set[str] = set()
        for run in runs:
            complete = complete and (run.loaded or run.status.phase is RunPhase.PENDING)
            for node, stage, seq in _find_attempts(run, asked.get(run.key, ())):
                wish = self._build_wish(run, node, stage, seq)
                if wish is not None:
                    wishes[wish.key] = wish
                    alive.add(node.uid)
        for uid in self._asked.keys() - alive:
            # Its run has ended, or the node went another way than through the line.
            del self._asked[uid]
        return JobSurvey(complete, wishes)

    def _build_wish(self, run: RunMemory, node: NodeMemory, stage: JobStage, seq: int) -> JobWish | None:
        tool = run.definition(node)
        call = node.status.call or (node.call if isinstance(node.call, CallStatus) else None)
        if tool is None or call is None or not self.takes(tool):
            return None
        asked = self._asked.get(node.uid)
        key = _job_key(run, node, seq, call)
        if stage is JobStage.START and (asked is None or asked.key != key):
            return None
        recovery = tool.recovery
        lookup = run.tools.get(recovery.lookup.tool) if recovery is not None else None
        recovers = stage is JobStage.RECOVER
        return JobWish(
            key=key,
            stage=stage,
            queue=find_order_queue(tool.execution, node.uid, seq, call.tool.digest),
            node=node.name,
            node_uid=node.uid,
            seq=seq,
            run_uid=run.uid,
            tool=call.tool.name,
            priority=node.status.priority,
            spec=tool,
            lookup=(recovery.lookup.tool, lookup.spec) if recovery is not None and lookup is not None else None,
            longest_call=run.waits.recovery if recovers else attempt_timeout(node.spec.node.timeout, tool),
            patience=max(run.waits.recovery if recovers else run.waits.queue, timedelta(seconds=1)),
        )


def _find_attempts(run: RunMemory, asked: Iterable[_Asked]) -> Iterator[tuple[NodeMemory, JobStage, int]]:
    for one in asked:
        node = run.nodes.get(one.path)
        if node is not None and node.status.phase is NodePhase.READY and one.seq == node.status.seq + 1:
            yield node, JobStage.START, one.seq
    for phase in _OUT:
        for path in run.by_phase[phase]:
            yield run.nodes[path], JobStage.OUT, run.nodes[path].status.seq
    for path in run.by_phase[NodePhase.TIMED_OUT]:
        node = run.nodes[path]
        if node.status.recovering:
            yield node, JobStage.RECOVER, node.status.seq


def is_job_line(pool: str) -> bool:
    """Tell whether the dispatcher counts Jobs under this name: none that workers of a pool could take."""
    return pool.endswith(_JOB_LINE)


def _job_key(run: RunMemory, node: NodeMemory, seq: int, call: CallStatus) -> JobKey:
    return JobKey(run.namespace, job_object_name(node.name, order_identity(node.uid, seq, call.tool.digest)))
