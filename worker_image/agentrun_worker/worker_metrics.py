"""Turns what a worker tells into its metrics. Decides nothing, and never raises for a label."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import assert_never

from prometheus_client import CollectorRegistry

from agentrun.ledger.port import CommitVerdict, WorkerIdentity
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.metric_book import MetricBook
from agentrun.telemetry.metrics import Metric, Process
from agentrun_worker.observer import (
    CallEnded,
    CallsInterrupted,
    CallsUnderWay,
    ClaimAnswered,
    CommitAnswered,
    HandedBack,
    LedgerAnswered,
    LedgerUnavailable,
    WorkerFact,
)


class WorkerMetrics:
    """One worker's numbers; told by its event loop, read by scrapes."""

    def __init__(
        self,
        registry: CollectorRegistry,
        identity: WorkerIdentity,
        liveness: Liveness,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``now`` gives seconds on a clock that never goes back."""
        book = self._book = MetricBook(Process.WORKER, registry)
        self._now = now
        self._ledger_at = now()
        self._calls = 0
        self._place = place = (identity.namespace, identity.pool)
        book.read_from(Metric.WORKER_SLOTS, lambda: {place: identity.slots})
        book.read_from(Metric.WORKER_CALLS, lambda: {place: self._calls})
        book.read_from(Metric.WORKER_LEDGER_AGE, lambda: {place: self._now() - self._ledger_at})
        book.read_from(Metric.WORKER_LOOP_AGE, lambda: {place: liveness.age()})
        # A series that begins with its first event hides that event from every rate.
        for metric in (
            Metric.WORKER_COMMITS_REFUSED,
            Metric.WORKER_DRAIN_INTERRUPTIONS,
            Metric.WORKER_LEDGER_UNAVAILABLE,
        ):
            book.count(metric, *place, by=0)

    def note(self, happened: WorkerFact) -> None:
        """Count a fact of the worker."""
        book, place = self._book, self._place
        match happened:
            case ClaimAnswered(verdict):
                book.count(Metric.WORKER_CLAIMS, *place, verdict)
            case CallsUnderWay(count):
                self._calls = count
            case CallEnded(tool, outcome):
                said = "Succeeded" if outcome.succeeded else "Failed"
                book.observe(Metric.WORKER_CALL, outcome.duration_ms / 1000, *place, tool, said)
            case CommitAnswered(verdict):
                if verdict is CommitVerdict.FENCED:
                    book.count(Metric.WORKER_COMMITS_REFUSED, *place)
            case HandedBack(cause):
                book.count(Metric.WORKER_HANDED_BACK, *place, cause.partition("(")[0])
            case CallsInterrupted(count):
                book.count(Metric.WORKER_DRAIN_INTERRUPTIONS, *place, by=count)
            case LedgerAnswered():
                self._ledger_at = self._now()
            case LedgerUnavailable():
                book.count(Metric.WORKER_LEDGER_UNAVAILABLE, *place)
            case _:
                assert_never(happened)
