"""What the cluster refuses for now (a full quota, a missing right) is a wait that is shown, and holds nothing else up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from agentrun.contract.approval import AgentApproval, Decision, Verdict
from agentrun.contract.node import AgentNode
from agentrun.contract.run import AgentRun, AgentRunSpec, RunPhase, RunWait
from agentrun.engine.cluster_port import ForbiddenError, HeldBackError, QuotaExceededError
from support.world import World, in_world

TOOLS = "act: {sideEffect: None}\nasks: {sideEffect: None, approval: {required: Always}}"
SCRIPT = "tools: {act: [{result: 1}], asks: [{result: 1}]}"
THREE = "nodes: [{name: a, tool: act}, {name: b, tool: act, params: {n: 2}}, {name: c, tool: act, params: {n: 3}}]"


def no_room() -> HeldBackError:
    return QuotaExceededError("small", "exceeded quota: small")


def no_right() -> HeldBackError:
    return ForbiddenError("create agentnodes", "may not")


class Door:
    """Refuses creations of the kinds it is shut for, from a number of nodes on."""

    def __init__(self, world: World, refuse: Callable[[], HeldBackError] = no_room) -> None:
        self._refuse = refuse
        self.shut = True
        self.nodes_admitted = 0
        self.approvals_admitted = 0
        self._admit_node = world.cluster.create_node
        self._admit_approval = world.cluster.create_approval
        world.cluster.create_node = self.create_node  # type: ignore[method-assign]
        world.cluster.create_approval = self.create_approval  # type: ignore[method-assign]

    async def create_node(self, node: AgentNode) -> AgentNode:
        if self.shut and self.nodes_admitted <= 0:
            raise self._refuse()
        self.nodes_admitted -= 1
        return await self._admit_node(node)

    async def create_approval(self, approval: AgentApproval) -> AgentApproval:
        if self.shut and self.approvals_admitted <= 0:
            raise self._refuse()
        return await self._admit_approval(approval)


def waits(world: World) -> dict[str, RunWait]:
    return {wait.waiting_for: wait for wait in world.status().waits}


def cancel(world: World) -> AgentRun:
    def change(spec: AgentRunSpec) -> AgentRunSpec:
        return spec.model_copy(update={"cancel": True})

    return world.cluster.patch_run_spec("default", "run", change)


def test_a_run_whose_nodes_are_over_quota_says_so_and_goes_on_by_itself() -> None:
    async def test(world: World) -> None:
        door = Door(world)
        door.nodes_admitted = 2
        world.start_worker()
        world.start_scheduler()
        world.apply_run(THREE)
        began = world.clock.now()
        await world.until(lambda: "Quota(small)" in waits(world), 10)
        shown = waits(world)["Quota(small)"]
        assert (shown.nodes, shown.message) == (3, "exceeded quota: small")
        assert shown.since - began < timedelta(seconds=5)
        door.shut = False
        ended = await world.ended(within=30)
        assert ended.phase is RunPhase.SUCCEEDED
        assert ended.waits == ()
        assert {node.attempt for node in world.nodes().values()} == {1}
        assert world.counts.calls["act"] == 3

    in_world(test, TOOLS, SCRIPT)


def test_since_when_it_waits_outlives_the_scheduler() -> None:
    async def test(world: World) -> None:
        Door(world)
        world.start_scheduler()
        world.apply_run(THREE)
        await world.until(lambda: "Quota(small)" in waits(world), 10)
        since = waits(world)["Quota(small)"].since
        await world.kill_scheduler()
        await asyncio.sleep(30)
        world.start_scheduler()
        world.cluster.patch_run_spec(
            "default", "run", lambda spec: spec.model_copy(update={"timeout": timedelta(hours=2)})
        )
        await world.until(lambda: world.status().observed_generation == 2, 10)
        assert waits(world)["Quota(small)"].since == since

    in_world(test, TOOLS, SCRIPT)


@pytest.mark.parametrize("admitted", [0, 2], ids=["no node", "some nodes"])
@pytest.mark.parametrize("refuse", [no_room, no_right], ids=["quota", "right"])
@pytest.mark.parametrize("ending", ["cancel", "deadline", "deletion"])
def test_a_run_that_is_held_back_still_ends(admitted: int, refuse: Callable[[], HeldBackError], ending: str) -> None:
    async def test(world: World) -> None:
        door = Door(world, refuse)
        door.nodes_admitted = admitted
        world.start_worker()
        world.start_scheduler()
        world.apply_run(f"{{timeout: 1m, {THREE}}}")
        await world.until(lambda: bool(waits(world)), 10)
        uid = world.cluster.get_run("default", "run").metadata.uid
        match ending:
            case "cancel":
                cancel(world)
                ended = await world.ended(within=30)
                assert (ended.phase, ended.reason) == (RunPhase.CANCELLED, "Cancelled")
            case "deadline":
                ended = await world.ended(within=90)
                assert (ended.phase, ended.reason) == (RunPhase.FAILED, "RunDeadlineExceeded")
            case _:
                world.cluster.delete_run("default", "run")
                await world.until(lambda: world.scheduler is not None and not world.scheduler.survey().runs, 30)
                assert not await world.ledger.find_open_runs("default")
                return
        assert ended.waits == ()
        assert {node.phase for node in world.nodes().values()} <= {"Cancelled"}
        assert len(world.nodes()) == admitted
        assert not world.counts.calls["act"]
        assert uid not in {run.uid for run in await world.ledger.find_open_runs("default") if not run.ended}

    in_world(test, TOOLS, SCRIPT)


def test_a_fan_out_over_quota_waits_alone_and_makes_each_instance_once() -> None:
    async def test(world: World) -> None:
        door = Door(world)
        door.nodes_admitted = 5
        world.start_worker()
        world.start_scheduler()
        world.apply_run(
            """
            inputs: {many: [1, 2, 3, 4, 5]}
            nodes:
            - name: each
              type: FanOut
              fanOut: {items: "${inputs.many}", node: {tool: act, params: {n: "${item}"}}}
            - {name: a, tool: act, params: {n: 10}}
            - {name: b, tool: act, params: {n: 11}, dependsOn: [a]}
            """
        )
        await world.until(lambda: world.nodes()["b"].phase == "Succeeded", 30)
        await world.until(lambda: "Quota(small)" in waits(world), 10)
        assert waits(world)["Quota(small)"].nodes == 1
        assert world.nodes()["each"].waiting_for == "Quota(small)"
        door.shut = False
        ended = await world.ended(within=60)
        assert ended.phase is RunPhase.SUCCEEDED
        assert world.counts.calls["act"] == 7

    in_world(test, TOOLS, SCRIPT)


def test_a_fan_out_does_not_wait_for_room_for_ever() -> None:
    async def test(world: World) -> None:
        door = Door(world)
        door.nodes_admitted = 1
        world.start_scheduler()
        world.apply_run(
            """
            waits: {queue: 1m}
            inputs: {many: [1, 2]}
            nodes:
            - {name: each, type: FanOut, fanOut: {items: "${inputs.many}", node: {tool: act, params: {n: "${item}"}}}}
            """
        )
        ended = await world.ended(within=120)
        assert ended.phase is RunPhase.FAILED
        assert world.nodes()["each"].failure is not None
        assert "waited in line longer than" in world.nodes()["each"].failure.message  # type: ignore[union-attr]
        assert "Quota(small)" in world.nodes()["each"].failure.message  # type: ignore[union-attr]

    in_world(test, TOOLS, SCRIPT)


def test_a_question_over_quota_is_shown_and_asked_when_there_is_room() -> None:
    async def test(world: World) -> None:
        door = Door(world)
        door.nodes_admitted = 2
        world.start_worker()
        world.start_scheduler()
        world.apply_run("nodes: [{name: q, tool: asks}, {name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase == "Succeeded", 30)
        await world.until(lambda: "Quota(small)" in waits(world), 10)
        assert waits(world)["Quota(small)"].nodes == 1
        door.shut = False
        await world.until(lambda: world.open_question("q") is not None, 30)
        await world.until(lambda: not world.status().waits, 30)
        world.decide("q", Decision(verdict=Verdict.APPROVE, decided_by="Ada"))
        assert (await world.ended(within=60)).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, SCRIPT)


def test_a_deleted_node_that_has_no_room_to_come_back_holds_nothing_up() -> None:
    async def test(world: World) -> None:
        door = Door(world)
        door.nodes_admitted = 2
        world.start_worker()
        world.start_scheduler()
        world.apply_run("nodes: [{name: a, tool: act}, {name: b, tool: act, params: {n: 2}, dependsOn: [a]}]")
        await world.until(lambda: len(world.nodes()) == 2, 30)
        uid = world.cluster.get_run("default", "run").metadata.uid
        node = next(node for node in world.cluster.nodes_of("default", uid) if node.spec.path == "a")
        await world.cluster.delete(node)
        ended = await world.ended(within=60)
        assert ended.phase is RunPhase.SUCCEEDED
        door.shut = False
        await world.until(lambda: world.nodes()["a"].phase == "Succeeded", 30)

    in_world(test, TOOLS, "tools: {act: [{result: 1, delay: 5s}]}")
