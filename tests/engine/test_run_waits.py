"""A run's status says what its nodes wait for, since when, and people are told of what lasts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from agentrun.contract.run import RunPhase, RunWait
from agentrun.engine.observer import EngineFact, RunWaits
from agentrun.engine.scheduler import Scheduler
from support.manifest_texts import build_tools
from support.world import World, in_world

TOOLS = "act: {sideEffect: None, execution: {pool: fast}}"
SCRIPT = "tools: {act: [{result: 1}]}"
TWO = "nodes: [{name: a, tool: act}, {name: b, tool: act, params: {n: 2}}, {name: c, tool: act, params: {n: 3}, dependsOn: [a]}]"


class Told:
    def __init__(self) -> None:
        self.waits: list[RunWait] = []

    def note(self, happened: EngineFact) -> None:
        if isinstance(happened, RunWaits):
            self.waits.append(happened.wait)


def start(world: World, told: Told) -> Scheduler:
    world.observer = told
    world.start_scheduler()
    assert world.scheduler is not None
    return world.scheduler


def test_a_pool_without_workers_shows_in_the_run_and_is_told_of_after_a_minute() -> None:
    async def test(world: World) -> None:
        told = Told()
        start(world, told)
        world.apply_run(TWO)
        began = world.clock.now()
        await world.until(lambda: bool(world.status().waits), 10)
        (wait,) = world.status().waits
        assert (wait.waiting_for, wait.nodes) == ("Pool(fast)", 2)
        assert wait.since - began <= timedelta(seconds=3)
        assert "no worker of pool fast is announced in namespace default" in wait.message
        assert "agentrun-worker run --namespace default --pool fast" in wait.message
        await asyncio.sleep(50)
        assert not told.waits
        await asyncio.sleep(20)
        assert [wait.waiting_for for wait in told.waits] == ["Pool(fast)"]
        await asyncio.sleep(25 * 60)
        assert len(told.waits) == 1
        assert world.status().waits[0].since == wait.since

    in_world(test, TOOLS, SCRIPT)


def test_a_wait_that_is_over_is_shown_no_more() -> None:
    async def test(world: World) -> None:
        start(world, Told())
        world.apply_run("nodes: [{name: a, tool: act}, {name: b, tool: act, params: {n: 2}}]")
        await world.until(lambda: bool(world.status().waits), 10)
        world.start_worker(pool="fast")
        ended = await world.ended(within=60)
        assert ended.phase is RunPhase.SUCCEEDED
        assert ended.waits == ()

    in_world(test, TOOLS, SCRIPT)


def test_a_run_without_its_tool_shows_what_it_waits_for() -> None:
    async def test(world: World) -> None:
        told = Told()
        start(world, told)
        world.apply_run("nodes: [{name: a, tool: other}]")
        await world.until(lambda: bool(world.status().waits), 10)
        (wait,) = world.status().waits
        assert (wait.waiting_for, wait.nodes) == ("ToolNotFound", 1)
        assert "other" in wait.message
        await asyncio.sleep(65)
        assert [wait.waiting_for for wait in told.waits] == ["ToolNotFound"]
        world.start_worker()
        for tool in build_tools("other: {sideEffect: None}"):
            world.cluster.apply(tool)
        assert (await world.ended(within=60)).waits == ()

    in_world(test, TOOLS, "tools: {act: [{result: 1}], other: [{result: 1}]}")


def test_a_node_whose_record_was_freed_while_no_worker_is_there_says_that_it_waits_for_one() -> None:
    async def nobody(*_: object) -> int:
        return 0

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(
            "onNodeFailure: Continue\nnodes: [{name: a, tool: act, params: {n: 1}}, {name: b, tool: act, params: {n: 1}}]"
        )
        waits = lambda: [node.waiting_for for node in world.nodes().values() if node.phase == "Ready"]  # noqa: E731
        await world.until(lambda: [text.partition("(")[0] for text in waits()] == ["Idempotency"])
        world.ledger.find_pool_slots = nobody  # type: ignore[method-assign]
        await world.until(lambda: world.nodes()["a"].phase == "Dead", 120)
        await asyncio.sleep(0.5)
        assert waits() == ["Pool(shared)"]

    in_world(test, "act: {retry: {limit: 0}, timeout: 30s}", "tools: {act: [{failure: {}, delay: 8s}]}")


def test_a_node_that_the_ledger_finds_no_slot_for_says_so() -> None:
    async def test(world: World) -> None:
        world.ledger.space("default").slot_holders("tool:act")["another/1"] = world.clock.now_ms() + 3_600_000
        world.start_scheduler()
        world.start_worker()
        await asyncio.sleep(1)
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase == "Ready" and bool(world.nodes()["a"].waiting_for), 2)
        assert world.nodes()["a"].waiting_for == "Slots(tool:act)"

    in_world(test, "act: {sideEffect: None, limits: {concurrency: 1}}", "tools: {act: [{result: 1}]}")
