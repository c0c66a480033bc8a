"""What is done about what nobody was told of, and about what has been kept long enough."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from agentrun.contract.run import RunPhase
from agentrun.engine.settings import SchedulerSettings
from support.manifest_texts import build_run
from support.world import World, in_world

SETTINGS = SchedulerSettings(sweep_every=timedelta(minutes=10), nodes_kept=timedelta(hours=2), runs_kept_with_nodes=2)
TOOLS = "act: {sideEffect: Once, timeout: 2h}"
SLOW = "tools: {act: [{result: 1, delay: 40m}]}"
QUICK = "tools: {act: [{result: 1}]}"
ONE = "timeout: 3h\nnodes: [{name: a, tool: act, timeout: 2h}]"


async def begin(world: World, text: str = ONE, name: str = "run") -> None:
    world.start_worker()
    world.start_scheduler(settings=SETTINGS)
    world.apply_run(text, name)


async def has_begun(world: World) -> None:
    await world.until(lambda: world.nodes()["a"].phase == "Running", 60)


def test_a_run_whose_deletion_no_watch_told_of_is_cancelled_and_its_session_freed() -> None:
    async def test(world: World) -> None:
        await begin(world, f"session: s\n{ONE}")
        await has_begun(world)
        with world.cluster.unseen():
            world.cluster.delete_run("default", "run")
        await world.until(lambda: world.ledger.space("default").claims == {}, 3600)
        world.apply_run("session: s\nnodes: [{name: b, tool: act}]", "other")
        await world.until(lambda: world.status("other").admitted_at is not None, 60)

    in_world(test, TOOLS, SLOW)


def test_a_run_that_was_deleted_while_nobody_led_is_closed_and_its_orphans_go() -> None:
    async def test(world: World) -> None:
        await begin(world)
        await has_begun(world)
        uid = world.cluster.get_run("default", "run").metadata.uid
        await world.kill_scheduler()
        world.cluster.delete_run("default", "run", orphan=True)
        assert world.cluster.nodes_of("default", uid)
        world.start_scheduler(settings=SETTINGS)
        await world.until(lambda: not world.cluster.nodes_of("default", uid), 3600)
        assert world.ledger.space("default").runs[uid].state == "finished"
        await world.until(lambda: world.ledger.space("default").runs[uid].wound_up, 3600)

    in_world(test, TOOLS, SLOW)


def test_a_run_that_no_watch_told_of_is_taken_in() -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler(settings=SETTINGS)
        await asyncio.sleep(5)
        with world.cluster.unseen():
            world.apply_run("nodes: [{name: a, tool: act}]")
        assert (await world.ended(within=3600)).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, QUICK)


def test_a_change_that_no_watch_told_of_is_followed() -> None:
    async def test(world: World) -> None:
        await begin(world)
        await has_begun(world)
        with world.cluster.unseen():
            world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update={"cancel": True}))
        assert (await world.ended(within=1800)).phase is RunPhase.CANCELLED

    in_world(test, TOOLS, SLOW)


def test_a_run_goes_when_its_ttl_has_passed_since_its_end() -> None:
    async def test(world: World) -> None:
        await begin(world, f"ttlAfterFinished: 30m\n{ONE}")
        world.apply_run("nodes: [{name: a, tool: act, params: {n: 1}}]", "stays")
        ended = (await world.ended(within=3600)).finished_at
        assert ended is not None
        await world.until(lambda: len(world.cluster.runs()) == 1, 3600)
        assert timedelta(minutes=30) <= world.clock.now() - ended < timedelta(minutes=31)
        await asyncio.sleep(3600)
        assert [run.metadata.name for run in world.cluster.runs()] == ["stays"]

    in_world(test, TOOLS, SLOW)


def test_a_ttl_that_is_set_after_the_end_counts_from_the_end() -> None:
    async def test(world: World) -> None:
        await begin(world)
        await world.ended(within=3600)
        await asyncio.sleep(7200)
        changed = {"ttl_after_finished": timedelta(hours=1)}
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update=changed))
        await world.until(lambda: not world.cluster.runs(), 60)

    in_world(test, TOOLS, SLOW)


def test_nodes_of_ended_runs_go_after_a_time_and_the_oldest_of_too_many_earlier() -> None:
    async def test(world: World) -> None:
        await begin(world, "nodes: [{name: a, tool: act}]", "r0")
        for number in range(1, 4):
            await asyncio.sleep(60)
            world.cluster.apply(build_run(f"nodes: [{{name: a, tool: act, params: {{n: {number}}}}}]", f"r{number}"))
        await world.until(world.runs_have_ended, 60)

        def kept() -> list[str]:
            return [run.metadata.name for run in world.cluster.runs() if world.nodes(run.metadata.name)]

        await world.until(lambda: kept() == ["r2", "r3"], 1200)
        assert world.status("r0").phase is RunPhase.SUCCEEDED
        await asyncio.sleep(3600)
        assert kept() == ["r2", "r3"]
        await asyncio.sleep(3600)
        assert kept() == []
        # After a restart they are known by their status alone, and nothing comes back.
        await world.kill_scheduler()
        world.start_scheduler(settings=SETTINGS)
        await asyncio.sleep(3600)
        assert len(world.cluster.runs()) == 4

    in_world(test, TOOLS, QUICK)


def test_a_node_that_an_overtaken_leader_makes_for_an_ended_run_is_deleted() -> None:
    async def test(world: World) -> None:
        await begin(world, "nodes: [{name: a, tool: act}]")
        await world.ended(within=60)
        await asyncio.sleep(5)
        run = world.cluster.get_run("default", "run").metadata.uid
        (own,) = world.cluster.nodes_of("default", run)
        meta = own.metadata.model_copy(update={"name": "stray"})
        stray = await world.cluster.create_node(own.model_copy(update={"metadata": meta, "status": None}))
        late = await world.cluster.create_node(
            own.model_copy(update={"metadata": meta.model_copy(update={"name": "late"})})
        )
        await world.cluster.replace_status(late.model_copy(update={"status": own.status}))

        def names() -> set[str]:
            return {node.metadata.name for node in world.cluster.nodes_of("default", run)}

        await world.until(lambda: stray.metadata.name not in names(), 1200)
        await asyncio.sleep(1800)
        # What a status says something about began before the end, whatever the clocks say.
        assert names() == {own.metadata.name, "late"}

    in_world(test, TOOLS, QUICK)
