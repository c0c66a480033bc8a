"""Every metric that the product gives out, as one table: name, kind, labels and meaning.

Read by :mod:`agentrun.telemetry.metric_book`, which counts in it, and by the generator of docs/reference/metrics.md.
Labels take few values: words of closed sets, and names that a platform team gives (namespaces, pools, tools). Never a
run, a node, a uid, a worker or a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from agentrun.contract.failures import Effect, Reason
from agentrun.contract.node import NodePhase
from agentrun.contract.run import Priority, RunPhase
from agentrun.decisions.pools.pod_faults import FAULT_REASONS
from agentrun.ledger.port import ClaimVerdict

OTHER = "Other"
"""Stands for every value outside of a closed set, and for names beyond :data:`LABEL_SETS_MAX`."""
NONE = "None"
LABEL_SETS_MAX = 1000
"""So many sets of labels one metric has at most; what comes later is counted with its names given as ``Other``."""


class Process(StrEnum):
    """Who gives a metric out."""

    OPERATOR = "operator"
    WORKER = "worker"


class MetricKind(StrEnum):
    """What Prometheus may do with the numbers."""

    COUNTER = "counter"
    """Only grows, from 0 at the start of the process."""
    GAUGE = "gauge"
    """A present value."""
    HISTOGRAM = "histogram"
    """How many observations were at most so large."""


class HandBackCause(StrEnum):
    """Why a worker gave an order back that it had taken."""

    DRAINING = "Draining"
    RATE = "Rate"
    CLAIM_LOST = "ClaimLost"
    CONTRACT_VERSION = "ContractVersion"
    DEFINITION_MISSING = "DefinitionMissing"
    DEFINITION_UNREADABLE = "DefinitionUnreadable"


@dataclass(frozen=True, slots=True)
class Label:
    """What a label says; ``values`` None: names that people gave."""

    text: str
    values: frozenset[str] | None


LABELS: Mapping[str, Label] = {
    "namespace": Label("namespace of the run or the pool", None),
    "pool": Label("pool of workers; with `.jobs` behind it the calls of its tools that have Jobs", None),
    "tool": Label("name of the AgentTool", None),
    "phase": Label("phase of the run or the node", frozenset(NodePhase) | frozenset(RunPhase)),
    "reason": Label("[reason](reasons.md); a tool's own word counts as `ToolFailed`", frozenset(Reason)),
    "priority": Label("P0 to P3, as the node was queued", frozenset(Priority)),
    "effect": Label("whether the call was executed outside", frozenset(Effect) | {NONE}),
    "outcome": Label("the node's next phase; of a worker's call Succeeded or Failed", frozenset(NodePhase)),
    "verdict": Label("the gate's answer to a claim", frozenset(ClaimVerdict)),
    "cause": Label("why an order was handed back", frozenset(HandBackCause)),
    "verb": Label("HTTP method, or WATCH", frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "WATCH"})),
    "resource": Label(
        "plural of the kind, with `/status` where only that is written; `discovery` for what the server serves",
        frozenset(
            {
                "agentruns", "agentruns/status", "agentnodes", "agentnodes/status", "agentapprovals",
                "agentapprovals/status", "agenttools", "agenttools/status", "leases", "namespaces", "discovery",
                "secrets", "subjectaccessreviews", "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
                "deployments", "pods", "networkpolicies", "poddisruptionbudgets",
            }
        ),
    ),
    "state": Label("`Wished` or `Ready`", frozenset({"Wished", "Ready"})),
    "fault": Label("what keeps workers from starting, see [pools](../pools.md)", FAULT_REASONS),
    "status": Label("HTTP status; `None` without an answer", frozenset(map(str, range(100, 600))) | {NONE}),
}  # fmt: skip

_WAIT = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_TURN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CALL = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


@dataclass(frozen=True, slots=True)
class Row:
    """One metric."""

    process: Process
    kind: MetricKind
    name: str
    labels: tuple[str, ...]
    text: str
    buckets: tuple[float, ...] = ()
    """Upper ends in the metric's unit, of a histogram only."""


def _count(process: Process, name: str, labels: str, text: str) -> Row:
    return Row(process, MetricKind.COUNTER, name, tuple(labels.split()), text)


def _gauge(process: Process, name: str, labels: str, text: str) -> Row:
    return Row(process, MetricKind.GAUGE, name, tuple(labels.split()), text)


def _histogram(process: Process, name: str, labels: str, text: str, buckets: tuple[float, ...]) -> Row:
    return Row(process, MetricKind.HISTOGRAM, name, tuple(labels.split()), text, buckets)


_O, _W = Process.OPERATOR, Process.WORKER


class Metric(Enum):
    """All metrics, in the order in which they are read when something is wrong."""

    # fmt: off
    # runs and nodes
    RUNS_ENDED = _count(_O, "agentrun_runs_ended_total", "namespace phase reason", "Runs that ended")
    NODES_ENDED = _count(
        _O, "agentrun_nodes_ended_total", "namespace phase reason", "Nodes that ended; of a Dead one why it failed")
    ATTEMPTS_ENDED = _count(
        _O, "agentrun_attempts_ended_total", "namespace tool effect outcome reason",
        "Attempts that ended, recoveries not counted; outcome TimedOut is one of which nobody knows yet what it did")
    RECOVERIES_ENDED = _count(
        _O, "agentrun_recoveries_ended_total", "namespace tool outcome",
        "Attempts of unknown outcome that were cleared up; outcome Quarantined is one that a human has to clear up")
    RUNS = _gauge(_O, "agentrun_runs", "namespace phase", "Runs that the scheduler has not done with")
    NODES = _gauge(_O, "agentrun_nodes", "namespace phase", "Nodes of the runs that the scheduler has not done with")
    COST_MICROS = _count(
        _O, "agentrun_cost_micros_total", "namespace tool",
        "Money settled for attempts, booked worst cases included, in millionths")
    TOKENS = _count(_O, "agentrun_tokens_total", "namespace tool", "Tokens of models settled for attempts")

    # queue and slots
    ORDER_WAIT = _histogram(
        _O, "agentrun_order_wait_seconds", "namespace tool priority",
        "Time from Ready to the claim of an attempt's order, suspensions not counted", _WAIT)
    QUEUE_DEPTH = _gauge(
        _O, "agentrun_queue_depth", "namespace pool tool priority", "Nodes that wait in line for a slot")
    QUEUE_OLDEST = _gauge(
        _O, "agentrun_queue_oldest_seconds", "namespace pool", "How long the first in line has waited for a slot")
    SLOTS_IN_USE = _gauge(
        _O, "agentrun_slots_in_use", "namespace pool", "Slots held by orders that are out and attempts under way")
    POOL_SLOTS = _gauge(
        _O, "agentrun_pool_slots", "namespace pool", "Slots that the live workers of the pool announce together")

    # pools that the operator keeps
    POOL_WORKERS = _gauge(
        _O, "agentrun_pool_workers", "namespace pool state", "Workers of a pool that the operator keeps")
    POOL_FAULT = _gauge(
        _O, "agentrun_pool_fault", "namespace pool fault", "1 while this keeps a pool from its workers")
    JOBS_STARTING = _gauge(
        _O, "agentrun_jobs_starting", "namespace tool", "Orders that wait for the pod of their Job")
    JOB_FAULTS = _gauge(
        _O, "agentrun_job_faults", "namespace tool fault", "Of them, those that something keeps from starting")

    # the scheduler's own work
    TURN = _histogram(_O, "agentrun_turn_seconds", "", "Duration of a run's turn, writes included", _TURN)
    TURNS_POSTPONED = _count(
        _O, "agentrun_turns_postponed_total", "",
        "Turns that are taken again: ledger or API server did not answer, or an object had changed")
    TURNS_FAILED = _count(
        _O, "agentrun_turns_failed_total", "", "Turns that failed for a cause that does not pass by itself: bugs")
    REPORTS_READ = _count(_O, "agentrun_reports_read_total", "", "Reports of workers that were read")
    REPORTS_ACKNOWLEDGED = _count(
        _O, "agentrun_reports_acknowledged_total", "", "Reports whose content the API server has")

    # the API server
    API_REQUESTS = _count(
        _O, "agentrun_api_requests_total", "verb resource status", "Requests to the API server, kopf's own not counted")
    API_CONFLICTS = _count(
        _O, "agentrun_api_conflicts_total", "resource", "Writes that were refused because the object had changed")
    WATCH_AGE = _gauge(
        _O, "agentrun_watch_age_seconds", "resource",
        "Time since a watch was last heard of: agentnodes gets a bookmark each minute, the others changes only")

    # the ledger
    LEDGER_UNAVAILABLE = _count(
        _O, "agentrun_ledger_unavailable_total", "", "Times that the ledger did not answer the operator")
    LEDGER_AGE = _gauge(
        _O, "agentrun_ledger_answer_age_seconds", "",
        "Time since the ledger last answered the operator, which asks every 5 seconds, as a standby too")

    # the process
    LEADER = _gauge(_O, "agentrun_leader", "", "1 while this operator decides, 0 while it stands by")
    EPOCH = _gauge(_O, "agentrun_epoch", "", "Epoch of the lead that this operator took, 0 before")
    LOOP_AGE = _gauge(
        _O, "agentrun_loop_age_seconds", "", "Time since the event loop last made progress, which it does each second")

    # workers
    WORKER_SLOTS = _gauge(_W, "agentrun_worker_slots", "namespace pool", "Calls that this worker makes at once at most")
    WORKER_CALLS = _gauge(
        _W, "agentrun_worker_calls", "namespace pool", "Calls under way, recoveries included")
    WORKER_CLAIMS = _count(
        _W, "agentrun_worker_claims_total", "namespace pool verdict", "What the gate answered to claims")
    WORKER_CALL = _histogram(
        _W, "agentrun_worker_call_seconds", "namespace pool tool outcome", "Duration of a call", _CALL)
    WORKER_COMMITS_REFUSED = _count(
        _W, "agentrun_worker_commits_refused_total", "namespace pool",
        "Outcomes that came too late: the claim was another's by then, and they are kept as evidence only")
    WORKER_HANDED_BACK = _count(
        _W, "agentrun_worker_handed_back_total", "namespace pool cause", "Orders that were taken and not carried out")
    WORKER_DRAIN_INTERRUPTIONS = _count(
        _W, "agentrun_worker_drain_interruptions_total", "namespace pool",
        "Calls that did not end within the drain's grace and were interrupted")
    WORKER_LEDGER_UNAVAILABLE = _count(
        _W, "agentrun_worker_ledger_unavailable_total", "namespace pool",
        "Times that the ledger did not answer the worker")
    WORKER_LEDGER_AGE = _gauge(
        _W, "agentrun_worker_ledger_answer_age_seconds", "namespace pool",
        "Time since the ledger last answered the worker")
    WORKER_LOOP_AGE = _gauge(
        _W, "agentrun_worker_loop_age_seconds", "namespace pool",
        "Time since the event loop last made progress, which it does each second")
    # fmt: on
