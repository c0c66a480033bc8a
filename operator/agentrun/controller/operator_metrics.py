"""Turns what engine and API client tell into the operator's metrics. Decides nothing, and never raises for a label."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar, assert_never

from prometheus_client import CollectorRegistry

from agentrun.contract.node import TERMINAL_NODE_PHASES, AgentNodeStatus, NodePhase
from agentrun.controller.jobs.job_report import JobReport
from agentrun.controller.pools.pool_report import PoolReport
from agentrun.decisions.jobs.job_wishes import JobKey
from agentrun.decisions.pools.pool_wishes import PoolKey
from agentrun.engine.observer import (
    EngineFact,
    EngineSurvey,
    LeadEnded,
    LeadTaken,
    LedgerUnavailable,
    NodeMoved,
    QuestionAsked,
    ReportsAcknowledged,
    ReportsRead,
    RunEnded,
    RunPhaseStored,
    RunWaits,
    TurnEnded,
    TurnEnding,
)
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.metric_book import LabelSet, MetricBook
from agentrun.telemetry.metrics import NONE, Metric, Process

Key = TypeVar("Key", bound=LabelSet)
WATCHED = ("agentruns", "agenttools", "agentapprovals", "agentnodes")


class OperatorMetrics:
    """The operator's numbers; told by the event loop, read by scrapes."""

    def __init__(
        self, registry: CollectorRegistry, liveness: Liveness, now: Callable[[], float] = time.monotonic
    ) -> None:
        """``now`` gives seconds on a clock that never goes back."""
        self._book = MetricBook(Process.OPERATOR, registry)
        self._now = now
        self._ledger_at = now()
        self._heard_at: dict[str, float] = {}
        self._epoch = 0
        self._survey = EngineSurvey()
        self._pools: Mapping[PoolKey, PoolReport] = {}
        self._jobs: Mapping[JobKey, JobReport] = {}
        self.leads = False
        """Whether this operator decides."""
        self._show_gauges(liveness)

    def note(self, happened: EngineFact) -> None:
        """Count a fact of the engine."""
        book = self._book
        match happened:
            case RunEnded(namespace, phase, reason):
                book.count(Metric.RUNS_ENDED, namespace, phase, reason)
            case NodeMoved():
                self._note_move(happened)
            case TurnEnded(ending, seconds):
                book.observe(Metric.TURN, seconds)
                if ending is TurnEnding.POSTPONED:
                    book.count(Metric.TURNS_POSTPONED)
                if ending is TurnEnding.FAILED:
                    book.count(Metric.TURNS_FAILED)
            case ReportsRead(count):
                book.count(Metric.REPORTS_READ, by=count)
                self.note_ledger_answer()
            case ReportsAcknowledged(count):
                book.count(Metric.REPORTS_ACKNOWLEDGED, by=count)
            case LedgerUnavailable():
                book.count(Metric.LEDGER_UNAVAILABLE)
            case LeadTaken(epoch):
                self.leads, self._epoch = True, epoch
                # From here on the watches are waited for, also one that never says a word.
                self._heard_at = dict.fromkeys(WATCHED, self._now())
            case LeadEnded():
                self.leads = False
            case RunPhaseStored() | QuestionAsked() | RunWaits():
                pass
            case _:
                assert_never(happened)

    def note_ledger_answer(self) -> None:
        """The ledger has answered just now."""
        self._ledger_at = self._now()

    def note_request(self, verb: str, path: str, status: int | None) -> None:
        """Count a request to the API server; status None: no answer came."""
        resource = resource_of(path)
        self._book.count(Metric.API_REQUESTS, verb, resource, NONE if status is None else str(status))
        # A create that finds its name taken is answered 409 as well, and is no conflict.
        if status == 409 and verb != "POST":
            self._book.count(Metric.API_CONFLICTS, resource)

    def note_watch(self, resource: str) -> None:
        """A watch was heard of."""
        self._heard_at[resource] = self._now()

    def show_survey(self, survey: EngineSurvey) -> None:
        """Show what the scheduler holds, until the next survey."""
        self._survey = survey

    def show_pools(self, reports: Mapping[PoolKey, PoolReport]) -> None:
        """Show what the pools are like, until the next report."""
        self._pools = reports

    def show_jobs(self, reports: Mapping[JobKey, JobReport]) -> None:
        """Show which Jobs orders wait for, until the next report."""
        self._jobs = reports

    def _note_move(self, moved: NodeMoved) -> None:
        book, namespace, tool = self._book, moved.namespace, moved.tool
        before, after = moved.before, moved.after
        if after.phase in TERMINAL_NODE_PHASES:
            # That a node has failed is what Dead says already: why it failed stands in the state before.
            reason = before.reason if before.phase is NodePhase.FAILED else after.reason
            book.count(Metric.NODES_ENDED, namespace, after.phase, reason)
        if (before.phase, after.phase) == (NodePhase.QUEUED, NodePhase.RUNNING):
            book.observe(Metric.ORDER_WAIT, _waited(moved), namespace, tool, before.priority)
        # Handed back to Ready under its claim: nothing was executed, it was no attempt.
        if before.phase is NodePhase.RUNNING and not before.recovering and after.phase is not NodePhase.READY:
            effect = after.effect or NONE
            book.count(Metric.ATTEMPTS_ENDED, namespace, tool, effect, after.phase, after.reason)
        if _is_unclear(before) and not _is_unclear(after):
            book.count(Metric.RECOVERIES_ENDED, namespace, tool, after.phase)
        if after.cost > before.cost:
            book.count(Metric.COST_MICROS, namespace, tool, by=after.cost - before.cost)
        if after.tokens > before.tokens:
            book.count(Metric.TOKENS, namespace, tool, by=after.tokens - before.tokens)

    def _show_gauges(self, liveness: Liveness) -> None:
        show = self._book.read_from
        show(Metric.RUNS, lambda: _labelled(self._survey.runs))
        show(Metric.NODES, lambda: _labelled(self._survey.nodes))
        show(Metric.QUEUE_DEPTH, lambda: _labelled(self._survey.queue.waiting))
        show(Metric.QUEUE_OLDEST, self._oldest)
        show(Metric.SLOTS_IN_USE, lambda: _labelled(self._survey.queue.in_use))
        show(Metric.POOL_SLOTS, lambda: _labelled(self._survey.queue.announced))
        show(Metric.POOL_WORKERS, self._pool_workers)
        show(Metric.POOL_FAULT, self._pool_faults)
        show(Metric.JOBS_STARTING, self._jobs_starting)
        show(Metric.JOB_FAULTS, self._job_faults)
        show(Metric.WATCH_AGE, self._watch_ages)
        show(Metric.LEDGER_AGE, lambda: {(): self._now() - self._ledger_at})
        show(Metric.LEADER, lambda: {(): float(self.leads)})
        show(Metric.EPOCH, lambda: {(): self._epoch})
        show(Metric.LOOP_AGE, lambda: {(): liveness.age()})

    def _oldest(self) -> dict[LabelSet, float]:
        return {(*pool,): waited.total_seconds() for pool, waited in self._survey.queue.oldest.items()}

    def _pool_workers(self) -> dict[LabelSet, float]:
        counts: dict[LabelSet, float] = {}
        for key, report in self._pools.items():
            counts[*key, "Wished"], counts[*key, "Ready"] = report.wished, report.ready
        return counts

    def _pool_faults(self) -> dict[LabelSet, float]:
        return {(*key, report.fault.reason): 1.0 for key, report in self._pools.items() if report.fault}

    def _jobs_starting(self) -> dict[LabelSet, float]:
        return dict(Counter((key.namespace, report.tool) for key, report in self._jobs.items()))

    def _job_faults(self) -> dict[LabelSet, float]:
        found = (
            (key.namespace, report.tool, report.fault.reason) for key, report in self._jobs.items() if report.fault
        )
        return dict(Counter(found))

    def _watch_ages(self) -> dict[LabelSet, float]:
        now = self._now()
        return {(resource,): now - at for resource, at in dict(self._heard_at).items()}


def resource_of(path: str) -> str:
    """Return what a URL path of the API server is about: the kind's plural, with ``/status`` where it is that."""
    parts = path.strip("/").split("/")
    # apis/<group>/<version>/…, api/<version>/…
    rest = parts[3:] if parts[0] == "apis" else parts[2:] if parts[0] == "api" else []
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    if not rest:
        return "discovery"
    return f"{rest[0]}/{rest[2]}" if len(rest) > 2 else rest[0]


def _labelled(counts: Mapping[Key, int]) -> dict[LabelSet, float]:
    return {(*key,): count for key, count in counts.items()}


def _is_unclear(status: AgentNodeStatus) -> bool:
    """Tell whether nobody knows what the attempt did."""
    return status.phase is NodePhase.TIMED_OUT or (status.phase is NodePhase.RUNNING and status.recovering)


def _waited(moved: NodeMoved) -> float:
    before = moved.before
    paused = moved.pause_total - (before.pause_at_entry or timedelta())
    waited = moved.after.entered_at - (before.queued_since or before.entered_at) - paused
    return max(0.0, waited.total_seconds())
