"""A cluster that was restored from an older copy in mid-run: dispatch goes on, nothing happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from agentrun.contract.run import RunPhase
from agentrun.engine.settings import SchedulerSettings
from support.lease_book import LeaseBook
from support.world import World, in_world

SETTINGS = SchedulerSettings(sweep_every=timedelta(minutes=1))
TOOLS = "act: {sideEffect: Once}\nread: {sideEffect: None}"
SCRIPT = "tools: {act: [{result: 1, delay: 5s}], read: [{result: 1, delay: 5s}]}"
NODES = """
nodes:
- {name: a, tool: act, params: {n: 1}}
- {name: b, tool: read, dependsOn: [a]}
- {name: c, tool: act, params: {n: 2}, dependsOn: [b]}
"""


def take_copy(world: World) -> Callable[[], None]:
    """Return what restores the cluster as it is now; watches hear nothing of it, and versions count on from here."""
    cluster = world.cluster
    objects, version = dict(cluster._objects), cluster._version
    by_run = {key: dict(found) for key, found in cluster._by_run.items()}

    def restore() -> None:
        cluster._objects, cluster._version, cluster._by_run = objects, version, by_run

    return restore


@pytest.mark.parametrize("copied_at", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("restored_after", [1.0, 6.0, 20.0])
@pytest.mark.parametrize("restarts", [False, True], ids=["one life", "restarted"])
def test_a_run_ends_right_though_the_cluster_goes_back(copied_at: float, restored_after: float, restarts: bool) -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler(settings=SETTINGS)
        world.apply_run(NODES)
        await asyncio.sleep(copied_at)
        restore = take_copy(world)
        await asyncio.sleep(restored_after)
        restore()
        if restarts:
            await world.kill_scheduler()
            world.start_scheduler(settings=SETTINGS)
        assert (await world.ended(within=1800)).phase is RunPhase.SUCCEEDED
        await asyncio.sleep(120)
        assert world.status().phase is RunPhase.SUCCEEDED
        assert world.counts.effects["act"] == 2
        assert world.scheduler is not None
        assert world.scheduler.failed_turns_total == 0

    in_world(test, TOOLS, SCRIPT)


def test_the_session_of_a_run_that_had_ended_is_given_back() -> None:
    async def test(world: World) -> None:
        world.sessions = book = LeaseBook()
        world.start_worker()
        world.start_scheduler(settings=SETTINGS)
        world.apply_run(f"session: s\n{NODES}")
        await asyncio.sleep(3)
        restore = take_copy(world)
        await world.ended(within=600)
        await world.kill_scheduler()
        restore()
        assert book.holders == {}
        world.start_scheduler(settings=SETTINGS)
        assert (await world.ended(within=600)).phase is RunPhase.SUCCEEDED
        await asyncio.sleep(5)
        assert book.holders == {}
        assert world.counts.effects["act"] == 2

    in_world(test, TOOLS, SCRIPT)
