"""Local mode: the engine, the ledger and the worker in one process, for the runs of a few manifest files.

The composition root of ``agentrun local run``. The rules are the engine's; what stands here is what a cluster would
provide: a place for objects, a ledger server, workers for each pool, and somebody who answers questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from agentrun.contract.approval import AgentApproval, Decision
from agentrun.contract.execution import find_ledger_pool
from agentrun.contract.node import AgentNode
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, RunPhase
from agentrun.contract.tool import AgentTool, ToolType
from agentrun.engine.clock import Clock, Entropy, SystemClock, SystemEntropy
from agentrun.engine.cluster_port import ChangeKind, ClusterChange, ClusterObject, ConflictError
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.port import Ledger, WorkerIdentity
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.local.chance import uid_from
from agentrun.local.embedded_ledger import EmbeddedLedger
from agentrun.local.memory_cluster import MemoryCluster
from agentrun.local.state_folder import StateFolder
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.executor import Executor
from agentrun_worker.http_executor import HttpExecutor
from agentrun_worker.python_executor import PythonExecutor
from agentrun_worker.secret_sources import EnvironmentSecrets
from agentrun_worker.worker import Worker, WorkerSettings

Answer = Callable[[AgentApproval], Awaitable[Decision | None]]
"""Answers a question, or None: nobody does."""
Observer = Callable[[ClusterChange], None]
"""Is told of every object that appears or changes."""


_RESTART_PAUSE = 1.0
"""Seconds until a worker that died is back."""


async def nobody_answers(approval: AgentApproval) -> None:
    """Leave every question open."""
    return


@dataclass(frozen=True, slots=True)
class LocalSetup:
    """What a local run is made of; the defaults are a developer's machine."""

    tools: Sequence[AgentTool]
    runs: Sequence[AgentRun]
    import_paths: Sequence[Path] = ()
    """Where Python tools are looked for first."""
    answer: Answer = nobody_answers
    observe: Observer = lambda change: None
    state: StateFolder | None = None
    """An open folder in which everything is kept; None: it goes with the process."""
    redis_url: str | None = None
    """None: a server is started for this run alone."""
    slots: int = 8
    """Calls at once, for each pool."""
    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    executors: Callable[[Callable[[], None]], Mapping[ToolType, Executor]] | None = None
    """Makes a worker's executors, given what ends that worker as a crash would. None: the worker's own."""
    ledger: Ledger | None = None
    """None: Redis or Valkey."""
    settings: SchedulerSettings = field(default_factory=lambda: SchedulerSettings(coalesce=timedelta(0)))
    """Nothing is saved by coalescing in memory, and a reader sees every state."""
    worker_settings: WorkerSettings = field(default_factory=WorkerSettings)


@dataclass(frozen=True, slots=True)
class LocalOutcome:
    """How the runs ended."""

    runs: tuple[AgentRun, ...]
    nodes: tuple[AgentNode, ...]
    approvals: tuple[AgentApproval, ...]
    waits_for_human: bool = False
    """A run stands still because nobody answers."""


class LocalRun:
    """Executes the runs of some manifests once."""

    def __init__(self, setup: LocalSetup) -> None:
        self._setup = setup
        new_uid = lambda: uid_from(setup.entropy.token())  # noqa: E731
        if setup.state is None:
            self._cluster = MemoryCluster(setup.clock.now, new_uid)
        else:
            self._cluster = MemoryCluster(setup.clock.now, new_uid, setup.state.record)
            self._cluster.load(setup.state.objects)
        self._mine = {(run.metadata.namespace, run.metadata.name) for run in setup.runs}
        self._answering: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: set[str] = set()
        self._started: dict[tuple[str, str], None] = {}
        self._moving: set[tuple[str, str]] = set()
        """Of them, those that did not stand still when they were told of last."""
        self._crews: list[_Crew] = []

    @property
    def cluster(self) -> MemoryCluster:
        """Return the cluster, as a person with kubectl would reach it."""
        return self._cluster

    def cancel(self) -> None:
        """Ask for every run to be cancelled; :meth:`execute` returns once they have ended."""
        for namespace, name in self._started:
            self._cluster.patch_run_spec(namespace, name, lambda spec: spec.model_copy(update={"cancel": True}))

    def kill_workers(self) -> None:
        """End every worker as a crash would; each is back after a moment, under its old name."""
        for member in self._crews:
            member.kill()

    async def execute(self) -> LocalOutcome:
        """Run everything to its end, or until only a human could go on and none does.

        Raises what keeps the engine or a worker from working at all.
        """
        async with self._ledger() as connect:
            ledger = connect()
            # A server that is not there is the user's matter now; later it is one to wait for.
            await ledger.look()
            scheduler = Scheduler(
                cluster=self._cluster,
                ledger=ledger,
                clock=self._setup.clock,
                entropy=self._setup.entropy,
                validator=SchemaValidator(),
                settings=self._setup.settings,
            )
            engine = asyncio.create_task(scheduler.run(), name="scheduler")
            self._crews = [_Crew(self._setup, ledger, namespace, pool) for namespace, pool in self._pools()]
            crew = [asyncio.create_task(member.run(), name="worker") for member in self._crews]
            watching = asyncio.create_task(self._watch_until_ended(), name="watch")
            try:
                self._submit()
                done, _ = await asyncio.wait((watching, engine, *crew), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                watching.cancel()
                for member in self._crews:
                    member.request_drain()
                await asyncio.gather(*crew, return_exceptions=True)
                scheduler.stop()
                await asyncio.gather(engine, watching, *self._tasks, return_exceptions=True)
                await ledger.close()
        return self._outcome()

    # --- parts

    @asynccontextmanager
    async def _ledger(self) -> AsyncIterator[Callable[[], Ledger]]:
        setup = self._setup
        if setup.ledger is not None:
            given = setup.ledger
            yield lambda: given
            return
        if setup.redis_url is not None:
            url = setup.redis_url
            yield lambda: RedisLedger.connect(url, LedgerSettings(install=setup.settings.install))
            return
        embedded = EmbeddedLedger(setup.state.ledger if setup.state is not None else None)
        await asyncio.to_thread(embedded.start)
        try:
            yield lambda: RedisLedger.connect(embedded.url, LedgerSettings(install=setup.settings.install))
        finally:
            await asyncio.to_thread(embedded.stop)

    def _pools(self) -> list[tuple[str, str]]:
        return sorted({(tool.metadata.namespace, find_ledger_pool(tool.spec.execution)) for tool in self._setup.tools})

    def _submit(self) -> None:
        for tool in self._setup.tools:
            self._cluster.apply(tool)
        for run in self._setup.runs:
            self._cluster.apply(run)
            self._started[run.metadata.namespace, run.metadata.name] = None
        self._moving.update(self._started)

    # --- watching and answering

    async def _watch_until_ended(self) -> None:
        async for change in self._cluster.watch():
            if not self._concerns_me(change.object):
                continue
            self._setup.observe(change)
            found = change.object
            if isinstance(found, AgentApproval) and change.kind is ChangeKind.SEEN:
                self._consider(found)
            if isinstance(found, AgentRun):
                self._follow(found, gone=change.kind is ChangeKind.GONE)
                # Looking at all of them for each change of one would cost their square.
                if not self._moving and self._all_stand_still():
                    return

    def _concerns_me(self, found: ClusterObject) -> bool:
        """Tell whether it belongs to this invocation: a kept folder holds what earlier ones have left as well."""
        namespace = found.metadata.namespace
        match found:
            case AgentRun():
                return (namespace, found.metadata.name) in self._mine or found.spec.retry_of is not None
            case AgentNode():
                return self._setup.state is None or (namespace, found.spec.run.name) in self._mine
            case AgentApproval():
                request = found.status.request if found.status else None
                return self._setup.state is None or request is None or (namespace, request.run.name) in self._mine
            case AgentTool():
                return True

    def _consider(self, approval: AgentApproval) -> None:
        status = approval.status
        name = approval.metadata.name
        if status is None or status.request is None or status.state != "Open" or approval.spec.decision is not None:
            return
        if name not in self._answering:
            self._answering.add(name)
            task = asyncio.create_task(self._get_answer(approval))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _get_answer(self, approval: AgentApproval) -> None:
        namespace, name = approval.metadata.namespace, approval.metadata.name
        decision = await self._setup.answer(approval)
        if decision is None:
            self._unanswered.add(name)
            # Whoever watches looks again whether anything can still go on.
            run = approval.status.request.run if approval.status and approval.status.request else None
            if run is not None:
                self._cluster.touch_run(namespace, run.name)
            return
        try:
            self._cluster.patch_decision(namespace, name, decision)
        except ConflictError:
            return

    def _follow(self, run: AgentRun, *, gone: bool) -> None:
        key = (run.metadata.namespace, run.metadata.name)
        if gone or _has_ended(run) or self._waits_in_vain(run):
            self._moving.discard(key)
        elif key in self._started:
            self._moving.add(key)

    def _all_stand_still(self) -> bool:
        there = {(run.metadata.namespace, run.metadata.name): run for run in self._cluster.runs()}
        # A run that was deleted has ended for whoever watches it.
        left = [there[key] for key in self._started if key in there]
        return bool(self._started) and all(_has_ended(run) or self._waits_in_vain(run) for run in left)

    def _waits_in_vain(self, run: AgentRun) -> bool:
        if run.status is None or run.status.phase is not RunPhase.SUSPENDED or run.spec.suspend:
            return False
        asked = [
            approval
            for approval in self._cluster.approvals_of(run.metadata.namespace, run.metadata.uid)
            if approval.status is None or approval.status.state == "Open"
        ]
        return bool(asked) and all(approval.metadata.name in self._unanswered for approval in asked)

    def _outcome(self) -> LocalOutcome:
        runs = tuple(run for run in self._cluster.runs() if self._concerns_me(run))
        return LocalOutcome(
            runs=runs,
            nodes=tuple(
                node for run in runs for node in self._cluster.nodes_of(run.metadata.namespace, run.metadata.uid)
            ),
            approvals=tuple(
                approval
                for run in runs
                for approval in self._cluster.approvals_of(run.metadata.namespace, run.metadata.uid)
            ),
            waits_for_human=any(self._waits_in_vain(run) for run in runs),
        )


def _has_ended(run: AgentRun) -> bool:
    return run.status is not None and run.status.phase in TERMINAL_RUN_PHASES


class _Crew:
    """One pool's worker, started again when it dies."""

    def __init__(self, setup: LocalSetup, ledger: Ledger, namespace: str, pool: str) -> None:
        self._setup = setup
        self._ledger = ledger
        self._namespace = namespace
        self._pool = pool
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None
        self._draining = False

    def request_drain(self) -> None:
        """Let the worker end in order."""
        self._draining = True
        if self._worker is not None:
            self._worker.request_drain()

    def kill(self) -> None:
        """End the worker without any goodbye."""
        if self._running is not None:
            self._running.cancel()

    async def run(self) -> None:
        """Keep a worker at work until drained."""
        while not self._draining:
            self._worker = self._build()
            self._running = asyncio.create_task(self._worker.run())
            try:
                await asyncio.wait((self._running,))
            except asyncio.CancelledError:
                self._running.cancel()
                raise
            if not self._running.cancelled():
                self._running.result()
            elif not self._draining:
                await asyncio.sleep(_RESTART_PAUSE)

    def _build(self) -> Worker:
        setup = self._setup
        executors: Mapping[ToolType, Executor]
        if setup.executors is not None:
            executors = setup.executors(self.kill)
        else:
            executors = {
                ToolType.HTTP: HttpExecutor(EnvironmentSecrets()),
                ToolType.PYTHON: PythonExecutor(setup.import_paths),
            }
        name = f"local-{self._pool}"
        identity = WorkerIdentity(self._namespace, self._pool, name, setup.entropy.token(), setup.slots)
        return Worker(self._ledger, identity, executors, SchemaValidator(), setup.worker_settings, setup.entropy.token)
