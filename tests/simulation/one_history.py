"""Living one history: the real scheduler and worker in a world that goes wrong as planned, watched from outside."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import structlog

from agentrun.contract.approval import AgentApproval, Decision, Verdict
from agentrun.contract.defaults import SLOT_LEASE
from agentrun.contract.failures import Effect
from agentrun.contract.node import AgentNode
from agentrun.contract.orders import OrderKind
from agentrun.contract.run import AgentRun, AgentRunSpec, RunPhase
from agentrun.contract.tool import ToolType
from agentrun.engine.cluster_port import ChangeKind, Cluster, ClusterChange, ConflictError, GoneError
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.memory_state import NodeState, RunState
from agentrun.ledger.port import SchedulerLedger, WorkerIdentity, WorkerLedger
from agentrun.local.virtual_time import VirtualTimeLoop, run_on_virtual_time
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.executor import ToolCall
from agentrun_worker.worker import Worker, WorkerSettings
from simulation import invariants
from simulation.invariants import BookedEffect
from simulation.lines import CLUSTER_FAILURE, LEDGER_FAILURE, Line, Surroundings
from simulation.outside import Outside
from simulation.plans import CONCURRENCY, TOOLS, History, Mishap, MishapKind, PlannedRun, draw_history
from simulation.watched_ledger import WatchedLedger
from support.lease_book import LeaseBook
from support.world import World, mortal

_LONGEST_HOURS = 12
_QUIET_SECONDS = 20
_VALIDATOR = SchemaValidator()
_SETTINGS = SchedulerSettings(
    ledger_look=timedelta(seconds=5), pool_poll=timedelta(seconds=5), report_block=timedelta(seconds=2)
)


@dataclass(slots=True)
class Findings:
    """What one history came to."""

    seed: int
    promise: str = ""
    """Which invariant fell; empty: none."""
    said: str = ""
    virtual_seconds: float = 0.0
    phases: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    mishaps: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    trace: list[str] = field(default_factory=list)


class SimulatedWorld(World):
    """A world whose processes reach the outside through lines, and in which every change is judged."""

    def __init__(self, loop: VirtualTimeLoop, history: History, findings: Findings, *, keeps_trace: bool) -> None:
        self._findings = findings
        self._keeps_trace = keeps_trace
        self._time = loop.time
        self._last_seen: dict[tuple[str, str], AgentRun | AgentNode] = {}
        self._in_flight: dict[str, dict[str, str]] = {}
        self.emptied = False
        self.broken: invariants.BrokenPromiseError | None = None
        super().__init__(loop, TOOLS, "", history.seed % 100_000, slots=4)
        self.ledger = WatchedLedger(
            self.clock.now_ms, self._check, self._find_node, random.Random(f"{history.seed} echoes")
        )
        self.around = Surroundings(random.Random(history.seed ^ 0x5EED))
        self.outside = Outside(history.seed, self._book, self.say)
        self.sessions = self.leases = LeaseBook()
        self.line = Line(around=self.around)
        self.worker_line = Line(around=self.around)
        self._engines: list[asyncio.Task[None]] = []
        self.workers: list[asyncio.Task[None]] = []

    # --- processes

    def begin_scheduler(self, mishap: Mishap | None = None) -> None:
        """Start a scheduler that takes the lead; with a mishap it dies at that step."""
        line = Line(mishap.step if mishap else None, mishap.after if mishap else True, around=self.around)
        self.line = self.mortality = line
        self.ledger.forget_reader("scheduler")
        self.scheduler = Scheduler(
            cluster=mortal(cast(Cluster, self.cluster), line, CLUSTER_FAILURE),
            ledger=mortal(cast(SchedulerLedger, self.ledger), line, LEDGER_FAILURE),
            clock=self.clock,
            entropy=self.entropy,
            validator=_VALIDATOR,
            settings=_SETTINGS,
            sessions=mortal(self.leases, line, CLUSTER_FAILURE),
            on_lead=lambda epoch: self.say("scheduler", f"leads under epoch {epoch}"),
        )
        self._engines.append(asyncio.create_task(self.scheduler.run()))

    def start_worker(self, name: str = "w") -> None:
        """Start a worker for the pool ``shared``."""
        line = self.worker_line = Line(around=self.around)
        identity = WorkerIdentity("default", "shared", name, self.entropy.token(), 4)
        executor = _AtWork(self, line, name)
        self.worker = Worker(
            mortal(cast(WorkerLedger, self.ledger), line, LEDGER_FAILURE),
            identity,
            dict.fromkeys(ToolType, executor),
            _VALIDATOR,
            WorkerSettings(take_block=timedelta(seconds=30)),
            self.entropy.token,
        )
        executor.process = asyncio.create_task(self.worker.run())
        self.workers.append(executor.process)

    def end_worker(self, line: Line, process: asyncio.Task[None] | None, name: str, pause: float = 1.0) -> None:
        """End a worker as a crash does; another process of its name is there after the pause."""
        if line.dead:
            return
        line.dead = True
        self.say("worker", f"{name} is dead")
        if process is not None:
            process.cancel()
        asyncio.get_running_loop().call_later(pause, lambda: self.start_worker(name))

    async def stop(self) -> None:
        """End everything."""
        self.line.dead = self.worker_line.dead = True
        for task in (*self._engines, *self.workers):
            task.cancel()
        await asyncio.gather(*self._engines, *self.workers, return_exceptions=True)

    # --- what is seen

    def say(self, who: str, what: str) -> None:
        """Keep a line of the trace."""
        if self._keeps_trace:
            self._findings.trace.append(f"{self._time():10.3f}  {who:10} {what}")

    def note_change(self, change: ClusterChange) -> None:
        """Judge a change of an object."""
        seen = change.object
        if not isinstance(seen, AgentRun | AgentNode):
            return
        key = (seen.kind, seen.metadata.name)
        before = self._last_seen.get(key)
        if change.kind is ChangeKind.GONE:
            self._last_seen.pop(key, None)
            return
        self._last_seen[key] = seen
        self._tell_of(before, seen)
        if isinstance(seen, AgentNode):
            self._check(invariants.no_transition_is_illegal, seen)
        if before is not None:
            self._check(invariants.what_has_ended_stays_as_it_ended, before, seen)

    def _tell_of(self, before: AgentRun | AgentNode | None, seen: AgentRun | AgentNode) -> None:
        status = seen.status
        if status is None:
            self.say("cluster", f"{seen.kind} {seen.metadata.name} created")
            return
        old = before.status if before is not None else None
        if isinstance(seen, AgentNode) and status.phase in ("Succeeded", "Dead", "Skipped", "Cancelled"):
            for step in seen.status.timeline if seen.status else ():
                self._findings.transitions[f"{step.from_phase} -> {step.to_phase}"] += 1
        if old is None or old.phase is not status.phase:
            reason = getattr(status, "reason", "")
            self.say("cluster", f"{seen.metadata.name} is {status.phase} ({reason}) {status.message}".rstrip())

    def _find_owner(self, call: ToolCall) -> tuple[NodeState | None, RunState | None]:
        """Return whose call it is, as the ledger has it."""
        space = self.ledger.space("default")
        owner = next((node for node in space.nodes.values() if node.request == call.request_id), None)
        return owner, space.runs.get(owner.run_uid) if owner is not None else None

    def _find_node(self, run_uid: str, node_uid: str) -> AgentNode | None:
        nodes = self.cluster.nodes_of("default", run_uid)
        return next((node for node in nodes if node.metadata.uid == node_uid), None)

    def _book(self, call: ToolCall) -> BookedEffect:
        owner, run = self._find_owner(call)
        effect = BookedEffect(
            at=self._time(),
            tool=call.tool_name,
            side_effect=call.tool.side_effect,
            key=call.idempotency_key,
            request=call.request_id,
            session=run.session if run is not None else "",
            run_uid=owner.run_uid if owner is not None else "",
        )
        self.say("outside", f"EFFECT of {effect.tool} by {effect.request}")
        self._findings.effects += 1
        earlier = self.outside.effects[effect.key]
        self._check(invariants.no_once_effect_happens_twice, effect, earlier)
        claimed = self.emptied or (owner is not None and owner.state == "claimed" and owner.kind is OrderKind.EXECUTE)
        self._check(invariants.every_effect_is_of_a_claimed_attempt, effect, claimed)
        if effect.session:
            in_flight = self._in_flight.get(effect.session, {})
            self._check(invariants.a_session_has_effects_of_one_run_at_a_time, effect, in_flight)
        return effect

    def in_flight(self, call: ToolCall, *, begins: bool) -> None:
        """Count a call among those that are under way in its session."""
        _, run = self._find_owner(call)
        if begins and run is not None and run.session:
            self._in_flight.setdefault(run.session, {})[call.request_id] = run.uid
        if not begins:
            for calls in self._in_flight.values():
                calls.pop(call.request_id, None)

    def _check(self, promise: Callable[..., None], *seen: object) -> None:
        try:
            promise(*seen)
        except invariants.BrokenPromiseError as error:
            self.say("INVARIANT", str(error))
            self.broken = self.broken or error

    async def judge_instants(self) -> None:
        """Judge money and slots again and again."""
        while True:
            await asyncio.sleep(0.5)
            await self._judge_now()

    async def _judge_now(self) -> None:
        if self.emptied:
            # What a lost ledger counts anew is put back a little later; the end judges it.
            return
        for limit, most in CONCURRENCY.items():
            in_use = await self.ledger.find_slots_in_use("default", limit)
            self._check(invariants.slots_are_never_exceeded, limit, in_use, most)
        for run in self.cluster.runs():
            counters = await self.ledger.find_counters("default", run.metadata.uid)
            self._check(invariants.money_is_never_over_the_limit, run, counters)

    async def judge_the_end(self) -> None:
        """Judge what must hold after every run has ended."""
        runs = self.cluster.runs()
        self._check(invariants.every_run_ends, runs)
        if self.broken:
            return
        await asyncio.sleep(SLOT_LEASE.total_seconds() + 40)
        space = self.ledger.space("default")
        slots = await self.ledger.find_slots_in_use("default", "global")
        held = list(self.leases.holders)
        self._check(invariants.nothing_is_left_behind, len(space.claims), slots, held)
        assert self.scheduler is not None
        failed = self.scheduler.failed_turns_total
        self._check(invariants.no_turn_failed_for_a_bug, failed)
        for run in runs:
            nodes = self.cluster.nodes_of("default", run.metadata.uid)
            self._check(invariants.every_node_of_an_ended_run_has_ended, nodes)
            counters = await self.ledger.find_counters("default", run.metadata.uid)
            self._check(invariants.money_adds_up, run, counters)
            for node in nodes:
                made = self.outside.effects[node.status.call.key] if node.status and node.status.call else []
                told = bool(node.status and (node.status.replay_of or node.status.decided))
                self._check(invariants.no_result_came_from_a_failed_attempt, node, made, told)


class _AtWork:
    """The executor of one worker process: its calls stop where the process stops."""

    def __init__(self, world: SimulatedWorld, line: Line, name: str) -> None:
        self._world = world
        self._line = line
        self._name = name
        self.process: asyncio.Task[None] | None = None

    async def execute(self, call: ToolCall) -> Any:
        """Make one call."""
        await self._line.awake.wait()
        if call.tool_name == "look" and call.tool.side_effect.value == "None":
            return await self._world.outside.execute(call, self._die)
        self._world.in_flight(call, begins=True)
        try:
            outcome = await self._world.outside.execute(call, self._die)
        finally:
            self._world.in_flight(call, begins=False)
        await self._line.awake.wait()
        return outcome

    def _die(self) -> None:
        self._world.end_worker(self._line, self.process, self._name)


# --- mishaps and people


async def _suffer(world: SimulatedWorld, mishap: Mishap) -> None:
    await asyncio.sleep(mishap.at)
    around, loop = world.around, asyncio.get_running_loop()
    world.say("MISHAP", f"{mishap.kind}, for {mishap.lasts:g} s")
    match mishap.kind:
        case MishapKind.SCHEDULER_DIES:
            if mishap.step:
                world.line.dies_at, world.line.after = world.line.steps + mishap.step, mishap.after
                while not world.line.dead and not world.runs_have_ended():
                    await asyncio.sleep(0.5)
                if not world.line.dead:
                    world.line.dies_at = None
                    return
            world.line.dead = True
            world.say("MISHAP", f"the scheduler died at its step {world.line.steps}")
            await asyncio.sleep(mishap.lasts)
            world.begin_scheduler()
        case MishapKind.SCHEDULER_SLEEPS:
            sleeping = world.line
            sleeping.awake.clear()
            await asyncio.sleep(min(mishap.lasts, 8.0))
            if not sleeping.dead:
                world.begin_scheduler()
            loop.call_later(mishap.lasts, sleeping.awake.set)
        case MishapKind.WORKER_DIES:
            world.end_worker(world.worker_line, world.workers[-1], "w", min(mishap.lasts, 8.0))
        case MishapKind.WORKER_SLEEPS:
            sleeping = world.worker_line
            sleeping.awake.clear()
            loop.call_later(mishap.lasts, sleeping.awake.set)
            if mishap.lasts > 8:
                world.start_worker("v")
        case MishapKind.LEDGER_EMPTIED:
            world.emptied = True
            world.ledger.lose_everything()
        case MishapKind.LEDGER_RESTARTED:
            # It says so by a closed gate: what stands in it is put beside what the resources prove.
            await world.ledger.close_gate()
        case MishapKind.LEDGER_AWAY:
            await _for_a_while(mishap, around, "ledger_away")
        case MishapKind.CLUSTER_AWAY:
            await _for_a_while(mishap, around, "cluster_away")
        case MishapKind.BAD_WEATHER:
            await _for_a_while(mishap, around, "bad_weather")
        case MishapKind.SLOW_ANSWERS:
            await _for_a_while(mishap, around, "slow")
        case MishapKind.EVENTS_AGAIN:
            for run in world.cluster.runs():
                world.cluster.touch_run("default", run.metadata.name)


async def _for_a_while(mishap: Mishap, around: Surroundings, field: str) -> None:
    setattr(around, field, True)
    await asyncio.sleep(mishap.lasts)
    setattr(around, field, False)


async def _answer_people(world: SimulatedWorld, seed: int) -> None:
    """Answer what is open: truthfully about what happened, at will otherwise, some of it late."""
    chance = random.Random(seed ^ 0xA11CE)
    while True:
        await asyncio.sleep(chance.choice((1, 5, 30)))
        for run in world.cluster.runs():
            for approval in world.cluster.approvals_of("default", run.metadata.uid):
                decision = _decide(world, approval, chance)
                if decision is None:
                    continue
                try:
                    world.cluster.patch_decision("default", approval.metadata.name, decision)
                    world.say(
                        "person", f"{approval.metadata.name}: {decision.verdict} {decision.effect or ''}".rstrip()
                    )
                except (ConflictError, GoneError):
                    continue


def _decide(world: SimulatedWorld, approval: AgentApproval, chance: random.Random) -> Decision | None:
    status = approval.status
    if status is None or status.request is None or status.state != "Open" or approval.spec.decision:
        return None
    verdict = chance.choice(status.request.allowed)
    fields: dict[str, object] = {"verdict": verdict, "decided_by": "Ada"}
    if status.request.unknown_outcome and chance.random() < 0.9:
        node = next(
            (
                one
                for one in world.cluster.nodes_of("default", _run_of(approval))
                if one.spec.path == status.request.node and one.status is not None and one.status.call is not None
            ),
            None,
        )
        key = node.status.call.key if node is not None and node.status and node.status.call else ""
        fields["effect"] = Effect.EXECUTED if world.outside.has_happened(key) else Effect.NOT_EXECUTED
    if verdict is Verdict.RESOLVE:
        fields["result"] = {"key": "by a person"}
    return Decision.model_validate(fields)


def _run_of(approval: AgentApproval) -> str:
    return next((owner.uid for owner in approval.metadata.owner_references), "")


async def _apply(world: SimulatedWorld, run: PlannedRun) -> None:
    def change(field: str, value: bool) -> None:
        def changed(spec: AgentRunSpec) -> AgentRunSpec:
            return spec.model_copy(update={field: value})

        world.cluster.patch_run_spec("default", run.name, changed)
        world.say("person", f"{run.name}: {field}={value}")

    await asyncio.sleep(run.at)
    world.apply_run(run.text, run.name)
    if run.suspended_at is not None:
        await asyncio.sleep(run.suspended_at)
        change("suspend", True)
        await asyncio.sleep(45)
        change("suspend", False)
    if run.cancelled_at is not None:
        await asyncio.sleep(run.cancelled_at)
        change("cancel", True)


async def _live(world: SimulatedWorld, history: History) -> None:
    world.start_worker()
    world.begin_scheduler()
    for run in history.runs:
        world.say("plan", f"{run.name} at {run.at:g} s:\n{run.text}")
    applying = [asyncio.create_task(_apply(world, run)) for run in history.runs]
    others: list[Coroutine[Any, Any, None]] = [_suffer(world, mishap) for mishap in history.mishaps]
    others += [_answer_people(world, history.seed), world.judge_instants()]
    tasks = [asyncio.create_task(other) for other in others]
    try:
        async with asyncio.timeout(_LONGEST_HOURS * 3600):
            await asyncio.gather(*applying)
            await asyncio.gather(*tasks[: len(history.mishaps)])
            quiet = 0
            # A re-drive of what has ended makes a new run a moment later: it has to stay quiet for a while.
            while quiet < _QUIET_SECONDS and world.broken is None:
                await asyncio.sleep(1)
                quiet = quiet + 1 if world.runs_have_ended() else 0
    except TimeoutError:
        pass
    finally:
        for task in (*applying, *tasks):
            task.cancel()
        for end in await asyncio.gather(*applying, *tasks, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
    await world.judge_the_end()


def live_history(history: History, *, keeps_trace: bool = False) -> Findings:
    """Live a history to its end and return what was found; a broken promise is a finding, not an error."""
    loop = VirtualTimeLoop()
    findings = Findings(history.seed)
    findings.mishaps.update(str(mishap.kind) for mishap in history.mishaps)

    async def live() -> None:
        world = SimulatedWorld(loop, history, findings, keeps_trace=keeps_trace)
        try:
            await _live(world, history)
        finally:
            findings.virtual_seconds = loop.time()
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
