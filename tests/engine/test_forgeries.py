"""What somebody writes where only the scheduler writes: names that it would use, and statuses that it has written."""

from __future__ import annotations

import asyncio

import pytest

from agentrun.contract.approval import AgentApproval, AgentApprovalSpec, AgentApprovalStatus, Decision, Verdict
from agentrun.contract.names import RUN_UID_LABEL, approval_object_name
from agentrun.contract.object_meta import API_VERSION, ObjectMeta, OwnerReference
from agentrun.contract.run import RunPhase
from support.world import World, in_world

TOOLS = "asks: {sideEffect: None, approval: {required: Always}}\nact: {sideEffect: None, timeout: 20s}"
SCRIPT = "tools: {asks: [{result: 1}], act: [{result: 1, delay: 10s}]}"


def expected_name(world: World, node: str) -> str:
    uid = world.cluster.get_run("default", "run").metadata.uid
    (found,) = (one for one in world.cluster.nodes_of("default", uid) if one.spec.path == node)
    return approval_object_name(found.metadata.name, "call-1")


@pytest.mark.parametrize("disguised", [False, True], ids=["of nobody", "with the run's label and owner"])
def test_an_approval_that_was_there_before_the_question_answers_nothing(disguised: bool) -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler()
        world.apply_run("nodes: [{name: w, tool: act}, {name: q, tool: asks, dependsOn: [w]}]")
        await world.until(lambda: len(world.nodes()) == 2, 10)
        uid = world.cluster.get_run("default", "run").metadata.uid
        owner = OwnerReference(api_version=API_VERSION, kind="AgentRun", name="run", uid=uid)
        early = world.cluster.apply(
            AgentApproval(
                metadata=ObjectMeta(
                    name=expected_name(world, "q"),
                    namespace="default",
                    labels={RUN_UID_LABEL: uid} if disguised else {},
                    owner_references=(owner,) if disguised else (),
                ),
                spec=AgentApprovalSpec(decision=Decision(verdict=Verdict.APPROVE, decided_by="Mallory")),
            )
        )
        await world.until(lambda: world.nodes()["q"].phase == "WaitingApproval", 60)
        await world.until(lambda: world.open_question("q").metadata.uid != early.metadata.uid, 60)
        await asyncio.sleep(60)
        assert world.nodes()["q"].phase == "WaitingApproval"
        assert not world.counts.calls["asks"]
        world.decide("q", Decision(verdict=Verdict.APPROVE, decided_by="Ada"))
        assert (await world.ended(within=60)).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, SCRIPT)


def test_a_question_that_is_written_into_another_ones_approval_is_not_answered_by_it() -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler()
        world.apply_run("nodes: [{name: p, tool: asks}, {name: q, tool: asks, params: {n: 2}}]")
        await world.until(lambda: bool(world.open_question("p") and world.open_question("q")), 60)
        harmless, other = world.open_question("p"), world.open_question("q")
        assert harmless.status is not None
        assert other.status is not None
        forged = AgentApprovalStatus.model_validate(
            {**harmless.status.to_wire(), "request": other.status.to_wire()["request"]}
        )
        await world.cluster.replace_status(harmless.model_copy(update={"status": forged}))
        world.cluster.patch_decision(
            "default", harmless.metadata.name, Decision(verdict=Verdict.APPROVE, decided_by="Ada")
        )
        await asyncio.sleep(60)
        assert world.nodes()["q"].phase == "WaitingApproval"
        assert not world.counts.calls["asks"]

    in_world(test, TOOLS, SCRIPT)


def test_a_run_status_that_somebody_has_overwritten_is_put_right_and_decides_nothing() -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler()
        world.apply_run("nodes: [{name: a, tool: act}, {name: b, tool: act, params: {n: 2}, dependsOn: [a]}]")
        await world.until(lambda: world.nodes()["a"].phase == "Running", 30)
        await asyncio.sleep(3)
        run = world.cluster.get_run("default", "run")
        forged = world.status().model_copy(
            update={"phase": RunPhase.SUCCEEDED, "reason": "AllNodesEnded", "counts": {}}
        )
        await world.cluster.replace_status(run.model_copy(update={"status": forged}))
        await world.until(lambda: world.status().phase is RunPhase.RUNNING, 3)
        assert world.status().counts
        assert (await world.ended(within=60)).phase is RunPhase.SUCCEEDED
        assert world.counts.calls["act"] == 2

    in_world(test, TOOLS, SCRIPT)
