"""What the engine's facts become: every row of the operator's table, driven by real runs on virtual time."""

import asyncio
import inspect
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from aiohttp import web
from kubernetes import client
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agentrun.contract.node import AgentNodeStatus, NodePhase
from agentrun.contract.orders import Report
from agentrun.controller import operator_metrics
from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_client import ApiClient
from agentrun.controller.operator_metrics import WATCHED, OperatorMetrics, resource_of
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError
from agentrun.engine.observer import LeadTaken, LedgerUnavailable, NodeMoved
from agentrun.engine.run_inputs import Woken
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.run_queues import RunQueues
from agentrun.engine.run_turn import new_memory
from agentrun.engine.scheduler import Scheduler
from agentrun.ledger.memory_ledger import MemoryLedger
from agentrun.ledger.port import LedgerUnavailableError, SchedulerLedger
from agentrun.local.chance import SeededEntropy
from agentrun.schemas.validator import SchemaValidator
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.metric_book import build_registry
from agentrun.telemetry.metrics import LABELS, OTHER, Metric, Process
from support.manifest_texts import build_run
from support.world import World, in_world

TOOLS = """
pay:
  timeout: 10s
  cost: {perCall: "0.02"}
  recovery:
    lookup: {tool: look, params: {key: "${key}"}}
    outcome: {completed: {when: {path: result.state, op: eq, value: done}}}
look: {sideEffect: None, timeout: 5s}
burn: {sideEffect: Idempotent, retry: {limit: 0}}
"""
SCRIPT = """
tools:
  pay: [{result: {id: 1}, delay: 5s, cost: "0.02"}, {crash: after-effect}]
  look: [{result: {state: done}}]
  burn: [{failure: {class: Permanent, reason: OrderFortyTwoIsOnFire, message: zq-message}}]
"""
RUN = """
session: zq-session
nodes:
- {name: zq-first, tool: pay, params: {order: zq-1}}
- {name: zq-second, tool: pay, params: {order: zq-2}, dependsOn: [zq-first]}
- {name: zq-third, tool: burn, dependsOn: [zq-second]}
"""
Samples = dict[tuple[str, ...], float]


class AwayAtFirst:
    """A ledger whose reports cannot be read the first time."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        self._away = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def read_reports(self, *arguments: Any) -> Sequence[tuple[str, Report]]:
        """Read reports, but not the first time."""
        if self._away:
            self._away -= 1
            raise LedgerUnavailableError("away")
        return await self._ledger.read_reports(*arguments)


class Watched:
    """A scheduler over a world, and its metrics."""

    def __init__(self, world: World) -> None:
        self.registry = build_registry()
        now = asyncio.get_running_loop().time
        self.metrics = OperatorMetrics(self.registry, Liveness(now=now), now)
        self.scheduler = Scheduler(
            cluster=world.cluster,
            ledger=cast(SchedulerLedger, AwayAtFirst(world.ledger)),
            clock=world.clock,
            entropy=world.entropy,
            validator=SchemaValidator(),
            observer=self.metrics,
        )
        self._engine = asyncio.create_task(self.scheduler.run())

    def look(self) -> None:
        """Take a survey."""
        self.metrics.show_survey(self.scheduler.survey())

    async def stop(self) -> None:
        """End the scheduler."""
        self.scheduler.stop()
        await self._engine


def read(registry: CollectorRegistry, metric: Metric, suffix: str = "") -> Samples:
    """Return a metric's samples by the values of its labels."""
    row = metric.value
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    return {
        tuple(sample.labels[name] for name in row.labels): sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"{row.name}{suffix}"
    }


def test_a_run_leaves_its_trace_in_every_metric_of_runs_nodes_queue_and_slots() -> None:
    async def live(world: World) -> tuple[CollectorRegistry, Samples, Samples]:
        watched = Watched(world)
        world.apply_run(RUN, name="zq-run")
        # Nobody works yet: the first node waits in line.
        await asyncio.sleep(4)
        watched.look()
        waiting = {
            **read(watched.registry, Metric.QUEUE_DEPTH),
            **read(watched.registry, Metric.QUEUE_OLDEST),
            **read(watched.registry, Metric.NODES),
            **read(watched.registry, Metric.RUNS),
        }
        world.start_worker()
        await asyncio.sleep(4)
        watched.look()
        working = {
            (*key, name): value
            for name, metric in (("in use", Metric.SLOTS_IN_USE), ("announced", Metric.POOL_SLOTS))
            for key, value in read(watched.registry, metric).items()
        }
        await world.ended("zq-run")
        await asyncio.sleep(5)
        watched.look()
        assert read(watched.registry, Metric.LEADER) == {(): 1}
        assert read(watched.registry, Metric.EPOCH) == {(): 1}
        await watched.stop()
        assert read(watched.registry, Metric.LEADER) == {(): 0}
        return watched.registry, waiting, working

    registry, waiting, working = in_world(live, TOOLS, SCRIPT)
    assert waiting.pop(("default", "shared")) == pytest.approx(4, abs=0.5)
    assert waiting == {
        ("default", "shared", "pay", "P2"): 1,
        ("default", "Ready"): 1,
        ("default", "Pending"): 2,
        ("default", "Running"): 1,
    }
    assert working == {("default", "shared", "in use"): 1, ("default", "shared", "announced"): 8}
    assert read(registry, Metric.RUNS_ENDED) == {("default", "Failed", "NodeFailed"): 1}
    assert read(registry, Metric.NODES_ENDED) == {
        ("default", "Succeeded", "Completed"): 1,
        ("default", "Succeeded", "RecoveredCompleted"): 1,
        ("default", "Dead", "ToolFailed"): 1,
    }
    assert read(registry, Metric.ATTEMPTS_ENDED) == {
        ("default", "pay", "Executed", "Succeeded", "Completed"): 1,
        ("default", "pay", "Unknown", "TimedOut", "AttemptTimeout"): 1,
        ("default", "burn", "NotExecuted", "Failed", "ToolFailed"): 1,
    }
    assert read(registry, Metric.RECOVERIES_ENDED) == {("default", "pay", "Succeeded"): 1}
    assert read(registry, Metric.COST_MICROS)["default", "pay"] >= 40_000
    assert read(registry, Metric.ORDER_WAIT, "_count") == {("default", "pay", "P2"): 2, ("default", "burn", "P2"): 1}
    assert 4 <= read(registry, Metric.ORDER_WAIT, "_sum")["default", "pay", "P2"] < 10
    # The dead node may still be re-driven: its run is not done with.
    assert read(registry, Metric.RUNS) == {("default", "Failed"): 1}
    assert read(registry, Metric.NODES) == {("default", "Dead"): 1, ("default", "Succeeded"): 2}
    assert read(registry, Metric.TURN, "_count")[()] >= 5
    assert read(registry, Metric.TURNS_FAILED) == {(): 0}
    read_total = read(registry, Metric.REPORTS_READ)[()]
    assert read_total == read(registry, Metric.REPORTS_ACKNOWLEDGED)[()] > 5
    assert read(registry, Metric.LEDGER_UNAVAILABLE) == {(): 1}
    assert read(registry, Metric.LEDGER_AGE)[()] < 1
    assert_bounded(registry)


def assert_bounded(registry: CollectorRegistry) -> None:
    """Nothing that a run brings along is a label, and closed sets hold."""
    text = generate_latest(registry).decode()
    assert "zq-" not in text
    assert "OnFire" not in text
    rows = {metric.value.name.removesuffix("_total"): metric.value for metric in Metric}
    for family in text_string_to_metric_families(text):
        row = rows.get(family.name)
        for sample in family.samples if row else ():
            assert row is not None
            assert set(sample.labels) - {"le"} == set(row.labels)
            for name, value in sample.labels.items():
                closed = LABELS[name].values if name != "le" else None
                assert closed is None or value in closed | {OTHER}


async def turns_of(*ends: BaseException | None) -> CollectorRegistry:
    """Take turns that end so, one after the other."""
    registry = build_registry()
    metrics = OperatorMetrics(registry, Liveness())
    left = list(ends)

    async def take(run: RunMemory) -> None:
        run.inputs.clear()
        if (end := left.pop(0)) is not None:
            raise end

    def note_silence(error: LedgerUnavailableError) -> None:
        metrics.note(LedgerUnavailable())

    queues = RunQueues(take, lambda run: None, SeededEntropy(1), 1, metrics, note_silence)
    run = new_memory(build_run("[{name: a, tool: pay}]"))
    run.run = run.run.model_copy(update={"metadata": run.run.metadata.model_copy(update={"uid": "u"})})
    queues.add(run)
    queues.post(run.key, Woken(""))
    async with asyncio.timeout(20):
        while left:
            await asyncio.sleep(0.01)
    await queues.close(timedelta(seconds=1))
    return registry


async def test_turns_that_are_postponed_or_fail_are_counted() -> None:
    away, moved = LedgerUnavailableError("away"), ConflictError("moved")
    registry = await turns_of(away, moved, RuntimeError("a bug"), None)
    assert read(registry, Metric.TURN, "_count") == {(): 4}
    assert read(registry, Metric.TURNS_POSTPONED) == {(): 2}
    assert read(registry, Metric.TURNS_FAILED) == {(): 1}
    assert read(registry, Metric.LEDGER_UNAVAILABLE) == {(): 1}


def test_a_suspension_is_no_wait_and_a_handed_back_claim_no_attempt() -> None:
    registry = build_registry()
    metrics = OperatorMetrics(registry, Liveness())
    start = AgentNodeStatus.model_validate({"enteredAt": "2026-01-01T00:00:00Z"}).entered_at
    queued = AgentNodeStatus(
        phase=NodePhase.QUEUED, entered_at=start, queued_since=start, pause_at_entry=timedelta(seconds=10)
    )
    claimed_at = start + timedelta(seconds=100)
    running = queued.model_copy(update={"phase": NodePhase.RUNNING, "entered_at": claimed_at})
    metrics.note(NodeMoved("shop", "pay", queued, running, timedelta(seconds=70)))
    assert read(registry, Metric.ORDER_WAIT, "_sum") == {("shop", "pay", "P2"): 40}
    back = running.model_copy(update={"phase": NodePhase.READY})
    metrics.note(NodeMoved("shop", "pay", running, back, timedelta(0)))
    assert read(registry, Metric.ATTEMPTS_ENDED) == {}
    done = running.model_copy(update={"phase": NodePhase.SUCCEEDED, "reason": "Completed", "tokens": 7})
    metrics.note(NodeMoved("shop", "pay", running, done, timedelta(0)))
    assert read(registry, Metric.ATTEMPTS_ENDED) == {("shop", "pay", "None", "Succeeded", "Completed"): 1}
    assert read(registry, Metric.TOKENS) == {("shop", "pay"): 7}


@pytest.mark.parametrize(
    "path, want",
    [
        ("/apis/agentrun.dev/v1alpha1/namespaces/zq/agentnodes/zq-1/status", "agentnodes/status"),
        ("/apis/agentrun.dev/v1alpha1/namespaces/zq/agentnodes", "agentnodes"),
        ("/apis/agentrun.dev/v1alpha1/agentruns", "agentruns"),
        ("/apis/coordination.k8s.io/v1/namespaces/zq/leases/zq-operator", "leases"),
        ("/apis/agentrun.dev/v1alpha1", "discovery"),
        ("/version", "discovery"),
        ("/api/v1/namespaces/zq/pods/zq", "pods"),
        ("/api/v1/namespaces/zq", "namespaces"),
    ],
)
def test_a_path_is_counted_by_its_resource(path: str, want: str) -> None:
    assert resource_of(path) == want


async def test_requests_are_counted_by_what_the_api_server_answered() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"reason": "Conflict"}, status=409 if request.method in ("PUT", "POST") else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    registry = build_registry()
    metrics = OperatorMetrics(registry, Liveness())
    configuration = client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    nodes = "/apis/agentrun.dev/v1alpha1/namespaces/zq/agentnodes"
    async with ApiClient(ApiAccess(configuration), metrics.note_request) as api:
        await api.request("GET", nodes)
        for verb, path in (("PUT", f"{nodes}/zq-1/status"), ("POST", nodes)):
            with pytest.raises(ConflictError):
                await api.request(verb, path, {})
        assert [line async for line in api.watch_lines(nodes, {})]
        await runner.cleanup()
        with pytest.raises(ClusterUnavailableError):
            await api.request("GET", "/version")
        with pytest.raises(ClusterUnavailableError):
            await anext(aiter(api.watch_lines(nodes, {})))
    assert read(registry, Metric.API_REQUESTS) == {
        ("GET", "agentnodes", "200"): 1,
        ("PUT", "agentnodes/status", "409"): 1,
        ("POST", "agentnodes", "409"): 1,
        ("WATCH", "agentnodes", "200"): 1,
        ("GET", "discovery", "None"): 1,
        ("WATCH", "agentnodes", "None"): 1,
    }
    assert read(registry, Metric.API_CONFLICTS) == {("agentnodes/status",): 1}


def test_each_row_of_the_operators_table_is_named_by_the_code_that_feeds_it() -> None:
    source = inspect.getsource(operator_metrics)
    unfed = [metric.name for metric in Metric if metric.value.process is Process.OPERATOR]
    assert [name for name in unfed if f"Metric.{name}" not in source] == []


def test_a_watch_that_never_says_a_word_grows_old_from_the_lead_on() -> None:
    moment = 100.0
    registry = build_registry()
    metrics = OperatorMetrics(registry, Liveness(), lambda: moment)
    assert read(registry, Metric.WATCH_AGE) == {}
    metrics.note(LeadTaken(2))
    moment = 130.0
    metrics.note_watch("agentnodes")
    moment = 140.0
    assert read(registry, Metric.WATCH_AGE) == {(kind,): 10 if kind == "agentnodes" else 40 for kind in WATCHED}
    assert read(registry, Metric.LEDGER_AGE) == {(): 40}
    assert set(WATCHED) <= (LABELS["resource"].values or set())
