"""A ledger that is away for long: what happened meanwhile is heard before anybody gives anything up."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from agentrun.contract.run import RunPhase
from support.outage import Outage
from support.world import World, in_world

TOOLS = "act: {sideEffect: Once, timeout: 20s}"


@pytest.mark.parametrize("minutes", [1, 10])
def test_a_call_that_ended_while_the_ledger_was_away_counts_when_it_is_back(minutes: int) -> None:
    async def test(world: World) -> None:
        world.ledger = Outage(world.ledger)  # type: ignore[assignment]
        world.start_worker()
        world.start_scheduler()
        world.apply_run("nodes: [{name: a, tool: act}, {name: b, tool: act, params: {n: 2}, dependsOn: [a]}]")
        await world.until(lambda: world.nodes()["a"].phase == "Running", 60)
        world.ledger.away = True  # type: ignore[attr-defined]
        await asyncio.sleep(60 * minutes)
        world.ledger.away = False  # type: ignore[attr-defined]
        back: datetime = world.clock.now()
        ended = await world.ended(within=600)
        assert ended.phase is RunPhase.SUCCEEDED
        assert {node.reason for node in world.nodes().values()} == {"Completed"}
        assert world.counts.effects["act"] == 2
        assert (world.clock.now() - back).total_seconds() < 60

    in_world(test, TOOLS, "tools: {act: [{result: 1, delay: 5s}]}")


def test_a_worker_that_died_meanwhile_is_given_up_after_a_full_window() -> None:
    async def test(world: World) -> None:
        world.ledger = Outage(world.ledger)  # type: ignore[assignment]
        world.start_worker()
        world.start_scheduler()
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase == "Running", 60)
        world.ledger.away = True  # type: ignore[attr-defined]
        world.kill_worker()
        await asyncio.sleep(600)
        world.ledger.away = False  # type: ignore[attr-defined]
        await asyncio.sleep(25)
        assert world.nodes()["a"].phase == "Running"
        world.start_worker("other")
        await world.until(lambda: world.nodes()["a"].phase == "Quarantined", 120)

    in_world(test, TOOLS, "tools: {act: [{result: 1, delay: 5s}]}")
