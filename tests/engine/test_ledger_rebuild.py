"""A ledger that loses everything in mid-run: rebuilt from the resources, and what may happen once happens once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.failures import Effect, Reason
from agentrun.contract.run import RunPhase
from agentrun.contract.tool import AgentTool
from agentrun.engine.cluster_port import ClusterChange
from support.manifest_texts import build_run
from support.world import World, in_world

TOOLS = """
act: {sideEffect: Once, cost: {perCall: "0.01"}}
again: {sideEffect: Idempotent}
"""
SLOW = "tools: {act: [{result: 1, delay: 5s}], again: [{result: 1, delay: 5s}]}"


async def begin(world: World, text: str) -> None:
    world.start_worker()
    world.start_scheduler()
    world.apply_run(text)


def test_what_a_worker_brings_late_is_evidence_enough() -> None:
    async def test(world: World) -> None:
        await begin(world, "nodes: [{name: a, tool: act}, {name: b, tool: again}]")
        await world.until(lambda: {str(node.phase) for node in world.nodes().values()} == {"Running"}, 60)
        world.ledger.lose_everything()
        assert (await world.ended()).phase is RunPhase.SUCCEEDED
        assert world.nodes()["a"].reason == Reason.RECOVERED_COMPLETED
        assert world.counts.effects["act"] == 1
        assert await bills(world, "a") == (10_000, 10_000)

    in_world(test, TOOLS, SLOW)


async def bills(world: World, node: str) -> tuple[int, int]:
    """Return what a node has cost by its own word, and by the ledger's book."""
    run = world.cluster.get_run("default", "run").metadata.uid
    (found,) = [one for one in world.cluster.nodes_of("default", run) if one.spec.path == node]
    counters = await world.ledger.find_counters("default", run)
    return world.nodes()[node].cost, counters.nodes[found.metadata.uid].micros


def test_a_once_call_of_a_worker_that_died_as_well_is_asked_about_and_the_rest_goes_on() -> None:
    async def test(world: World) -> None:
        await begin(world, "nodes: [{name: a, tool: act}, {name: b, tool: again}]")
        await world.until(lambda: {str(node.phase) for node in world.nodes().values()} == {"Running"}, 60)
        world.ledger.lose_everything()
        world.crash_worker("w")
        await world.until(lambda: world.nodes()["a"].phase == "Quarantined", 600)
        await world.until(lambda: world.nodes()["b"].phase == "Succeeded", 600)
        assert await bills(world, "a") == (10_000, 10_000)
        world.ledger.lose_everything()
        await world.until(lambda: world.ledger.open_for_claims, 60)
        assert await bills(world, "a") == (10_000, 10_000)
        decision = Decision(verdict=Verdict.RESOLVE, effect=Effect.EXECUTED, result=5, decided_by="Ada")
        world.decide("a", decision)
        assert (await world.ended()).phase is RunPhase.SUCCEEDED
        assert world.counts.effects["act"] == 0

    in_world(test, TOOLS, SLOW)


@pytest.mark.parametrize("step", ["look", "take_epoch", "open"])
def test_a_ledger_that_is_emptied_while_the_lead_is_taken_is_rebuilt(step: str) -> None:
    async def test(world: World) -> None:
        await begin(world, "nodes: [{name: a, tool: act}, {name: b, tool: again}]")
        await world.until(lambda: {str(node.phase) for node in world.nodes().values()} == {"Running"}, 60)
        await world.kill_scheduler()
        world.crash_worker("w")
        found = getattr(world.ledger, step)

        async def answer_and_empty(*arguments: object) -> object:
            setattr(world.ledger, step, found)
            answer = await found(*arguments)
            world.ledger.lose_everything()
            return answer

        setattr(world.ledger, step, answer_and_empty)
        world.start_scheduler()
        await world.until(lambda: world.nodes()["a"].phase == "Quarantined", 600)
        await world.until(lambda: world.nodes()["b"].phase == "Succeeded", 600)
        assert world.counts.effects["act"] == 0

    in_world(test, TOOLS, SLOW)


@pytest.mark.parametrize("alive", [True, False], ids=["while a scheduler leads", "while nobody leads"])
def test_results_money_and_outcomes_come_back(alive: bool) -> None:
    async def test(world: World) -> None:
        await begin(world, "session: s\nnodes: [{name: a, tool: act}]")
        first = await world.ended()
        if not alive:
            await world.kill_scheduler()
        world.ledger.lose_everything()
        if not alive:
            world.start_scheduler()
        await asyncio.sleep(5)
        assert (await world.ledger.look()).is_sound
        uid = world.cluster.get_run("default", "run").metadata.uid
        counters = await world.ledger.find_counters("default", uid)
        assert counters.settled.micros == 10_000
        assert first.spent is not None
        assert first.spent.cost == 10_000
        # The same call in the same session, by another run: replayed.
        world.apply_run("session: s\nnodes: [{name: c, tool: act}]", "other")
        assert (await world.ended("other")).phase is RunPhase.SUCCEEDED
        # The same run again: not executed.
        world.cluster.delete_run("default", "run")
        world.apply_run("session: s\nnodes: [{name: a, tool: act}]")
        again = await world.ended()
        assert (again.phase, again.reason) == (RunPhase.SUCCEEDED, Reason.ALREADY_FINISHED)
        assert world.counts.effects["act"] == 1

    in_world(test, TOOLS, "tools: {act: [{result: 1}]}")


def test_an_open_question_survives_with_the_record_it_is_about() -> None:
    async def test(world: World) -> None:
        await begin(world, "nodes: [{name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase == "Quarantined", 600)
        world.ledger.lose_everything()
        await asyncio.sleep(5)
        world.apply_run("session: run\nnodes: [{name: a, tool: act}]", "other")
        world.decide("a", Decision(verdict=Verdict.RELEASE, effect=Effect.NOT_EXECUTED, decided_by="Ada"))
        assert (await world.ended()).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, "tools: {act: [{failure: {effect: Unknown}}, {result: 1}]}")


def test_a_session_stays_held_and_a_budget_stays_spent() -> None:
    async def test(world: World) -> None:
        text = """
        session: s
        budget: {limit: "0.02"}
        nodes:
        - {name: a, tool: act, params: {n: 1}}
        - {name: b, tool: again, dependsOn: [a]}
        - {name: c, tool: act, params: {n: 2}, dependsOn: [b]}
        - {name: d, tool: act, params: {n: 3}, dependsOn: [c]}
        """
        await begin(world, text)
        await world.until(lambda: world.nodes()["b"].phase == "Running", 60)
        world.ledger.lose_everything()
        await world.until(lambda: world.ledger.open_for_claims, 60)
        world.apply_run("session: s\nnodes: [{name: x, tool: act}]", "second")
        assert (await world.ended("second")).reason == Reason.SESSION_BUSY
        await world.until(lambda: world.nodes()["d"].reason == Reason.BUDGET_EXHAUSTED or world.runs_have_ended(), 3600)
        assert world.counts.effects["act"] == 2

    in_world(test, TOOLS, SLOW)


def test_a_ledger_that_is_lost_while_fifty_runs_are_at_work_has_no_effect_twice() -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler()
        for number in range(50):
            nodes = f"- {{name: a, tool: act, params: {{n: {number}}}}}\n- {{name: b, tool: again, dependsOn: [a]}}"
            world.cluster.apply(build_run(f"nodes:\n{nodes}", f"r{number}"))
        await asyncio.sleep(12)
        world.ledger.lose_everything()
        world.crash_worker("w")

        def settled() -> bool:
            statuses = [world.nodes(f"r{number}")["a"].phase for number in range(50)]
            return all(phase in ("Succeeded", "Quarantined") for phase in statuses)

        await world.until(settled, 3600)
        assert world.counts.effects["act"] <= 50
        quarantined = [number for number in range(50) if world.nodes(f"r{number}")["a"].phase == "Quarantined"]
        # Eight were being made, and eight orders stood ready: nobody can tell them apart any more.
        assert 1 <= len(quarantined) <= 16
        for number in set(range(50)) - set(quarantined):
            assert (await world.ended(f"r{number}")).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, SLOW)


ASKED = "waits: {inbox: 1h}\nnodes: [{name: ask, type: Approval, approval: {message: go?}}, {name: a, tool: act, dependsOn: [ask]}]"


async def lose_the_pins(world: World) -> None:
    """Have a run that waits for a human, whose definitions the ledger has lost and no watch tells of."""
    await begin(world, ASKED)
    await world.until(lambda: bool(world.open_question("ask")))
    await world.kill_scheduler()
    world.ledger.lose_everything()
    watch = world.cluster.watch

    async def watch_no_tools() -> AsyncIterator[ClusterChange]:
        async for change in watch():
            if not isinstance(change.object, AgentTool):
                yield change

    world.cluster.watch = watch_no_tools  # type: ignore[method-assign]


def test_a_run_whose_definitions_are_lost_reads_them_before_any_watch_tells_of_them() -> None:
    async def test(world: World) -> None:
        await lose_the_pins(world)
        world.start_scheduler()
        world.decide("ask", Decision(verdict=Verdict.APPROVE, decided_by="Ada"))
        assert (await world.ended(within=600)).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, SLOW)


def test_a_call_whose_tool_is_gone_with_its_definition_is_a_humans_matter() -> None:
    async def test(world: World) -> None:
        await lose_the_pins(world)
        for tool in await world.cluster.list_tools():
            await world.cluster.delete(tool)
        world.start_scheduler()
        world.decide("ask", Decision(verdict=Verdict.APPROVE, decided_by="Ada"))
        await world.until(lambda: world.nodes()["a"].phase == "Quarantined", 600)
        assert world.nodes()["a"].reason == Reason.TOOL_NOT_FOUND
        assert world.scheduler is not None
        assert world.scheduler.failed_turns_total == 0

    in_world(test, TOOLS, SLOW)
