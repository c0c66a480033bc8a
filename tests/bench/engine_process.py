"""A scheduler in a process of its own: ``python -m bench.engine_process RUNS NODES TIMES SHAPE``.

Started by the parts that measure the engine, so that processor time and memory of this process are the scheduler's and
its in-memory cluster's, and nobody else's: the ledger is a process, and the worker another. SHAPE is how the calls of a
run stand to each other, ``fan-outs`` or ``chain``. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrun.contract.run import TERMINAL_RUN_PHASES, RunPhase
from agentrun.engine.clock import SystemClock, SystemEntropy
from agentrun.engine.cluster_port import ClusterChange
from agentrun.engine.observer import EngineFact, ReportsRead, RunPhaseStored, TurnEnded
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.local.embedded_ledger import EmbeddedLedger
from agentrun.local.memory_cluster import MemoryCluster
from agentrun.schemas.validator import SchemaValidator
from agentrun.telemetry.log_setup import LogLevel, set_up_logs
from bench.clock_log import ClockLog, open_clock_log
from bench.shapes import NAMESPACE, SHAPES, fan_outs, stamp_tool
from bench_cluster.figures import find_gaps, summarize_ms
from bench_cluster.process_use import read_use

_INSTALL = "bench"
_SLOTS = 32
_WARM_UP = 20
_STOP_SECONDS = 20.0


class CountedCluster(MemoryCluster):
    """The in-memory cluster, which counts what its watch tells."""

    changes_total = 0

    async def watch(self) -> AsyncIterator[ClusterChange]:
        """Give every change, counted."""
        async for change in super().watch():
            self.changes_total += 1
            yield change


class _Tally:
    """Is told what the engine does."""

    def __init__(self) -> None:
        self.reports_total = 0
        self.turns_total = 0
        self.ended = 0
        self.succeeded = 0
        self.moved = asyncio.Event()

    def note(self, happened: EngineFact) -> None:
        match happened:
            case ReportsRead(count):
                self.reports_total += count
            case TurnEnded():
                self.turns_total += 1
            case RunPhaseStored(run) if run.status is not None and run.status.phase in TERMINAL_RUN_PHASES:
                self.ended += 1
                self.succeeded += run.status.phase is RunPhase.SUCCEEDED
                self.moved.set()
            case _:
                pass

    async def until_ended(self, runs: int) -> None:
        while self.ended < runs:
            self.moved.clear()
            await self.moved.wait()


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    cpu_seconds: float
    reports: int
    changes: int
    turns: int


def _look(tally: _Tally, cluster: CountedCluster) -> _Look:
    return _Look(
        time.perf_counter(), time.process_time(), tally.reports_total, cluster.changes_total, tally.turns_total
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be scheduled."""

    runs: int
    """At once."""
    nodes: int
    """Calls of each."""
    times: int
    """One after the other."""
    shape: str
    """One of :data:`~bench.shapes.SHAPES`."""


async def measure_engine(work: Work) -> dict[str, Any]:
    """Have the work scheduled, and return what it took."""
    log = open_clock_log()
    with EmbeddedLedger() as server:
        ledger = RedisLedger.connect(server.url, LedgerSettings(install=_INSTALL))
        cluster = CountedCluster(SystemClock().now, lambda: secrets.token_hex(16))
        tally = _Tally()
        scheduler = Scheduler(
            cluster=cluster,
            ledger=ledger,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            validator=SchemaValidator(),
            settings=SchedulerSettings(install=_INSTALL),
            observer=tally,
        )
        with _start_worker(server.url) as process:
            deciding = asyncio.create_task(scheduler.run())
            measuring = asyncio.create_task(_measure(cluster, tally, log, work))
            try:
                await asyncio.wait((deciding, measuring), return_when=asyncio.FIRST_COMPLETED)
                if deciding.done():
                    deciding.result()
                return await measuring
            finally:
                measuring.cancel()
                scheduler.stop()
                await asyncio.gather(deciding, measuring, return_exceptions=True)
                await ledger.close()
                _end(process)


async def _measure(cluster: CountedCluster, tally: _Tally, log: ClockLog, work: Work) -> dict[str, Any]:
    cluster.apply(stamp_tool())
    cluster.apply(fan_outs("warm-up", _WARM_UP))
    await tally.until_ended(1)
    rss_before = read_use(os.getpid()).rss_bytes
    _forget_peak()
    names = []
    before = _look(tally, cluster)
    for turn in range(work.times):
        for at in range(work.runs):
            names.append(f"run-{turn}-{at}")
            cluster.apply(SHAPES[work.shape](names[-1], work.nodes))
        await tally.until_ended(1 + len(names))
    after = _look(tally, cluster)
    all_nodes = work.runs * work.nodes * work.times
    cpu, seconds = after.cpu_seconds - before.cpu_seconds, after.at - before.at
    reports, changes = after.reports - before.reports, after.changes - before.changes
    calls = log.read_calls()
    gaps = [gap for name in names for gap in find_gaps(moment for _, moment in calls[name])]
    return {
        "runs": work.runs,
        "nodes": work.nodes,
        "times": work.times,
        "seconds": round(seconds, 2),
        "nodes_per_s": round(all_nodes / seconds, 1),
        "scheduler_cpu_s": round(cpu, 3),
        "reports": reports,
        "changes": changes,
        "turns": after.turns - before.turns,
        "rss_before_mb": round(rss_before / 2**20, 1),
        "rss_peak_mb": round(read_use(os.getpid()).peak_rss_bytes / 2**20, 1),
        "step": summarize_ms(gaps),
        "steps_per_s": round(len(gaps) / sum(gaps), 1),
        "runs_not_succeeded": work.runs * work.times + 1 - tally.succeeded,
        **log.count_oddities(dict.fromkeys(names, work.nodes)),
    }


def _forget_peak() -> None:
    # proc(5): 5 sets the peak to what is used now.
    Path("/proc/self/clear_refs").write_text("5")


def _start_worker(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench_cluster.worker_host", url, _INSTALL, str(_SLOTS), NAMESPACE]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


async def _serve(work: Work) -> None:
    measuring = asyncio.current_task()
    if measuring is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, measuring.cancel)
    print(json.dumps(await measure_engine(work)))


if __name__ == "__main__":
    set_up_logs(LogLevel.ERROR)
    runs, nodes, times = map(int, sys.argv[1:4])
    asyncio.run(_serve(Work(runs, nodes, times, shape=sys.argv[4])))
