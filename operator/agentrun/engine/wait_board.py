"""The board of a run's waits: gathers what holds its nodes back, for the status, and tells people of what lasts.

Asked by the run's turn when the status is brought up to date. Which waits are shown and when people are told of them is
decided in ``agentrun.decisions.run_waits``.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from agentrun.contract.run import RunPhase, RunWait
from agentrun.decisions.pools.pool_wishes import PoolKey
from agentrun.decisions.run_waits import (
    Holding,
    build_waits,
    explain_pool,
    find_next_telling,
    find_pool,
    find_untold,
    waits_for_job,
)
from agentrun.engine.observer import RunWaits
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.services import EngineServices


class WaitBoard:
    """Knows nothing that the runs' memories and the dispatcher do not hold."""

    def __init__(self, services: EngineServices) -> None:
        self._services = services

    def show(self, run: RunMemory, now: datetime) -> tuple[RunWait, ...]:
        """Return what nodes wait for, note what people are to be told of, and have the run woken for the next time."""
        pending = run.status.phase is RunPhase.PENDING
        if not (pending or run.waiting or run.held_back or run.waits_since or run.status.waits):
            return ()
        holding = self._gather(run)
        # After a start memory knows nothing: what the status says goes on.
        known = {wait.waiting_for: wait.since for wait in run.status.waits} | run.waits_since
        run.waits_since = {limit: known.get(limit, now) for limit in holding.counts}
        run.waits_told = {limit: at for limit, at in run.waits_told.items() if limit in holding.counts}
        waits = build_waits(holding, run.waits_since, now)
        for wait in find_untold(waits, run.waits_told, now):
            run.waits_told[wait.waiting_for] = now
            self._services.observer.note(RunWaits(run.run, wait))
        tell_at = find_next_telling(waits, run.waits_told)
        if tell_at is not None:
            self._services.timers.set(run.key, "", tell_at)
        return waits

    def _gather(self, run: RunMemory) -> Holding:
        counts: Counter[str] = Counter(run.waiting)
        messages: dict[str, str] = {}
        status = run.status
        if status.phase is RunPhase.PENDING and status.reason and not run.held_back:
            # It is not admitted before what its reason names is there: a tool, the run that it continues.
            counts[status.reason], messages[status.reason] = len(run.run.spec.nodes), status.message
        for path, error in run.held_back.items():
            limit = error.waiting_for
            messages[limit] = str(error)
            node = run.nodes.get(path)
            if node is None:
                counts[limit] = max(counts[limit], len(run.nodes) or len(run.run.spec.nodes))
            elif node.status.waiting_for != limit:
                counts[limit] += 1
        for limit in counts:
            if pool := find_pool(limit):
                messages[limit] = self._explain_pool(run.namespace, pool)
            elif waits_for_job(limit):
                messages[limit] = self._services.jobs.explain(run.namespace, limit)
        return Holding(counts, messages)

    def _explain_pool(self, namespace: str, pool: str) -> str:
        announced = self._services.dispatcher.announced(namespace, pool)
        note = self._services.dispatcher.pool_notes.get(PoolKey(namespace, pool), "")
        return "" if announced is None else explain_pool(pool, namespace, announced, note)
