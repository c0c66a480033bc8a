"""A namespace's bounds in the engine: what asks for more is refused, and what is raised beyond them later counts not."""

from __future__ import annotations

import pytest

from agentrun.contract.run import Budget, Priority, RunPhase
from agentrun.decisions.namespace_policy import NamespacePolicies, NamespacePolicy
from agentrun.engine.settings import SchedulerSettings
from support.world import World, in_world

TOOLS = "t: {sideEffect: None, cost: {perCall: '2'}, timeout: 30s}"
SCRIPT = "tools: {t: [{result: 1, delay: 5s}, {result: 1, delay: 5s}, {result: 1, delay: 5s}]}"
BOUNDED = SchedulerSettings(policies=NamespacePolicies({"default": NamespacePolicy(Priority.P1, 5_000_000)}))
ONE = "nodes: [{name: a, tool: t}]\n"
CHAIN = "nodes: [{name: a, tool: t}, {name: b, tool: t, dependsOn: [a]}, {name: c, tool: t, dependsOn: [b]}]\n"


@pytest.mark.parametrize(
    "asks, want",
    [
        pytest.param("budget: {limit: '5'}\npriority: P1", RunPhase.SUCCEEDED, id="as much as it may"),
        pytest.param("budget: {limit: '5'}\npriority: P0", RunPhase.REJECTED, id="too urgent"),
        pytest.param("budget: {limit: '6'}", RunPhase.REJECTED, id="too much money"),
        pytest.param("priority: P1", RunPhase.REJECTED, id="money without a bound"),
    ],
)
def test_a_run_that_asks_for_more_than_its_namespace_may_is_refused(asks: str, want: RunPhase) -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler(settings=BOUNDED)
        world.apply_run(ONE + asks)
        ended = await world.ended(within=120)
        assert ended.phase is want
        assert (ended.reason == "BeyondPolicy") is (want is RunPhase.REJECTED)
        assert world.counts.calls["t"] == (want is RunPhase.SUCCEEDED)

    in_world(test, TOOLS, SCRIPT)


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
def test_a_budget_that_is_raised_beyond_the_bound_later_buys_nothing(restarted: bool) -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler(settings=BOUNDED)
        world.apply_run(CHAIN + "budget: {limit: '4'}")
        await world.until(lambda: world.nodes().get("a") is not None and world.nodes()["a"].phase == "Running", 60)
        raised = {"budget": Budget(limit="6"), "priority": Priority.P0}
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update=raised))
        if restarted:
            await world.kill_scheduler()
            world.start_scheduler(settings=BOUNDED)
        ended = await world.ended(within=3600)
        assert ended.phase is RunPhase.FAILED
        assert world.counts.calls["t"] == 2
        assert {node.priority for node in world.nodes().values()} == {Priority.P2}
        assert [c.type for c in ended.conditions if c.status == "True"].count("SpecChangeIgnored") == 1

    in_world(test, TOOLS, SCRIPT)


def test_a_raised_budget_ends_at_the_bound_where_nobody_knows_any_more_what_it_was() -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler(settings=BOUNDED)
        world.apply_run(CHAIN + "budget: {limit: '4'}")
        await world.until(lambda: world.nodes().get("a") is not None and world.nodes()["a"].phase == "Succeeded", 60)
        raised = {"budget": Budget(limit="100")}
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update=raised))
        await world.kill_scheduler()
        world.ledger.lose_everything()
        world.start_scheduler(settings=BOUNDED)
        ended = await world.ended(within=3600)
        assert ended.phase is RunPhase.FAILED
        assert ended.spent is not None
        assert ended.spent.cost <= 5_000_000

    in_world(test, TOOLS, SCRIPT)


def test_a_budget_that_is_raised_up_to_the_bound_counts() -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler(
            settings=SchedulerSettings(policies=NamespacePolicies({"*": NamespacePolicy(budget_micros=6_000_000)}))
        )
        world.apply_run(CHAIN + "budget: {limit: '4'}")
        await world.until(lambda: world.nodes().get("a") is not None and world.nodes()["a"].phase == "Running", 60)
        raised = {"budget": Budget(limit="6")}
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update=raised))
        assert (await world.ended(within=3600)).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, SCRIPT)
