"""The line between a process and what lies outside of it: where it dies, sleeps, is cut off, or hears nothing back.

A scheduler's and a worker's calls of the ledger and the cluster go through wires, all of one process along one line.
What holds for every process at a moment stands in the surroundings, which the mishaps change.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from agentrun.contract.orders import Report
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterChange, ClusterObject, ClusterUnavailableError, QuotaExceededError
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.local.memory_cluster import MemoryCluster
from simulation.plans import MishapKind

_Target = TypeVar("_Target")
_Tell = asyncio.Queue[ClusterChange | None]


@dataclass(slots=True)
class Step:
    """One call of a process outside."""

    line: Line
    target: str
    """``ledger``, ``cluster`` or ``leases``."""
    method: str
    arguments: Sequence[Any]

    @property
    def to_ledger(self) -> bool:
        """Whether the ledger is called."""
        return self.target == "ledger"


class Surroundings:
    """What holds for all processes at this moment; each mishap draws from a stream of its own."""

    def __init__(self, seed: int, cluster: MemoryCluster, watches_are_troubled: bool) -> None:
        """``watches_are_troubled``: whether anything will happen to watches in this history."""
        self._open: Counter[MishapKind] = Counter()
        self._open_total = 0
        self.struck: Counter[str] = Counter()
        """How often something of a kind went wrong."""
        self.watches_are_troubled = watches_are_troubled
        self.cluster = cluster
        self.watches: list[_Tell] = []
        self.acting: Line | None = None
        """Whose step the cluster carries out at this very moment; None: nobody's of ours."""
        self._streams = {kind: random.Random(f"{seed} strikes {kind.name}") for kind in MishapKind}

    @property
    def now(self) -> bool:
        """Whether anything is wrong that lasts for a while."""
        return self._open_total > 0

    def begin(self, kind: MishapKind) -> None:
        """Let a kind strike from now on."""
        self._open[kind] += 1
        self._open_total += 1

    def end(self, kind: MishapKind) -> None:
        """Let it strike no more, unless it was begun twice."""
        self._open[kind] -= 1
        self._open_total -= 1

    def note(self, kind: MishapKind) -> None:
        """Count what strikes once."""
        self.struck[kind.name.lower()] += 1

    def strikes(self, kind: MishapKind, likely: float = 1.0) -> bool:
        """Tell whether it strikes this time."""
        if not self._open[kind] or (likely < 1.0 and self._streams[kind].random() >= likely):
            return False
        self.note(kind)
        return True

    def flips(self, kind: MishapKind) -> bool:
        """Flip the coin of a kind."""
        return self._streams[kind].random() < 0.5

    def pick(self, kind: MishapKind, choices: Sequence[float]) -> float:
        """Choose by the stream of a kind."""
        return self._streams[kind].choice(choices)

    def break_watches(self) -> None:
        """Break every watch."""
        for told in self.watches:
            self.note(MishapKind.WATCH_BREAKS)
            told.put_nowait(None)


@dataclass(slots=True)
class Line:
    """The line of one process; a process that sleeps goes on exactly where it stopped."""

    name: str
    around: Surroundings
    witness: Callable[[Step, Any], None]
    """Is told of every step that was carried out, before anybody else does anything."""
    tell: Callable[[str, str], None]
    dies_at: int | None = None
    after: bool = True
    steps: int = 0
    dead: bool = False
    sleeps_total: int = 0
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.Task[None] | None = None
    epoch: int = 0
    """Of a scheduler: under which it leads, or has led."""

    def __post_init__(self) -> None:
        """A process begins awake."""
        self.awake.set()

    def die(self) -> None:
        """End the process: what it waits for is told to nobody any more."""
        self.dead = True
        if self.process is not None:
            asyncio.get_running_loop().call_soon(self.process.cancel)

    def fall_asleep(self) -> None:
        """Stand still at the next step."""
        self.sleeps_total += 1
        self.awake.clear()

    def refuse_if_dead(self) -> None:
        """Do what a killed process does: nothing, silently."""
        if self.dead:
            raise asyncio.CancelledError

    async def step(self, step: Step, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do one step outside, unless something comes in between."""
        around = self.around
        if not self.awake.is_set():
            await self.awake.wait()
        self.refuse_if_dead()
        self.steps += 1
        if self.dies_at == self.steps:
            if self.after:
                answer = await self._carry_out(step, work)
                if self.dies_at is None:
                    # It took long, and whoever planned this has given it up: nobody would start another process.
                    return answer
            self.die()
            self.tell(self.name, f"dies at step {self.steps}, {'after' if self.after else 'before'} {step.method}")
        self.refuse_if_dead()
        if not around.now:
            answer = await self._carry_out(step, work)
            if around.now or self.dead or not self.awake.is_set():
                await self._come_back(step)
            return answer
        if around.strikes(self._away(step)):
            await asyncio.sleep(0.05)
            self.refuse_if_dead()
            raise self._failure(step)
        await self._obstruct(step)
        if around.strikes(MishapKind.BAD_WEATHER, 0.08):
            carried_out = around.flips(MishapKind.BAD_WEATHER)
            if carried_out:
                await self._carry_out(step, work)
            self.tell(self.name, f"{step.method} fails{', and was carried out' if carried_out else ''}")
            self.refuse_if_dead()
            raise self._failure(step)
        await self._dawdle()
        answer = await self._carry_out(step, work)
        await self._come_back(step)
        return answer

    async def _come_back(self, step: Step) -> None:
        """Have the answer reach the process, unless something comes in between."""
        await self._dawdle()
        await self.awake.wait()
        self.refuse_if_dead()
        if self.around.strikes(self._away(step)):
            # It went away while the answer was on its way.
            raise self._failure(step)

    async def _carry_out(self, step: Step, work: Callable[[], Awaitable[Any]]) -> Any:
        if step.target == "cluster":
            self.around.acting = self
        try:
            answer = await work()
        finally:
            # Also after a refusal, and at no other step, which may take long: what others do meanwhile is not its doing.
            self.around.acting = None
        self.witness(step, answer)
        return answer

    async def _obstruct(self, step: Step) -> None:
        """Let others change what is to be written, or the quota refuse it."""
        around = self.around
        if step.method == "replace_status" and around.strikes(MishapKind.CONFLICTS, 0.3):
            around.cluster.label(cast(ClusterObject, step.arguments[0]), {"looked-at": str(self.steps)})
            self.tell(self.name, "somebody changes what is to be written")
        if step.method in ("create_node", "create_approval") and around.strikes(MishapKind.QUOTA, 0.6):
            self.tell(self.name, f"{step.method} is refused by the quota")
            raise QuotaExceededError("objects")

    async def _dawdle(self) -> None:
        around = self.around
        if around.strikes(MishapKind.SLOW_ANSWERS, 0.3):
            await asyncio.sleep(around.pick(MishapKind.SLOW_ANSWERS, (0.1, 1.0, 3.0)))
            await self.awake.wait()
            self.refuse_if_dead()

    @staticmethod
    def _away(step: Step) -> MishapKind:
        return MishapKind.LEDGER_AWAY if step.to_ledger else MishapKind.CLUSTER_AWAY

    @staticmethod
    def _failure(step: Step) -> Exception:
        said = f"{step.method}: no answer"
        return LedgerUnavailableError(said) if step.to_ledger else ClusterUnavailableError(said)


def wire(target: _Target, line: Line, name: str) -> _Target:
    """Return the target as the process at the other end of the line reaches it."""
    kind = {"ledger": _LedgerWire, "cluster": _ClusterWire}.get(name, _Wire)
    return cast(_Target, kind(target, line, name))


class _Wire:
    def __init__(self, target: Any, line: Line, name: str) -> None:
        self._target = target
        self._line = line
        self._name = name

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._target, method)
        if not inspect.iscoroutinefunction(found):
            return found

        def step(*arguments: Any, **named: Any) -> Awaitable[Any]:
            taken = Step(self._line, self._name, method, arguments)
            return self._line.step(taken, functools.partial(found, *arguments, **named))

        setattr(self, method, step)
        return step


class _LedgerWire(_Wire):
    """Reads old reports again now and then, as a new leader does with its predecessor's."""

    def __init__(self, target: Any, line: Line, name: str) -> None:
        super().__init__(target, line, name)
        self._read: list[tuple[str, Report]] = []

    async def read_reports(self, *arguments: Any) -> Sequence[tuple[str, Report]]:
        """Read reports, and some a second time."""
        taken = Step(self._line, self._name, "read_reports", arguments)
        try:
            fresh = list(await self._line.step(taken, lambda: self._target.read_reports(*arguments)))
        except (LedgerUnavailableError, asyncio.CancelledError):
            if not self._line.dead:
                # As the adapter of the real ledger does: what that read delivered is given again by the next one.
                self._target.forget_reader(arguments[1])
            raise
        old: list[tuple[str, Report]] = []
        if self._read and self._line.around.strikes(MishapKind.REPORTS_AGAIN, 0.5):
            old = self._read[-3:]
        self._read += fresh
        return [*old, *fresh]


class _ClusterWire(_Wire):
    """Tells of changes late, again, out of order between objects, or not at all any more."""

    async def watch(self) -> AsyncIterator[ClusterChange]:
        """Watch, through whatever weather there is."""
        line = self._line
        await line.step(Step(line, self._name, "watch", ()), _nothing)
        if not line.around.watches_are_troubled:
            async for change in self._target.watch():
                await line.awake.wait()
                line.refuse_if_dead()
                yield change
        told: _Tell = asyncio.Queue()
        line.around.watches.append(told)
        feeding = asyncio.create_task(self._feed(told))
        try:
            while True:
                heard = await told.get()
                await line.awake.wait()
                line.refuse_if_dead()
                if heard is None:
                    line.tell(line.name, "its watch breaks")
                    raise ClusterUnavailableError("the watch broke")
                yield heard
        finally:
            line.around.watches.remove(told)
            feeding.cancel()

    async def _feed(self, told: _Tell) -> None:
        around, loop = self._line.around, asyncio.get_running_loop()
        told_until: dict[tuple[str, str], float] = {}
        async for change in self._target.watch():
            key = (change.object.kind, change.object.metadata.name)
            now = loop.time()
            at = max(now, told_until.get(key, 0.0))
            if around.strikes(MishapKind.EVENTS_LATE, 0.5):
                at = max(at, now + around.pick(MishapKind.EVENTS_LATE, (0.1, 1.0, 5.0)))
            told_until[key] = at
            if at <= now:
                told.put_nowait(change)
            else:
                loop.call_at(at, told.put_nowait, change)
            if around.strikes(MishapKind.EVENTS_AGAIN, 0.4):
                loop.call_at(at + around.pick(MishapKind.EVENTS_AGAIN, (0.2, 2.0)), told.put_nowait, change)


class OwnClock:
    """A process's own idea of the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        """Return what it takes for the present moment."""
        return self._clock.now() + self.ahead if self.ahead else self._clock.now()


async def _nothing() -> None:
    return None
