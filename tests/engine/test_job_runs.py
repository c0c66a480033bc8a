"""Tools of mode Job in whole runs on virtual time: the pod comes first, the order goes to it alone, nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentrun.decisions.pools.pod_faults import PoolFault
from agentrun.engine.settings import SchedulerSettings
from support.job_world import JobWorld
from support.world import Mortality, World, in_world

JOBS = SchedulerSettings(jobs=True)
ONE = "nodes: [{name: a, tool: work}]"
ONCE = "work: {timeout: 60s, execution: {mode: Job}}"
READS = "work: {sideEffect: None, timeout: 60s, execution: {mode: Job}}"
LOOKED_UP = """
work:
  timeout: 20s
  execution: {mode: Job}
  recovery:
    lookup: {tool: look}
    outcome: {completed: {when: {path: result.state, op: eq, value: done}, result: result.id}}
look: {sideEffect: None, execution: {mode: Job}}
"""
IMAGE = PoolFault("Image", "no such image")


def with_jobs(
    test: Callable[[World, JobWorld], Coroutine[Any, Any, None]],
    tools: str = ONCE,
    script: str = "tools: {work: [{result: 1}]}",
    settings: SchedulerSettings = JOBS,
) -> None:
    async def live(world: World) -> None:
        jobs = JobWorld(world)
        world.start_scheduler(settings=settings)
        jobs.start()
        try:
            await test(world, jobs)
        finally:
            jobs.stop()
            for job in jobs.at_work():
                jobs.kill(job)

    in_world(live, tools, script)


def patch(world: World, **changes: bool) -> None:
    world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update=changes))


def calls(world: World, tool: str = "work") -> int:
    return world.counts.calls[tool]


def test_a_call_is_made_by_a_job_of_its_own_and_no_worker_of_its_pool_takes_it() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.start_worker("pooled")
        world.apply_run(ONE)
        await world.until(lambda: world.nodes()["a"].waiting_for == "Job(work)")
        assert world.nodes()["a"].phase == "Ready"
        assert (await world.ended()).phase == "Succeeded"
        assert world.nodes()["a"].attempt == 1
        assert world.nodes()["a"].worker == f"{jobs.made[0]}-pod"
        assert (len(jobs.made), calls(world)) == (1, 1)
        await asyncio.sleep(60)
        (job,) = jobs.jobs.values()
        assert job.sight.pods[0].phase == "Succeeded"
        await asyncio.sleep(2 * 3600)
        assert not jobs.jobs

    with_jobs(test)


def test_each_attempt_has_a_job_and_no_two_pods_of_a_node_are_at_work() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.apply_run("nodes: [{name: a, tool: work, retry: {limit: 2}}]")
        assert (await world.ended()).phase == "Failed"
        assert world.nodes()["a"].attempt == 3
        assert (len(set(jobs.made)), calls(world), jobs.most_at_once) == (3, 3, 1)

    with_jobs(test, READS, "tools: {work: [{failure: {}}]}")


def test_without_a_keeper_of_jobs_the_pool_makes_the_call() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.start_worker("pooled")
        world.apply_run(ONE)
        assert (await world.ended()).phase == "Succeeded"
        assert not jobs.made

    with_jobs(test, settings=SchedulerSettings())


def test_a_pod_that_cannot_start_is_a_wait_with_its_cause_and_leaves_no_trace_in_the_ledger() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        jobs.broken["work"] = IMAGE
        world.apply_run("{budget: {limit: '1'}, nodes: [{name: a, tool: work}], waits: {queue: 5m}}")
        await world.until(lambda: "no such image" in world.nodes()["a"].message)
        (wait,) = world.status().waits
        assert (wait.waiting_for, wait.nodes) == ("Job(work)", 1)
        assert "ImagePullBackOff: no such image" in wait.message
        space = world.ledger.space("default")
        assert not space.records
        assert all(run.held["micros"] == 0 for run in space.runs.values())
        assert (await world.ended()).phase == "Failed"
        node = world.nodes()["a"]
        assert (node.phase, node.attempt, node.effect) == ("Dead", 0, "NotExecuted")
        assert node.failure is not None
        assert node.failure.reason == "QueueWaitExceeded"
        assert "for Job(work): pod" in node.failure.message
        assert "no such image" in node.failure.message
        assert not space.records
        await world.until(lambda: not jobs.at_work(), within=60)

    with_jobs(test)


def test_a_wait_that_ends_in_time_uses_no_attempt() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        jobs.refused["work"] = PoolFault("Quota", "exceeded quota: narrow")
        world.apply_run(ONE)
        await world.until(lambda: "exceeded quota" in world.nodes()["a"].message)
        del jobs.refused["work"]
        assert (await world.ended()).phase == "Succeeded"
        assert (world.nodes()["a"].attempt, world.nodes()["a"].message, calls(world)) == (1, "", 1)

    with_jobs(test)


def test_pods_that_do_not_start_keep_no_other_tool_waiting() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        jobs.broken["work"] = IMAGE
        world.start_worker("pooled")
        waiting = ", ".join(f"{{name: n{at}, tool: work, params: {{n: {at}}}}}" for at in range(8))
        world.apply_run(f"nodes: [{waiting}]", "stuck")
        await world.until(lambda: len(jobs.made) == 2)
        await asyncio.sleep(60)
        assert len(jobs.made) == 2
        (wait,) = world.status("stuck").waits
        assert (wait.waiting_for, wait.nodes) == ("Job(work)", 8)
        world.apply_run("nodes: [{name: a, tool: read}]", "free")
        assert (await world.ended("free", within=30)).phase == "Succeeded"
        del jobs.broken["work"]
        assert (await world.ended("stuck")).phase == "Succeeded"
        assert (len(jobs.made), calls(world)) == (8, 8)

    with_jobs(
        test,
        ONCE + "\nread: {sideEffect: None}",
        "tools: {work: [{result: 1}], read: [{result: 1}]}",
        SchedulerSettings(jobs=True, jobs_starting=2, global_limit=4),
    )


def test_a_run_that_is_cancelled_while_its_pod_starts_calls_nothing_and_leaves_no_pod() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.apply_run(ONE)
        await world.until(lambda: len(jobs.made) == 1)
        patch(world, cancel=True)
        assert (await world.ended()).phase == "Cancelled"
        await world.until(lambda: not jobs.at_work(), within=60)
        assert calls(world) == 0

    with_jobs(test)


def test_a_call_under_way_is_committed_although_its_run_was_cancelled_and_its_job_deleted() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.apply_run(ONE)
        await world.until(lambda: world.nodes()["a"].phase == "Running")
        patch(world, cancel=True)
        jobs.delete(jobs.at_work()[0])
        assert (await world.ended()).phase == "Cancelled"
        assert world.nodes()["a"].effect == "Executed"
        assert (calls(world), len(jobs.made)) == (1, 1)

    with_jobs(test, script="tools: {work: [{delay: 4s, result: 1}]}")


def test_a_job_that_is_deleted_before_its_pod_started_is_made_again() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.apply_run(ONE)
        await world.until(lambda: len(jobs.made) == 1)
        jobs.delete(jobs.at_work()[0])
        assert (await world.ended()).phase == "Succeeded"
        assert (jobs.made[0], len(jobs.made), calls(world)) == (jobs.made[1], 2, 1)

    with_jobs(test)


def test_a_pod_that_is_evicted_before_it_took_its_order_is_followed_by_another() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        jobs.broken["work"] = IMAGE
        world.apply_run(ONE)
        await world.until(lambda: "no such image" in world.nodes()["a"].message)
        jobs.broken.clear()
        jobs.kill(jobs.at_work()[0])
        await world.until(lambda: "the next is started at" in world.nodes()["a"].message)
        assert (await world.ended()).phase == "Succeeded"
        assert (len(jobs.made), calls(world), world.nodes()["a"].attempt) == (2, 1, 1)

    with_jobs(test)


def test_a_pod_that_dies_in_mid_call_is_asked_about_by_a_job_and_never_called_again() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.apply_run(ONE)
        await world.until(lambda: world.nodes()["a"].phase == "Running")
        jobs.kill(jobs.at_work()[0])
        await world.until(lambda: world.nodes()["a"].phase == "TimedOut")
        assert f"deadline: pod {jobs.made[0]}-pod: its container ended with exit code" in world.nodes()["a"].message
        assert (await world.ended()).phase == "Succeeded"
        node = world.nodes()["a"]
        assert (node.attempt, node.result, calls(world), calls(world, "look")) == (1, 7, 1, 1)
        assert len(set(jobs.made)) == 2

    with_jobs(test, LOOKED_UP, "tools: {work: [{hang: true}], look: [{result: {state: done, id: 7}}]}")


def test_a_pod_that_dies_in_mid_call_of_a_harmless_tool_is_followed_by_another() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.apply_run("nodes: [{name: a, tool: work, retry: {limit: 2}}]")
        await world.until(lambda: world.nodes()["a"].phase == "Running")
        jobs.kill(jobs.at_work()[0])
        assert (await world.ended()).phase == "Succeeded"
        assert (world.nodes()["a"].attempt, calls(world), len(set(jobs.made))) == (2, 2, 2)

    with_jobs(test, READS, "tools: {work: [{delay: 10s, result: 1}]}")


def test_an_equal_call_that_another_makes_is_waited_for_without_pods() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        world.apply_run("{session: s, nodes: [{name: a, tool: work}, {name: b, tool: work}]}")
        assert (await world.ended()).phase == "Succeeded"
        assert calls(world) == 1
        # One Job to make the call, one to be told of it at the gate, one to be given its result.
        assert len(jobs.made) <= 3

    with_jobs(
        test,
        "work: {timeout: 20m, execution: {mode: Job}}",
        "tools: {work: [{delay: 10m, result: 1}]}",
    )


def test_a_suspended_run_holds_no_pods() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        jobs.broken["work"] = IMAGE
        world.apply_run(ONE)
        await world.until(lambda: len(jobs.at_work()) == 1)
        patch(world, suspend=True)
        await world.until(lambda: not jobs.at_work(), within=60)
        jobs.broken.clear()
        patch(world, suspend=False)
        assert (await world.ended()).phase == "Succeeded"
        assert calls(world) == 1

    with_jobs(test)


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
def test_a_scheduler_that_dies_at_any_step_leaves_nothing_that_the_next_does_twice(after: bool) -> None:
    async def count(world: World, jobs: JobWorld) -> None:
        world.apply_run(ONE)
        await world.ended()
        steps.append(world.mortality.steps)

    steps: list[int] = []
    with_jobs(count)

    for step in range(1, steps[0] + 1):

        async def test(world: World, jobs: JobWorld, step: int = step) -> None:
            await world.kill_scheduler()
            world.start_scheduler(Mortality(dies_at=step, after=after), JOBS)
            world.apply_run(ONE)
            if await world.wait_for_death():
                jobs.stop()
                await asyncio.sleep(1)
                world.start_scheduler(settings=JOBS)
                jobs.start()
            assert (await world.ended()).phase == "Succeeded", step
            assert calls(world) == 1, step
            assert world.nodes()["a"].attempt == 1, step
            assert len(set(jobs.made)) == len(jobs.made), (step, jobs.made)
            assert jobs.most_at_once <= 1, step

        with_jobs(test)


def test_two_leaders_have_one_job() -> None:
    async def test(world: World, jobs: JobWorld) -> None:
        jobs.starts_after = timedelta(seconds=20)
        world.apply_run(ONE)
        await world.until(lambda: len(jobs.made) == 1)
        await world.kill_scheduler()
        jobs.stop()
        world.start_scheduler(settings=JOBS)
        jobs.start()
        assert (await world.ended()).phase == "Succeeded"
        assert (len(jobs.made), calls(world)) == (1, 1)

    with_jobs(test)
