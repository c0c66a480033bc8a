"""The line between a process and what lies outside of it: where it dies, sleeps, is cut off, or hears nothing back.

A scheduler's and a worker's calls of the ledger and the cluster go through one of these, one per process.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agentrun.engine.cluster_port import ClusterUnavailableError
from agentrun.ledger.port import LedgerUnavailableError
from support.world import Mortality


@dataclass(slots=True)
class Surroundings:
    """What holds for all processes at this moment."""

    chance: random.Random
    ledger_away: bool = False
    cluster_away: bool = False
    bad_weather: bool = False
    slow: bool = False


@dataclass(slots=True)
class Line(Mortality):
    """The line of one process; a process that sleeps goes on exactly where it stopped."""

    around: Surroundings = field(default_factory=lambda: Surroundings(random.Random(0)))
    awake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """A process begins awake."""
        self.awake.set()

    async def step(self, work: Callable[[], Awaitable[Any]], failure: Exception) -> Any:
        """Do one step outside, unless something comes in between."""
        around = self.around
        await self.awake.wait()
        self._refuse_if_dead()
        self.steps += 1
        if self.dies_at == self.steps:
            if self.after:
                await work()
            self.dead = True
        self._refuse_if_dead()
        away = around.cluster_away if isinstance(failure, ClusterUnavailableError) else around.ledger_away
        if away:
            await asyncio.sleep(0.05)
            self._refuse_if_dead()
            raise failure
        if around.bad_weather and around.chance.random() < 0.08:
            if around.chance.random() < 0.5:
                await work()
            raise failure
        if around.slow and around.chance.random() < 0.3:
            await asyncio.sleep(around.chance.choice((0.1, 1.0, 3.0)))
            await self.awake.wait()
            self._refuse_if_dead()
        answer = await work()
        if around.slow and around.chance.random() < 0.3:
            await asyncio.sleep(around.chance.choice((0.1, 1.0, 3.0)))
        await self.awake.wait()
        self._refuse_if_dead()
        return answer


CLUSTER_FAILURE = ClusterUnavailableError("it does not answer")
LEDGER_FAILURE = LedgerUnavailableError("it does not answer")
