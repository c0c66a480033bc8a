"""A whole system on virtual time that a test can take apart: cluster, ledger, scheduler and worker, each mortal."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

from agentrun.contract.approval import AgentApproval, Decision
from agentrun.contract.node import AgentNode, AgentNodeStatus
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRunStatus
from agentrun.contract.tool import ToolType
from agentrun.engine.cluster_port import Cluster, ClusterChange, ClusterUnavailableError, GoneError
from agentrun.engine.decision_verifier import DecisionVerifier
from agentrun.engine.observer import Observer
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.session_port import SessionLeases
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.memory_ledger import MemoryLedger
from agentrun.ledger.port import LedgerUnavailableError, SchedulerLedger, WorkerIdentity
from agentrun.local.chance import SeededEntropy, uid_from
from agentrun.local.memory_cluster import MemoryCluster
from agentrun.local.script_executor import CallCounts, ScriptExecutor
from agentrun.local.script_file import Script, with_call_lists
from agentrun.local.virtual_time import VirtualClock, VirtualTimeLoop, run_on_virtual_time
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.worker import Worker, WorkerSettings
from support.manifest_texts import build_run, build_tools, read_yaml

_Result = TypeVar("_Result")
_Target = TypeVar("_Target")


@dataclass(slots=True)
class Mortality:
    """Counts a scheduler's steps outside and ends it at one of them, before or after the step."""

    dies_at: int | None = None
    after: bool = True
    steps: int = 0
    dead: bool = False
    weather: random.Random | None = None
    """Decides which steps fail for a cause that passes by itself; None: none does."""
    bad: float = 0.03
    """How many of the steps fail in bad weather; half of those were carried out all the same."""

    async def step(self, work: Callable[[], Awaitable[Any]], failure: Exception) -> Any:
        """Do one step, unless death comes first; the dead do nothing more."""
        self._refuse_if_dead()
        self.steps += 1
        if self.weather is not None and self.weather.random() < self.bad:
            if self.weather.random() < 0.5:
                await work()
            raise failure
        if self.dies_at == self.steps:
            if self.after:
                await work()
            self.dead = True
        self._refuse_if_dead()
        answer = await work()
        self._refuse_if_dead()
        return answer

    def _refuse_if_dead(self) -> None:
        if self.dead:
            # What a killed process does: nothing, silently.
            raise asyncio.CancelledError


def mortal(target: _Target, mortality: Mortality, failure: Exception) -> _Target:
    """Return the target as a mortal scheduler reaches it; ``failure``: how it says that it cannot be reached."""
    return cast(_Target, _Mortal(target, mortality, failure))


class _Mortal:
    def __init__(self, target: Any, mortality: Mortality, failure: Exception) -> None:
        self._target = target
        self._mortality = mortality
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def step(*arguments: Any, **named: Any) -> Any:
            return await self._mortality.step(lambda: found(*arguments, **named), self._failure)

        return step


class World:
    """Everything in one loop; parts are started, killed and started again by the test."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        tools: str,
        script: str,
        seed: int = 1,
        slots: int = 8,
        clock: VirtualClock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock(loop)
        self.entropy = SeededEntropy(seed)
        self.cluster = MemoryCluster(self.clock.now, lambda: uid_from(self.entropy.token()), self.note_change)
        self.ledger = MemoryLedger(self.clock.now_ms)
        self.counts = CallCounts()
        self.script = Script.model_validate(with_call_lists(read_yaml(script)))
        self.mortality = Mortality()
        self.sessions: SessionLeases | None = None
        self.verifier: DecisionVerifier | None = None
        self.observer: Observer | None = None
        self.scheduler: Scheduler | None = None
        self.worker: Worker | None = None
        self._slots = slots
        self._engine: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        for tool in build_tools(tools):
            self.cluster.apply(tool)

    def note_change(self, change: ClusterChange) -> None:
        """Be told of each change in the cluster before anybody else."""

    # --- life and death

    def start_scheduler(self, mortality: Mortality | None = None, settings: SchedulerSettings | None = None) -> None:
        """Start a scheduler over what is there."""
        self.mortality = mortality or Mortality()
        self.ledger.forget_reader("scheduler")
        self.scheduler = Scheduler(
            cluster=mortal(cast(Cluster, self.cluster), self.mortality, ClusterUnavailableError("bad weather")),
            ledger=mortal(cast(SchedulerLedger, self.ledger), self.mortality, LedgerUnavailableError("bad weather")),
            clock=self.clock,
            entropy=self.entropy,
            validator=SchemaValidator(),
            settings=settings or SchedulerSettings(),
            sessions=self.sessions,
            verifier=self.verifier,
            observer=self.observer,
        )
        self._engine = asyncio.create_task(self.scheduler.run())

    async def stop_scheduler(self, within: float = 60) -> float:
        """Ask the scheduler to end in order, and return how many seconds that took; raises what it ended with."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self.scheduler is None:
            return 0.0
        self.scheduler.stop()
        await self.engine_ends(within)
        return loop.time() - began

    async def engine_ends(self, within: float) -> None:
        """Wait until the scheduler has ended, at most ``within`` seconds; raises what it ended with."""
        if self._engine is not None:
            async with asyncio.timeout(within):
                await self._engine

    async def kill_scheduler(self) -> None:
        """End the scheduler at once, wherever it is."""
        self.mortality.dead = True
        await self._reap(self._engine)

    async def wait_for_death(self) -> bool:
        """Wait until the scheduler has died by itself; False when it outlived every run."""
        while not self.mortality.dead:
            if self.runs_have_ended():
                return False
            await asyncio.sleep(0.5)
        await self._reap(self._engine)
        return True

    def start_worker(self, name: str = "w", pool: str = "shared") -> None:
        """Start a worker for a pool."""
        identity = WorkerIdentity("default", pool, name, self.entropy.token(), self._slots)
        executor = ScriptExecutor(self.script.tools, self.counts, lambda: self.crash_worker(name))
        self.worker = Worker(
            self.ledger,
            identity,
            dict.fromkeys(ToolType, executor),
            SchemaValidator(),
            WorkerSettings(take_block=timedelta(seconds=30)),
            self.entropy.token,
        )
        self._working = asyncio.create_task(self.worker.run())

    def kill_worker(self) -> None:
        """End the worker without any goodbye."""
        if self._working is not None:
            self._working.cancel()

    def crash_worker(self, name: str) -> None:
        """End the worker as a crash would; another process of that name is there after a moment."""
        self.kill_worker()
        asyncio.get_running_loop().call_later(1.0, lambda: self.start_worker(name))

    async def stop(self) -> None:
        """End everything."""
        if self.worker is not None:
            self.worker.request_drain()
        if self.scheduler is not None:
            self.scheduler.stop()
        await self._reap(self._working)
        await self._reap(self._engine)

    @staticmethod
    async def _reap(task: asyncio.Task[None] | None) -> None:
        if task is not None and not task.done():
            await asyncio.wait((task,), timeout=60)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- what people do and see

    def apply_run(self, text: str, name: str = "run") -> None:
        """Submit a run."""
        self.cluster.apply(build_run(text, name))

    def decide(self, node: str, decision: Decision, run: str = "run") -> None:
        """Answer the open question about a node."""
        found = self.open_question(node, run)
        self.cluster.patch_decision("default", found.metadata.name, decision)

    def open_question(self, node: str, run: str = "run") -> AgentApproval:
        """Return the open question about a node."""
        uid = self.cluster.get_run("default", run).metadata.uid
        return next(
            approval
            for approval in self.cluster.approvals_of("default", uid)
            if approval.status
            and approval.status.request
            and approval.status.request.node == node
            and approval.status.state == "Open"
        )

    def status(self, name: str = "run") -> AgentRunStatus:
        """Return a run's status."""
        return self.cluster.get_run("default", name).status or AgentRunStatus()

    def nodes(self, name: str = "run") -> dict[str, AgentNodeStatus]:
        """Return the nodes' statuses by path."""
        uid = self.cluster.get_run("default", name).metadata.uid
        return {node.spec.path: _status(node) for node in self.cluster.nodes_of("default", uid)}

    def runs_have_ended(self) -> bool:
        """Tell whether every run has ended."""
        return all(run.status is not None and run.status.phase in TERMINAL_RUN_PHASES for run in self.cluster.runs())

    async def ended(self, name: str = "run", within: float = 24 * 3600) -> AgentRunStatus:
        """Wait until a run has ended."""
        await self.until(lambda: self.status(name).phase in TERMINAL_RUN_PHASES, within)
        return self.status(name)

    async def until(self, holds: Callable[[], bool], within: float = 24 * 3600) -> None:
        """Wait until something holds, in steps of virtual time."""
        async with asyncio.timeout(within):
            while True:
                try:
                    if holds():
                        return
                except (GoneError, StopIteration, KeyError):
                    pass
                await asyncio.sleep(0.05)


def in_world(
    test: Callable[[World], Coroutine[Any, Any, _Result]],
    tools: str,
    script: str = "",
    *,
    seed: int = 1,
    slots: int = 8,
) -> _Result:
    """Run a test in a fresh world on virtual time."""
    loop = VirtualTimeLoop()

    async def live() -> _Result:
        world = World(loop, tools, script, seed, slots)
        try:
            return await test(world)
        finally:
            await world.stop()

    return run_on_virtual_time(live(), loop)


def _status(node: AgentNode) -> AgentNodeStatus:
    return node.status or AgentNodeStatus(entered_at=node.metadata.creation_timestamp)  # type: ignore[arg-type]
