"""How often statuses are written, and that writing them keeps nobody waiting."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from agentrun.contract.node import AgentNode
from agentrun.contract.run import Priority
from agentrun.engine.cluster_port import ClusterObject, ClusterUnavailableError, ConflictError, GoneError
from agentrun.engine.settings import SchedulerSettings
from support.world import World, in_world

ONE = "nodes: [{name: a, tool: act}]"
LINE = "priority: P3\nnodes: [{name: all, type: FanOut, fanOut: {items: %s, node: {tool: act}}}]"
URGENT = "priority: P1\nnodes: [{name: a, tool: act}]"
INSTANCES = 320


def test_a_run_that_ends_within_a_second_is_written_at_its_admission_and_at_its_end() -> None:
    async def test(world: World) -> None:
        written: list[str] = []
        replace = world.cluster.replace_status

        async def note(changed: ClusterObject) -> ClusterObject:
            if changed.kind == "AgentRun" and changed.status is not None:
                written.append(str(changed.status.phase))
            return await replace(changed)

        world.cluster.replace_status = note  # type: ignore[method-assign]
        world.start_worker()
        world.start_scheduler()
        world.apply_run(ONE)
        ended = await world.ended()
        await asyncio.sleep(5)
        assert written == ["Running", "Succeeded"]
        assert ended.counts == {"Succeeded": 1}

    in_world(test, "act: {timeout: 10s}", "tools: {act: [{result: 1}]}")


@pytest.mark.parametrize("side_effect", ["Once", "Idempotent", "None"])
@pytest.mark.parametrize("claimed_after", [0.0, 0.1, 0.5, 0.9, 1.5])
def test_a_call_that_lasts_is_shown_as_running_however_soon_it_was_taken(
    side_effect: str, claimed_after: float
) -> None:
    """Its time to be shown comes after that of the state before, for which the node is looked at first."""

    async def test(world: World) -> None:
        claim = world.ledger.claim

        async def claim_late(*arguments: Any, **named: Any) -> Any:
            await asyncio.sleep(claimed_after)
            return await claim(*arguments, **named)

        world.ledger.claim = claim_late  # type: ignore[method-assign]
        world.start_worker()
        world.start_scheduler()
        world.apply_run(ONE)
        await world.until(lambda: world.nodes()["a"].phase == "Running", 10)
        await world.ended()

    in_world(test, f"act: {{timeout: 60s, sideEffect: {side_effect}}}", "tools: {act: [{result: 1, delay: 40s}]}")


def test_an_urgent_call_does_not_wait_until_a_long_line_is_written() -> None:
    async def test(world: World) -> None:
        replace = world.cluster.replace_status

        async def replace_slowly(changed: ClusterObject) -> ClusterObject:
            await asyncio.sleep(1)
            return await replace(changed)

        world.cluster.replace_status = replace_slowly  # type: ignore[method-assign]
        world.start_scheduler()
        world.apply_run(LINE % list(range(INSTANCES)), "line")
        await world.until(lambda: any(node.phase == "Ready" for node in world.nodes("line").values()))
        world.start_worker()
        await asyncio.sleep(1)
        world.apply_run(URGENT, "urgent")
        await world.until(lambda: any(node.started_at for node in world.nodes("urgent").values()))
        (urgent,) = world.nodes("urgent").values()
        assert urgent.started_at is not None
        assert urgent.queued_since is not None
        assert urgent.started_at - urgent.queued_since < timedelta(seconds=5)
        assert sum(node.phase == "Ready" for node in world.nodes("line").values()) < INSTANCES
        await world.ended("line")

    in_world(test, "act: {timeout: 10s, sideEffect: None}", "tools: {act: [{result: 1, delay: 500ms}]}")


def test_an_urgent_status_passes_those_of_long_lines_at_a_server_that_writes_one_at_a_time() -> None:
    async def test(world: World) -> None:
        replace, server = world.cluster.replace_status, asyncio.Lock()

        async def replace_in_turn(changed: ClusterObject) -> ClusterObject:
            async with server:
                await asyncio.sleep(0.05)
                return await replace(changed)

        world.cluster.replace_status = replace_in_turn  # type: ignore[method-assign]
        world.start_scheduler(settings=SchedulerSettings(reserved_slots={Priority.P0: 2}))
        for line in range(10):
            world.apply_run(LINE % list(range(INSTANCES // 10)), f"line-{line}")
        await world.until(lambda: any(node.phase == "Ready" for node in world.nodes("line-0").values()))
        world.start_worker()
        await asyncio.sleep(1)
        began = world.clock.now()
        world.apply_run("priority: P0\nnodes: [{name: a, tool: quick}]", "urgent")
        await world.ended("urgent")
        assert (world.clock.now() - began).total_seconds() < 10
        for line in range(10):
            await world.ended(f"line-{line}")

    tools = "act: {timeout: 10s, sideEffect: None}\nquick: {sideEffect: None}"
    in_world(test, tools, "tools: {act: [{result: 1, delay: 5s}], quick: [{result: 1}]}")


@pytest.mark.parametrize("answer", [ConflictError, GoneError])
def test_a_node_that_went_with_its_run_is_not_made_again(answer: type[Exception]) -> None:
    async def test(world: World) -> None:
        created: list[str] = []
        replace, create = world.cluster.replace_status, world.cluster.create_node

        async def refuse_what_is_gone(changed: ClusterObject) -> ClusterObject:
            if changed.kind == "AgentNode" and not world.cluster.nodes_of("default", changed.spec.run.uid):
                # A server in the middle of the deletion says conflict where another says not found.
                raise answer(changed.metadata.name)
            return await replace(changed)

        async def note(node: AgentNode) -> AgentNode:
            created.append(node.metadata.name)
            return await create(node)

        world.cluster.replace_status = refuse_what_is_gone  # type: ignore[method-assign]
        world.cluster.create_node = note  # type: ignore[method-assign]
        world.start_worker()
        world.start_scheduler()
        world.apply_run(ONE)
        await world.until(lambda: any(node.phase == "Running" for node in world.nodes().values()))
        with world.cluster.unseen():
            world.cluster.delete_run("default", "run")
        await asyncio.sleep(30)
        assert len(created) == 1
        assert world.scheduler.failed_turns_total == 0

    in_world(test, "act: {timeout: 10s}", "tools: {act: [{result: 1, delay: 5s}]}")


def test_a_node_that_was_deleted_from_a_live_run_is_made_again() -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler()
        world.apply_run(ONE)
        await world.until(lambda: any(node.phase == "Running" for node in world.nodes().values()))
        (node,) = world.cluster.nodes_of("default", world.cluster.get_run("default", "run").metadata.uid)
        with world.cluster.unseen():
            await world.cluster.delete(node)
        ended = await world.ended()
        assert ended.counts == {"Succeeded": 1}
        (again,) = world.nodes().values()
        assert again.phase == "Succeeded"

    in_world(test, "act: {timeout: 10s}", "tools: {act: [{result: 1, delay: 5s}]}")


def test_a_write_that_goes_on_while_another_fails_is_not_overtaken_by_a_newer_one() -> None:
    """Two nodes' statuses are written side by side: one fails at once, the other is stored late."""

    async def test(world: World) -> None:
        replace, met = world.cluster.replace_status, set[str]()

        async def fail_or_dawdle(changed: ClusterObject) -> ClusterObject:
            path = changed.spec.path if changed.kind == "AgentNode" else ""
            if path and path not in met:
                met.add(path)
                if path == "a":
                    raise ClusterUnavailableError("away")
                await asyncio.sleep(2)
            return await replace(changed)

        world.cluster.replace_status = fail_or_dawdle  # type: ignore[method-assign]
        world.start_scheduler()
        world.apply_run("nodes: [{name: a, tool: act}, {name: b, tool: act}]")
        await world.until(lambda: met == {"a", "b"})
        await asyncio.sleep(0.3)
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update={"cancel": True}))
        assert (await world.ended(within=60)).phase == "Cancelled"
        await asyncio.sleep(10)
        assert {node.phase for node in world.nodes().values()} == {"Cancelled"}

    in_world(test, "act: {approval: {required: Always}}", "tools: {act: [{result: 1}]}")
