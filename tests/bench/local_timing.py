"""Executes runs as ``agentrun local run`` does, and notes how long they took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, RunPhase
from agentrun.contract.tool import AgentTool
from agentrun.engine.cluster_port import ClusterChange
from agentrun.local.local_run import LocalRun, LocalSetup
from bench_cluster.worker_host import TOOLS


@dataclass(frozen=True, slots=True)
class LocalTiming:
    """How long the runs took."""

    runs_seconds: float
    """From the first run's appearance to the last one's end."""
    whole_seconds: float
    """With the start and the end of the ledger's server and of everything else."""
    not_succeeded: int
    """Runs that did not end as Succeeded."""


class _Stopwatch:
    """Is told of every object that appears or changes."""

    def __init__(self) -> None:
        self.first_seen = 0.0
        self.last_ended = 0.0

    def see(self, change: ClusterChange) -> None:
        found = change.object
        if isinstance(found, AgentRun):
            now = time.perf_counter()
            self.first_seen = self.first_seen or now
            if found.status is not None and found.status.phase in TERMINAL_RUN_PHASES:
                self.last_ended = now


async def time_local_runs(runs: Sequence[AgentRun], tool: AgentTool) -> LocalTiming:
    """Execute the runs at once: embedded Valkey, worker in this process, eight slots, the whole gate."""
    watch = _Stopwatch()
    began = time.perf_counter()
    outcome = await LocalRun(LocalSetup([tool], runs, [TOOLS], observe=watch.see)).execute()
    return LocalTiming(
        runs_seconds=watch.last_ended - watch.first_seen,
        whole_seconds=time.perf_counter() - began,
        not_succeeded=sum(run.status is None or run.status.phase is not RunPhase.SUCCEEDED for run in outcome.runs),
    )
