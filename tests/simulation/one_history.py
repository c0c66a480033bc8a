"""Living one history: the real scheduler and workers in a world that goes wrong as planned, watched from outside.

``make simulate`` and the suite call :func:`live_seed`. What happens is planned in ``simulation.plans``, done by
``simulation.mishaps`` and ``simulation.people``, and judged by ``simulation.witness``.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import structlog

from agentrun.contract.defaults import SLOT_LEASE
from agentrun.contract.failures import Reason
from agentrun.contract.node import AgentNode
from agentrun.contract.run import RunPhase
from agentrun.contract.tool import ToolType
from agentrun.controller.leadership import Leadership, LeadershipLostError, LeaseTiming
from agentrun.engine.cluster_port import ClusterChange
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.services import EpochLostError
from agentrun.ledger.port import WorkerIdentity
from agentrun.local.virtual_time import run_on_virtual_time
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.executor import ToolCall
from agentrun_worker.worker import Worker, WorkerSettings
from simulation import invariants
from simulation.drifting_loop import Drift, DriftingLoop, TrueClock, context_of
from simulation.invariants import LeftBehind
from simulation.lines import Line, OwnClock, Surroundings, wire
from simulation.mishaps import suffer
from simulation.outside import Outside
from simulation.people import answer_questions, live_a_run
from simulation.plans import History, MishapKind, draw_history
from simulation.shelf import shelf
from simulation.watched_lease import WatchedLease
from simulation.watched_ledger import WatchedLedger
from simulation.witness import Findings, Witness
from support.lease_book import LeaseBook
from support.world import World

_LONGEST_HOURS = 3
_QUIET_SECONDS = 20
_LAST_SECONDS = 5
"""Before the end, in which nobody answers anything any more."""
_PATIENCE_SECONDS = 12
_COLLECTED_WITHIN_SECONDS = 2
_LEASE = LeaseTiming(timedelta(minutes=3), timedelta(minutes=2), timedelta(seconds=10))
"""How often the lead is renewed. Who has lost it may go on for longer than with the product's settings, without any."""
_WORKER = WorkerSettings(take_block=timedelta(seconds=5))
"""It polls seldom: what it polls for is told by events as well."""
_VALIDATOR = SchemaValidator()
_WATCHES = (MishapKind.EVENTS_LATE, MishapKind.EVENTS_AGAIN, MishapKind.WATCH_BREAKS, MishapKind.CLUSTER_AWAY)


class WorkerProcess:
    """A worker, its line outside and its clock; also the executor that makes its calls."""

    def __init__(self, world: SimulatedWorld, name: str, line: Line) -> None:
        self._world = world
        self.name = name
        self.line = line
        self.clock = Drift()
        self.task: asyncio.Task[None] | None = None
        self.worker: Worker | None = None

    async def execute(self, call: ToolCall) -> Any:
        """Make one call."""
        await self.line.awake.wait()
        outcome = await self._world.outside.execute(call, self)
        await self.line.awake.wait()
        return outcome

    def die(self) -> None:
        """End as a crash does; another process of its name is there a second later."""
        self._world.end_worker(self)


class SimulatedWorld(World):
    """A world whose processes reach the outside through lines, and in which every change is judged."""

    def __init__(self, loop: DriftingLoop, history: History, findings: Findings, *, keeps_trace: bool) -> None:
        self.history = history
        self.findings = findings
        self.house = history.house
        self.witness = Witness(findings, loop.true_time, history.house, keeps_trace=keeps_trace)
        self.leases = LeaseBook()
        self.lead = WatchedLease(self.witness.check)
        super().__init__(loop, "{}", "", history.seed % 100_000, slots=self.house.slots, clock=TrueClock(loop))
        for tool in shelf():
            self.cluster.apply(tool)
        self.ledger = WatchedLedger(
            self.clock.now_ms, self.witness.check, self._find_node, random.Random(f"{history.seed} echoes")
        )
        self.witness.ledger = self.ledger
        troubled = any(mishap.kind in _WATCHES for mishap in history.mishaps)
        self.around = Surroundings(history.seed, self.cluster, troubled)
        self.outside = Outside(history.seed, self.witness, self.say)
        self.lied_about, self.cancelled = self.witness.lied_about, self.witness.cancelled
        self.engine_clock = OwnClock(self.clock)
        self._engines: list[tuple[Line, asyncio.Task[None]]] = []
        self._schedulers: list[Scheduler] = []
        self.workers: dict[str, WorkerProcess] = {}
        self._ended_workers: list[asyncio.Task[None]] = []

    # --- processes

    def begin_scheduler(self) -> None:
        """Start a scheduler that takes the lead: whoever has it has not renewed it for long, or gives it back."""
        line = self._line(f"scheduler {len(self._engines) + 1}")
        self.ledger.forget_reader("scheduler")
        self.lead.run_out()
        line.process = asyncio.create_task(self._operate(line))
        self._engines.append((line, line.process))

    async def _operate(self, line: Line) -> None:
        """Lead, as an operator's process does: until it is stopped, or another has the lead."""
        server = wire(self.lead, line, "lead")
        leadership = Leadership(server, "default", "operator", line.name, self.clock, _LEASE)
        await leadership.acquire()
        scheduler = Scheduler(
            cluster=wire(self.cluster, line, "cluster"),
            ledger=wire(self.ledger, line, "ledger"),
            clock=self.engine_clock,
            entropy=self.entropy,
            validator=_VALIDATOR,
            settings=self.house.settings(),
            sessions=wire(self.leases, line, "leases"),
            seen_epoch=leadership.epoch,
            may_lead=leadership.confirm,
            record_lead=lambda epoch: self._record_lead(line, leadership, epoch),
        )
        self._schedulers.append(scheduler)
        parts = (asyncio.create_task(scheduler.run()), asyncio.create_task(leadership.hold()))
        try:
            ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            # The process is gone, and with it whatever it had begun.
            line.dead = True
        for part in ended:
            part.result()

    async def _record_lead(self, line: Line, leadership: Leadership, epoch: int) -> None:
        await leadership.record_epoch(epoch)
        self.witness.see_lead(line, epoch)
        self.say(line.name, f"leads under epoch {epoch}")

    @property
    def scheduler_line(self) -> Line:
        """The line of the scheduler that began last."""
        return self._engines[-1][0]

    def nobody_leads(self) -> bool:
        """Tell whether the last scheduler has ended: whoever keeps processes running starts another."""
        line, task = self._engines[-1]
        return line.dead or task.done()

    def begin_worker(self, name: str) -> WorkerProcess:
        """Start a worker for the pool ``shared``."""
        process = WorkerProcess(self, name, self._line(name))
        identity = WorkerIdentity("default", "shared", name, self.entropy.token(), self.house.slots)
        process.worker = Worker(
            wire(self.ledger, process.line, "ledger"),
            identity,
            dict.fromkeys(ToolType, process),
            _VALIDATOR,
            _WORKER,
            self.entropy.token,
        )
        process.line.process = process.task = asyncio.get_running_loop().create_task(
            process.worker.run(), context=context_of(process.clock)
        )
        self.workers[name] = process
        return process

    def end_worker(self, process: WorkerProcess, pause: float = 1.0) -> None:
        """End a worker as a crash does; another process of its name is there after the pause."""
        if process.line.dead:
            return
        process.line.die()
        self.say(process.name, "is dead")
        assert process.task is not None
        self._ended_workers.append(process.task)
        asyncio.get_running_loop().call_later(pause, self.begin_worker, process.name)

    def _line(self, name: str) -> Line:
        return Line(name, self.around, self.witness.see_step, self.say)

    async def stop(self) -> None:
        """End everything."""
        tasks = [task for _, task in self._engines] + self._ended_workers
        for line, _ in self._engines:
            line.dead = True
        for process in self.workers.values():
            process.line.dead = True
            if process.task is not None:
                tasks.append(process.task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what is seen

    def _find_node(self, run_uid: str, node_uid: str) -> AgentNode | None:
        nodes = self.cluster.nodes_of("default", run_uid)
        return next((node for node in nodes if node.metadata.uid == node_uid), None)

    def say(self, who: str, what: str) -> None:
        """Keep a line of the trace."""
        self.witness.say(who, what)

    def count(self, group: str, what: str) -> None:
        """Count what occurred."""
        self.witness.count(group, what)

    def note_change(self, change: ClusterChange) -> None:
        """Have a change judged."""
        acting = self.around.acting if hasattr(self, "around") else None
        self.witness.note_change(change, acting.epoch if acting is not None else 0)

    async def collect_garbage(self) -> None:
        """Delete the Leases of runs that are gone, also one that was created after its run, as a cluster does."""
        while True:
            await asyncio.sleep(_COLLECTED_WITHIN_SECONDS)
            there = {run.metadata.uid for run in self.cluster.runs()}
            for session in [one for one, holder in self.leases.holders.items() if holder.uid not in there]:
                del self.leases.holders[session]

    @property
    def broken(self) -> invariants.BrokenPromiseError | None:
        """The first promise that fell."""
        return self.witness.broken

    async def keep_leading(self) -> None:
        """Start another scheduler whenever the last one has ended by itself, as whoever keeps processes running does.

        How long it takes after one was killed is planned: that mishap starts the next one.
        """
        while True:
            await asyncio.sleep(1)
            _, task = self._engines[-1]
            if task.done() and not task.cancelled():
                self.begin_scheduler()

    async def judge_waiting(self) -> None:
        """Judge again and again that what waits says why, while a scheduler could have said so."""
        calm_since = 0.0
        while True:
            await asyncio.sleep(3)
            now = asyncio.get_running_loop().time()
            line = self.scheduler_line
            if self.around.now or self.nobody_leads() or not line.awake.is_set() or self.engine_clock.ahead:
                calm_since = now
            if now - calm_since >= _PATIENCE_SECONDS:
                for run in self.cluster.runs():
                    nodes = self.cluster.nodes_of("default", run.metadata.uid)
                    self.witness.judge_waiting(nodes, self.clock.now())

    async def judge_the_end(self) -> None:
        """Judge what must hold after every run has ended."""
        check = self.witness.check
        runs = self.cluster.runs()
        check(invariants.every_run_ends, runs)
        for line, task in self._engines:
            error = task.exception() if task.done() and not task.cancelled() else None
            if error is not None and not isinstance(error, EpochLostError | LeadershipLostError):
                check(invariants.no_process_ends_by_itself, line.name, error)
        for process in self.workers.values():
            working = process.task
            if working is not None and working.done() and not working.cancelled() and working.exception() is not None:
                check(invariants.no_process_ends_by_itself, process.name, working.exception())
        if self.broken:
            return
        await asyncio.sleep(SLOT_LEASE.total_seconds() + 40)
        check(invariants.nothing_is_left_behind, self._left_behind())
        check(invariants.no_turn_failed_for_a_bug, sum(one.failed_turns_total for one in self._schedulers))
        names = {run.metadata.name for run in runs}
        for run in runs:
            nodes = self.cluster.nodes_of("default", run.metadata.uid)
            by_path = {node.spec.path: node for node in nodes}
            origin_deleted = run.spec.retry_of is not None and run.spec.retry_of not in names
            check(invariants.a_run_is_rejected_for_a_busy_session_only, run, origin_deleted=origin_deleted)
            if origin_deleted and run.status is not None and run.status.reason == Reason.INVALID_REFERENCE:
                self.count("excused", "somebody deleted the run that it was to continue")
            was_cancelled = run.metadata.uid in self.cancelled
            check(invariants.a_run_ends_as_its_nodes_ended, run, nodes, cancelled=was_cancelled)
            check(invariants.every_node_of_an_ended_run_has_ended, nodes)
            check(invariants.money_adds_up, run, await self.ledger.find_counters("default", run.metadata.uid))
            for node in nodes:
                key = node.status.call.key if node.status and node.status.call else ""
                by_a_person = bool(node.status and node.status.decided)
                told = self.outside.tokens_told.get(key, set())
                check(invariants.no_result_came_from_a_failed_attempt, node, told, by_a_person=by_a_person)
                check(invariants.what_a_dependant_saw_is_what_stands, node, by_path)
                check(invariants.control_nodes_cost_no_call, node)

    def _left_behind(self) -> LeftBehind:
        space = self.ledger.space("default")
        now = space.now()
        ended = {run.metadata.uid for run in self.cluster.runs()}
        streams = [stream for pool in space.streams.values() for stream in pool.values()]
        return LeftBehind(
            claims=len(space.claims),
            slots=sum(until > now for until in space.slot_holders("global").values()),
            orders=sum(len(stream.entries) for stream in streams),
            # What a former leader had read at its end is read again by the next one.
            reports=len(space.reports.entries if len(self._engines) == 1 else space.reports.unread),
            waiters=sum(len(line) for line in space.waiters.values()),
            # The Lease of a run that has ended is free: whoever wants the session takes it over.
            sessions=tuple(name for name, holder in self.leases.holders.items() if holder.uid not in ended),
        )


async def _live(world: SimulatedWorld, history: History) -> None:
    for number in range(history.house.workers):
        world.begin_worker(f"worker {number + 1}")
    world.begin_scheduler()
    world.say("plan", str(history.house))
    for run in history.runs:
        world.say("plan", f"{run.name} at {run.at:g} s: {run.spec}; {run.deed} after {run.deed_after:g} s")
    applying = [asyncio.create_task(live_a_run(world, run)) for run in history.runs]
    suffering = [asyncio.create_task(suffer(world, mishap)) for mishap in history.mishaps]
    others: list[Coroutine[Any, Any, None]] = [
        answer_questions(world, history.seed),
        world.judge_waiting(),
        world.keep_leading(),
        world.collect_garbage(),
    ]
    tasks = [asyncio.create_task(other) for other in others]
    people = tasks[0]
    try:
        async with asyncio.timeout(_LONGEST_HOURS * 3600):
            await asyncio.gather(*applying)
            await asyncio.gather(*suffering)
            quiet = 0
            # A re-drive of what has ended makes a new run a moment later: it has to stay quiet for a while.
            while (quiet < _QUIET_SECONDS or not people.done()) and world.broken is None:
                await asyncio.sleep(1)
                quiet = quiet + 1 if world.runs_have_ended() else 0
                if quiet == _QUIET_SECONDS - _LAST_SECONDS:
                    people.cancel()
                if world.nobody_leads():
                    world.begin_scheduler()
    except TimeoutError:
        pass
    finally:
        for task in (*applying, *suffering, *tasks):
            task.cancel()
        for end in await asyncio.gather(*applying, *suffering, *tasks, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
    await world.judge_the_end()


def live_history(history: History, *, keeps_trace: bool = False) -> Findings:
    """Live a history to its end and return what was found; a broken promise is a finding, not an error."""
    loop = DriftingLoop()
    findings = Findings(history.seed)

    async def live() -> None:
        world = SimulatedWorld(loop, history, findings, keeps_trace=keeps_trace)
        try:
            await _live(world, history)
        finally:
            findings.virtual_seconds = loop.true_time()
            findings.mishaps.update(world.around.struck)
            findings.occurred.update({("answers", what): count for what, count in world.outside.answers.items()})
            for run in world.cluster.runs():
                phase = run.status.phase if run.status else RunPhase.PENDING
                findings.phases[str(phase)] += 1
                world.say("end", f"{run.metadata.name} {phase}")
            await world.stop()
        if world.broken is not None:
            findings.promise, findings.said = world.broken.promise, str(world.broken)

    try:
        run_on_virtual_time(live(), loop)
    except Exception as error:  # noqa: BLE001 - whatever falls is a finding about this seed, and the next seed is lived
        findings.promise, findings.said = type(error).__name__, f"{type(error).__name__}: {error}"
    return findings


def live_seed(seed: int) -> Findings:
    """Live the history of a seed."""
    return live_history(draw_history(seed))


def silence() -> None:
    """Let no log line of the system through: thousands of histories fail in it on purpose."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
