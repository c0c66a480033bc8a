"""One case: a tool of some kind, a worker that dies at an instant, a successor, and what came of it.

Each case has a run, a tool and a pool of its own, so that any number of them share a site. What must come of it follows
from the instant's two facts (what the ledger and the provider had seen) and the kind alone.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from kills.bookings import Ledger, Moment
from kills.diary import Fate, read_diary
from kills.doomed_worker import WorkerPlan
from kills.instants import Instant, Reached
from kills.kill_site import Site, until
from kills.nursery import until_state
from kills.wire import Snag
from support.manifest_texts import build_run, build_tool

PRICE = 10_000
"""Micros of one call."""
_READING: JsonObject = {
    "pollInterval": "100ms",
    "outcome": {
        "completed": {"when": {"path": "result.state", "op": "eq", "value": "done"}, "result": "result.booking"},
        "running": {"when": {"path": "result.state", "op": "eq", "value": "running"}},
        "notExecuted": {"when": {"path": "result.state", "op": "eq", "value": "unknown"}},
    },
}
Strike = Callable[[], Awaitable[None]]
_SETTLED = ("Succeeded", "Quarantined", "Dead")


class Kind(StrEnum):
    """What a tool says of itself, and who comes after its dead worker."""

    ONCE = "once"
    LOOKED = "once, lookup"
    LOOKED_BY_OTHER = "once, lookup, another name"
    DEDUPLICATED = "once, lookup, provider deduplicates, another name"
    AGAIN = "idempotent"
    READ = "none"

    @property
    def is_once(self) -> bool:
        """Whether it may happen only once."""
        return self not in (Kind.AGAIN, Kind.READ)

    @property
    def heir(self) -> str:
        """The name of the worker that comes after; the dead one's was w."""
        return "other" if self in (Kind.LOOKED_BY_OTHER, Kind.DEDUPLICATED) else "w"


@dataclass(frozen=True, slots=True)
class End:
    """How a case ended."""

    phase: str
    reason: str
    effects: int
    micros: int


@dataclass(frozen=True, slots=True)
class Row:
    """A case as a line of the table."""

    instant: Instant
    kind: Kind
    want: End
    got: End

    def __str__(self) -> str:
        """Return the line."""
        got, fault = self.got, "" if self.got == self.want else f" | wanted {self.want}"
        told = f"{got.phase} ({got.reason}) | {got.effects} | {got.micros}"
        return f"| {self.instant.step} | {self.instant.name} | {self.kind} | {told}{fault} |"


def expect_after_death(kind: Kind, reached: Reached, *, booked: bool) -> End:
    """Return how a case must end whose worker is dead."""
    if reached is not Reached.CLAIMED:
        return End("Succeeded", "Completed", 1, PRICE)
    # A lost paid attempt is booked as its worst case, and the repetition costs again.
    if not kind.is_once:
        return End("Succeeded", "Completed", 1 + booked, 2 * PRICE)
    if kind is Kind.ONCE:
        return End("Quarantined", "OutcomeUnknown", int(booked), PRICE)
    if booked:
        return End("Succeeded", "RecoveredCompleted", 1, PRICE)
    # "Not executed" is believed where the dead worker is proven gone, or where a repetition is the same to the provider.
    if kind is Kind.LOOKED_BY_OTHER:
        return End("Quarantined", "OutcomeUnknown", 0, PRICE)
    return End("Succeeded", "Completed", 1, PRICE)


def expect_after_sleep(kind: Kind, instant: Instant) -> End:
    """Return how a case must end whose worker was stopped, was succeeded by another, and woke up."""
    booked, late = instant.booked, instant.books_late
    if instant.reached is not Reached.CLAIMED:
        return End("Succeeded", "Completed", 1, PRICE)
    # The truth about the lost attempt takes its estimate's place: the price if it did anything, else nothing.
    paid = PRICE if booked or late else 0
    if not kind.is_once:
        return End("Succeeded", "Completed", 1 + (booked or late), PRICE + paid)
    if kind is not Kind.ONCE and booked:
        return End("Succeeded", "RecoveredCompleted", 1, PRICE)
    # The recovery's word that nothing was executed is final, and the provider booked both requests as one.
    if kind is Kind.DEDUPLICATED:
        return End("Succeeded", "Completed", 1, PRICE)
    return End("Quarantined", "OutcomeUnknown", int(booked or late), paid)


def build_case(site: Site, kind: Kind, pool: str) -> tuple[list[AgentTool], AgentRun]:
    """Return the tools of a case and its run."""
    call: JsonObject = {"method": "POST", "body": "{params}", "allowPrivateAddresses": True}
    spec: JsonObject = {
        "type": "http",
        "http": {**call, "url": f"{site.provider.url}/{'read' if kind is Kind.READ else 'book'}/{pool}"},
        "timeout": "15s",
        "cost": {"perCall": "0.01"},
        "retry": {"limit": 3, "backoff": {"initial": "100ms"}},
        "execution": {"pool": pool},
    }
    tools = []
    match kind:
        case Kind.ONCE:
            pass
        case Kind.AGAIN:
            spec["sideEffect"] = "Idempotent"
        case Kind.READ:
            spec["sideEffect"] = "None"
        case Kind.LOOKED | Kind.LOOKED_BY_OTHER | Kind.DEDUPLICATED:
            spec["recovery"] = {"lookup": {"tool": f"look-{pool}", "params": {"key": "${key}"}}, **_READING}
            url = f"{site.provider.url}/look/{pool}/{{key}}"
            look: JsonObject = {
                "type": "http",
                "sideEffect": "None",
                "timeout": "5s",
                "execution": {"pool": pool},
                "http": {"method": "GET", "url": url, "allowPrivateAddresses": True},
            }
            tools.append(build_tool(f"look-{pool}", look))
        case _:
            assert_never(kind)
    if kind is Kind.DEDUPLICATED:
        spec["idempotency"] = {"providerDeduplicates": True}
        spec["http"] = {**call, "url": f"{site.provider.url}/book/{pool}?deduplicates=1"}
    tools.append(build_tool(f"act-{pool}", spec))
    run = build_run(f"{{onNodeFailure: Continue, nodes: [{{name: act, tool: act-{pool}, params: {{a: 1}}}}]}}", pool)
    return tools, run


class Case:
    """One case on a site."""

    def __init__(self, site: Site, kind: Kind, instant: Instant, pool: str) -> None:
        self.site = site
        self.kind = kind
        self.instant = instant
        self.pool = pool
        self._pids: list[int] = []
        self.doomed = 0
        self.plan: WorkerPlan | None = None

    async def die_and_recover(self) -> Row:
        """Kill the worker at the instant, have a successor, and return how it ended."""
        ledger = await self._begin(signal.SIGKILL, self.instant.fate, self.instant.snag)
        await self._until_struck("Z")
        ledger.released.set()
        await self.follow(self.kind.heir)
        got = await self._end(ledger)
        instant = self.instant
        return Row(instant, self.kind, expect_after_death(self.kind, instant.reached, booked=instant.booked), got)

    async def die_twice(self, *, booked: bool) -> Row:
        """Kill the worker of the call, then at the instant the one that asks about it; return how it ended."""
        first = Fate("request: sent" if booked else "connect: answered")
        ledger = await self._begin(signal.SIGKILL, first, snag=None)
        await self._until_struck("Z")
        self.doomed, self.plan = await self._hatch(signal.SIGKILL, "w", self.instant.fate, self.instant.snag)
        await self._until_struck("Z")
        await self.follow("w")
        got = await self._end(ledger)
        want = End("Succeeded", "RecoveredCompleted" if booked else "Completed", 1, PRICE)
        return Row(self.instant, self.kind, want, got)

    async def stop_and_wake(self) -> Row:
        """Stop the worker at the instant, have another, wake it when the other has ended; return how it ended."""
        ledger = await self._begin(signal.SIGSTOP, self.instant.fate, self.instant.snag)
        await self._until_struck("T")
        ledger.released.set()
        await self.follow("other")
        await self._until_settled()
        plan = self._known_plan
        before = len(read_diary(plan.diary))
        os.kill(self.doomed, signal.SIGCONT)
        # It has one slot: it asks for the next order when it is through with this one.
        await until(lambda: "take: called" in read_diary(plan.diary)[before:], 60, lambda: read_diary(plan.diary))
        got = await self._end(ledger)
        return Row(self.instant, self.kind, expect_after_sleep(self.kind, self.instant), got)

    async def outlive(self, blow: Strike, struck: asyncio.Event, *, lives: bool) -> End:
        """Have the ledger struck at the instant, and the worker as well unless it lives; return how it ended."""
        ledger = await self._begin(signal.SIGKILL, self.instant.fate, self.instant.snag, blow)
        async with asyncio.timeout(90):
            await struck.wait()
        if not lives:
            self.site.kill(self.doomed)
            await self._until_struck("Z")
        ledger.released.set()
        if not lives:
            await self.follow(self.kind.heir)
        return await self._end(ledger)

    async def follow(self, name: str, fate: Fate | None = None, url: str | None = None) -> int:
        """Start a further worker."""
        pid, _ = await self.site.hatch(self.pool, name, fate, url=url)
        self._pids.append(pid)
        return pid

    # --- parts

    @property
    def _known_plan(self) -> WorkerPlan:
        assert self.plan is not None
        return self.plan

    async def _begin(self, how: signal.Signals, fate: Fate, snag: Snag | None, strike: Strike | None = None) -> Ledger:
        """Start the worker and give it its call. ``strike``: what happens at the instant, when it is not the worker's."""
        site, moment = self.site, self.instant.moment
        blow = strike or (lambda: self._strike(how))
        ledger = site.provider.open(self.pool, moment, blow)
        self.doomed, self.plan = await self._hatch(how, "w", fate, snag, blow, lambda: ledger.requests > 0)
        site.apply(*build_case(site, self.kind, self.pool))
        return ledger

    async def _strike(self, how: signal.Signals) -> None:
        os.kill(self.doomed, how)

    async def _hatch(
        self,
        how: signal.Signals,
        name: str,
        fate: Fate,
        snag: Snag | None,
        strike: Strike | None = None,
        has_called: Callable[[], bool] = lambda: True,
    ) -> tuple[int, WorkerPlan]:
        url = None
        if snag is not None:
            wire = await self.site.lay_wire(
                snag, strike or (lambda: self._strike(how)), passes_on=how is signal.SIGSTOP
            )
            if self.instant.moment is Moment.LINGERS:
                wire.is_armed = has_called
            url = wire.url
        fate = replace(fate, stops=how is signal.SIGSTOP)
        pid, plan = await self.site.hatch(self.pool, name, fate, url=url)
        self._pids.append(pid)
        return pid, plan

    async def _until_struck(self, letter: str) -> None:
        try:
            await until_state(self.doomed, letter)
        except TimeoutError:
            told = read_diary(self._known_plan.diary)
            raise AssertionError(f"{self.instant.name}: never reached; {told}") from None

    async def _until_settled(self) -> None:
        def is_settled() -> bool:
            status = self.site.node(self.pool)
            return status is not None and status.phase in _SETTLED

        await until(is_settled, 100, lambda: (self.instant.name, self.kind, self.site.node(self.pool)))

    async def _end(self, ledger: Ledger) -> End:
        await self._until_settled()
        site = self.site
        status = site.node(self.pool)
        assert status is not None
        if status.phase == "Quarantined":
            effect = Effect.EXECUTED if ledger.effects else Effect.NOT_EXECUTED
            said = Decision(verdict=Verdict.DISCARD, effect=effect, decided_by="Ada")
            await until(lambda: site.decide(self.pool, said), 10, lambda: f"{self.pool}: no question")
        await until(lambda: site.has_ended(self.pool), 20, lambda: site.node(self.pool))
        got = End(str(status.phase), str(status.reason), ledger.effects, await site.settled_micros(self.pool))
        site.kill(*self._pids)
        return got


def pool_of(number: int, name: str) -> str:
    """Return a pool's name that tells the case."""
    return f"p{number}-" + re.sub(r"[^a-z]+", "-", name.lower())[:30].strip("-")
