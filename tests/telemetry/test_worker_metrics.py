"""What a worker's facts become: every row of its table, driven by the worker's own code on a ledger in memory."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agentrun.contract.exact_json import json_digest
from agentrun.contract.orders import CONTRACT_VERSION, AttemptOutcome
from agentrun.contract.tool import ToolType
from agentrun.ledger.memory_ledger import MemoryLedger
from agentrun.ledger.port import Claim, CommitVerdict, Delivery, LedgerUnavailableError, WorkerIdentity, WorkerLedger
from agentrun.local.virtual_time import VirtualClock, VirtualTimeLoop, run_on_virtual_time
from agentrun.schemas.validator import SchemaValidator
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.metric_book import build_registry
from agentrun.telemetry.metrics import Metric, MetricKind, Process
from agentrun_worker.worker import Worker, WorkerSettings
from agentrun_worker.worker_metrics import WorkerMetrics
from support.orders import NAMESPACE, build_order, build_registration, build_worker
from support.tool_calls import build_python_tool
from support.worker_rig import WaitingExecutor

PLACE = {"namespace": NAMESPACE, "pool": "shared"}


class TroubledLedger:
    """A ledger in memory that is away once, and refuses the commits of one node."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        self._away = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def take_orders(self, worker: WorkerIdentity, count: int, block_ms: int) -> Sequence[Delivery]:
        """Take orders, but not the first time."""
        if self._away:
            self._away -= 1
            raise LedgerUnavailableError("away")
        return await self._ledger.take_orders(worker, count, block_ms)

    async def commit(self, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        """Commit, but not of the node ``late``."""
        if claim.order.node_path == "late":
            return CommitVerdict.FENCED
        return await self._ledger.commit(claim, outcome)


def test_each_of_a_workers_metrics_is_fed_by_the_worker() -> None:
    registry, loop = build_registry(), VirtualTimeLoop()

    async def live() -> dict[str, float]:
        ledger = MemoryLedger(VirtualClock(loop).now_ms)
        definition = build_python_tool("never:called").to_wire()
        digest = json_digest(definition)
        await ledger.open([NAMESPACE])
        await ledger.take_epoch(0)
        await ledger.admit_run(build_registration())
        await ledger.put_tool(NAMESPACE, digest, definition)
        orders = [build_order(name, key=name, tool_digest=digest) for name in ("late", "slow")]
        orders.append(build_order("new", key="new", tool_digest=digest, contract_version=CONTRACT_VERSION + 1))
        for order in orders:
            answer = await ledger.dispatch(order, (), None)
            assert answer.refusal is None
        identity, liveness, executor = build_worker(), Liveness(), WaitingExecutor()
        worker = Worker(
            cast(WorkerLedger, TroubledLedger(ledger)),
            identity,
            dict.fromkeys(ToolType, executor),
            SchemaValidator(),
            WorkerSettings(drain_grace=timedelta(seconds=1)),
            observer=WorkerMetrics(registry, identity, liveness, loop.time),
        )
        assert worker.state == "registering"
        working = loop.create_task(worker.run())
        await executor.began.acquire()
        await executor.began.acquire()
        assert worker.state == "working"
        assert worker.find_fault() == ""
        under_way = read(registry)
        worker.request_drain()
        assert worker.state == "draining"
        await working
        return under_way

    under_way = run_on_virtual_time(live(), loop)
    assert under_way["agentrun_worker_calls"] == 2
    at_the_end = read(registry)
    assert at_the_end["agentrun_worker_calls"] == 0
    assert at_the_end["agentrun_worker_slots"] == 4
    assert at_the_end["agentrun_worker_call_seconds_count"] == 2
    counted = {name: value for name, value in at_the_end.items() if name.endswith("_total")}
    assert counted == {
        "agentrun_worker_claims_total": 2,
        "agentrun_worker_commits_refused_total": 1,
        "agentrun_worker_handed_back_total": 1,
        "agentrun_worker_drain_interruptions_total": 2,
        "agentrun_worker_ledger_unavailable_total": 1,
    }
    rows = [metric.value for metric in Metric if metric.value.process is Process.WORKER]
    untouched = [row.name for row in rows if f"{row.name}{_suffix(row.kind)}" not in at_the_end]
    assert untouched == []


def _suffix(kind: MetricKind) -> str:
    return "_count" if kind is MetricKind.HISTOGRAM else ""


def read(registry: CollectorRegistry) -> dict[str, float]:
    """Return the worker's samples, added up over their labels; each stands for the worker's own pool."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if sample.name.startswith("agentrun_") and not sample.name.endswith(("_bucket", "_sum")):
                assert PLACE.items() <= sample.labels.items()
                found[sample.name] = found.get(sample.name, 0) + sample.value
    return found
