"""Runs that come back, follow each other, or lose their scheduler at any step."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from agentrun.contract.approval import AgentApproval, Decision, Verdict
from agentrun.contract.defaults import SLOT_LEASE
from agentrun.contract.node import AgentNode, Transition
from agentrun.contract.run import AgentRun, AgentRunSpec
from agentrun.engine.cluster_port import ClusterObject, ClusterUnavailableError
from agentrun.engine.services import EpochLostError
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.port import DispatchAnswer, RefusalKind
from support.manifest_texts import build_tools
from support.world import Mortality, World, in_world

ACT = "act: {timeout: 10s}"
ONE = "nodes: [{name: a, tool: act, params: {n: 1}}]"


def test_a_finished_run_that_is_created_again_executes_nothing_and_copies_the_outcome() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(ONE)
        first = await world.ended()
        world.cluster.delete_run("default", "run")
        await asyncio.sleep(5)
        world.apply_run(ONE)
        second = await world.ended()
        assert (second.phase, second.reason) == (first.phase, "AlreadyFinished")
        assert second.copy_of
        assert "spec.rerunToken" in second.message
        assert second.counts == {"Succeeded": 1}
        assert world.nodes() == {}
        assert world.counts.calls["act"] == 1

    in_world(test, ACT, "tools: {act: [{result: 1}]}")


def test_a_rerun_token_says_that_the_repetition_is_meant() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(ONE)
        await world.ended()
        world.cluster.delete_run("default", "run")
        world.apply_run(f"rerunToken: again\n{ONE}")
        assert (await world.ended()).phase == "Succeeded"
        assert world.counts.calls["act"] == 2

    in_world(test, ACT, "tools: {act: [{result: 1}]}")


def test_a_run_replaced_again_and_again_in_mid_run_has_no_effect_twice() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        text = "nodes: [{name: a, tool: act, params: {n: 1}}, {name: b, tool: act, dependsOn: [a], params: {n: 2}}]"
        for number in range(12):
            world.apply_run(text)
            await asyncio.sleep(0.7 * number)
            world.cluster.delete_run("default", "run")
        world.apply_run(text)
        assert (await world.ended()).phase == "Succeeded"
        assert world.counts.effects["act"] == 2

    in_world(test, ACT, "tools: {act: [{result: 1, delay: 3s}]}")


def test_a_retry_of_a_failed_run_adopts_what_was_finished_and_makes_nothing_twice() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        nodes = "nodes: [{name: a, tool: act, params: {n: 1}}, {name: b, tool: act, dependsOn: [a], params: {n: 2}}]"
        world.apply_run(nodes)
        assert (await world.ended()).phase == "Failed"
        world.apply_run(f"retryOf: run\n{nodes}", "second")
        assert (await world.ended("second")).phase == "Succeeded"
        assert world.nodes("second")["a"].reason == "Adopted"
        assert world.nodes("second")["a"].replay_of == "default/run/a"
        assert world.counts.effects["act"] == 2

    in_world(
        test,
        "act: {retry: {limit: 0}}",
        """
        tools:
          act:
          - {when: {n: 1}, answers: [{result: 1}]}
          - {when: {n: 2}, answers: [{failure: {class: Permanent}}, {result: 2}]}
        """,
    )


def test_a_retry_waits_for_a_run_that_has_not_ended() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(f"retryOf: run\n{ONE}", "second")
        await asyncio.sleep(60)
        assert (world.status("second").phase, world.status("second").reason) == ("Pending", "InvalidReference")
        world.apply_run(ONE)
        await world.ended()
        assert (await world.ended("second")).phase == "Succeeded"

    in_world(test, ACT, "tools: {act: [{result: 1}]}")


def test_a_dead_node_that_is_driven_again_after_the_end_makes_a_new_run() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(ONE)
        assert (await world.ended()).phase == "Failed"
        world.decide("a", Decision(verdict=Verdict.REDRIVE, decided_by="Ada"))
        await world.until(lambda: len(world.cluster.runs()) == 2)
        second = world.cluster.runs()[1]
        assert second.spec.retry_of == "run"
        assert (await world.ended(second.metadata.name)).phase == "Succeeded"
        assert world.status().phase == "Failed"

    in_world(test, "act: {retry: {limit: 0}}", "tools: {act: [{failure: {class: Permanent}}, {result: 1}]}")


def test_a_dead_fan_out_that_is_driven_again_is_judged_by_its_instances_as_they_are_now() -> None:
    spec = """
    onNodeFailure: Suspend
    nodes:
    - name: each
      type: FanOut
      fanOut:
        items: [1, 2]
        join: {rule: Any}
        nodes: [{name: a, tool: act, params: {n: "${item}"}}, {name: b, dependsOn: [a], tool: late, params: {n: "${item}"}}]
    """

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(spec)
        for times in (1, 2):
            await world.until(lambda: bool(world.open_question("each")))
            assert world.nodes()["each"].phase == "Dead"
            assert world.nodes()["each"].message == "Any of 2: 2 dead and tolerated"
            world.decide("each", Decision(verdict=Verdict.REDRIVE, decided_by="Ada"))
            await world.until(lambda times=times: world.nodes()["each"].questions > times)
        world.decide("each", Decision(verdict=Verdict.DISCARD, decided_by="Ada"))
        assert (await world.ended()).phase == "Failed"
        assert world.scheduler is not None
        assert world.scheduler.failed_turns_total == 0

    script = "tools: {act: [{result: 1}], late: [{failure: {class: Permanent}}]}"
    in_world(test, "{act: {}, late: {retry: {limit: 0}}}", script)


def test_what_was_said_while_the_scheduler_was_dead_does_not_revive_a_run_that_was_ending() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(
            "nodes: [{name: a, tool: act, params: {n: 1}}, {name: b, tool: slow}, {name: c, tool: act, dependsOn: [a, b]}]"
        )
        await world.until(lambda: world.nodes()["c"].phase == "Cancelled" and bool(world.open_question("a")))
        await world.kill_scheduler()
        world.decide("a", Decision(verdict=Verdict.REDRIVE, decided_by="Ada"))
        world.start_scheduler()
        assert (await world.ended()).phase == "Failed"
        assert {path: str(status.phase) for path, status in world.nodes().items()} == {
            "a": "Dead",
            "b": "Succeeded",
            "c": "Cancelled",
        }
        await world.until(lambda: len(world.cluster.runs()) == 2)
        assert world.cluster.runs()[1].spec.retry_of == "run"
        assert world.scheduler is not None
        assert world.scheduler.failed_turns_total == 0

    in_world(
        test,
        "{act: {retry: {limit: 0}}, slow: {sideEffect: None}}",
        "tools: {act: [{failure: {class: Permanent}, delay: 2s}, {result: 1}], slow: [{result: 1, delay: 20s}]}",
    )


def test_a_run_whose_time_is_over_waits_quietly_for_an_attempt_that_nobody_reports() -> None:
    async def test(world: World) -> None:
        looks, now = 0, world.clock.now

        def count() -> datetime:
            nonlocal looks
            looks += 1
            if looks > 20_000:
                raise AssertionError("the scheduler looks at the clock without end")
            return now()

        world.start_scheduler()
        world.start_worker()
        world.apply_run("timeout: 10s\nnodes: [{name: a, tool: slow, timeout: 1h}]")
        await world.until(lambda: world.nodes()["a"].phase == "Running")
        world.kill_worker()
        world.clock.now = count  # type: ignore[method-assign]
        assert (await world.ended()).reason == "RunDeadlineExceeded"
        assert looks < 20_000
        assert now() - world.status().started_at > timedelta(seconds=15)  # type: ignore[operator]

    in_world(test, "slow: {sideEffect: None}", "tools: {slow: [{hang: true}]}")


def test_a_second_run_of_a_busy_session_is_refused_and_the_holder_named() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(f"session: s\n{ONE}")
        await world.until(lambda: world.nodes()["a"].phase == "Running")
        world.apply_run(f"session: s\n{ONE}", "second")
        refused = await world.ended("second")
        assert (refused.phase, refused.reason) == ("Rejected", "SessionBusy")
        assert "run" in refused.message
        await world.ended()
        world.apply_run(f"session: s\n{ONE}", "third")
        assert (await world.ended("third")).phase == "Succeeded"
        assert world.counts.effects["act"] == 1, "an equal call of the session is replayed"

    in_world(test, ACT, "tools: {act: [{result: 1, delay: 5s}]}")


def test_a_session_stays_busy_while_a_deleted_runs_call_is_at_work() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(f"session: s\n{ONE}")
        await world.until(lambda: world.nodes()["a"].phase == "Running")
        world.cluster.delete_run("default", "run")
        world.apply_run(f"session: s\n{ONE}", "second")
        assert (await world.ended("second")).reason == "SessionBusy"

    in_world(test, ACT, "tools: {act: [{result: 1, delay: 8s}]}")


def test_a_tool_that_comes_later_lets_the_run_begin() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: late}]")
        await asyncio.sleep(30)
        assert (world.status().phase, world.status().reason) == ("Pending", "ToolNotFound")
        for tool in build_tools("late: {sideEffect: None}"):
            world.cluster.apply(tool)
        assert (await world.ended()).phase == "Succeeded"

    in_world(test, ACT, "tools: {late: [{result: 1}]}")


def test_an_illegal_edit_after_admission_changes_nothing_and_is_shown() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run("inputs: {x: 1}\n" + ONE)
        await world.until(lambda: world.nodes()["a"].phase == "Running")

        def edit(spec: AgentRunSpec) -> AgentRunSpec:
            return spec.model_copy(update={"inputs": {"x": 2}})

        world.cluster.patch_run_spec("default", "run", edit)
        ended = await world.ended()
        assert ended.phase == "Succeeded"
        assert [c.type for c in ended.conditions if c.status == "True"].count("SpecChangeIgnored") == 1

    in_world(test, ACT, "tools: {act: [{result: 1, delay: 5s}]}")


@pytest.mark.parametrize("restart", [False, True], ids=["in one life", "after a restart"])
def test_what_was_admitted_counts_whatever_is_edited_later(restart: bool) -> None:
    """Inputs, the rest of the spec, and the definitions of tools: a server without CEL lets every edit through."""

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        nodes = """
        - {name: a, tool: act}
        - {name: b, tool: act, dependsOn: [a], params: {v: "${inputs.x}"}}
        """
        world.apply_run(f"inputs: {{x: 1}}\nonNodeFailure: Continue\nnodes:\n{nodes}")
        await world.until(lambda: world.nodes()["a"].phase == "Running")

        def edit(spec: AgentRunSpec) -> AgentRunSpec:
            return spec.model_copy(
                update={"inputs": {"x": 2}, "nodes": spec.nodes[:1], "ttl_after_finished": timedelta(days=1)}
            )

        world.cluster.patch_run_spec("default", "run", edit)
        for tool in build_tools("act: {cost: {perCall: '5'}}"):
            world.cluster.apply(tool)
        if restart:
            await world.kill_scheduler()
            world.start_scheduler()
        ended = await world.ended()
        assert ended.phase == "Succeeded"
        called = world.nodes()["b"].call
        assert called is not None
        assert called.params == {"v": 1}
        assert ended.spent is not None
        assert ended.spent.cost == 0
        assert [c.type for c in ended.conditions if c.status == "True"].count("SpecChangeIgnored") == 1

    in_world(test, ACT, "tools: {act: [{result: 1, delay: 5s}]}")


def test_a_draining_worker_gives_back_what_it_has_not_begun() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker("first")
        assert world.worker is not None
        world.worker.request_drain()
        await asyncio.sleep(1)
        world.apply_run(ONE)
        await asyncio.sleep(5)
        world.start_worker("second")
        assert (await world.ended()).phase == "Succeeded"
        assert world.nodes()["a"].attempt == 1

    in_world(test, ACT, "tools: {act: [{result: 1}]}")


LIFE = """
session: s
onNodeFailure: Continue
nodes:
- {name: a, tool: act, params: {n: 1}}
- {name: b, tool: read}
- {name: fan, type: FanOut, dependsOn: [b], fanOut: {items: [1, 2], node: {tool: act, params: {n: "${item}", f: 1}}}}
- {name: route, type: Condition, dependsOn: [a], condition: {cases: [{when: {path: nodes.a.result, op: eq, value: 1}, goto: c}]}}
- {name: c, tool: flaky, params: {n: 3}}
- {name: ask, type: Approval, approval: {message: ok?}, dependsOn: [c]}
- {name: same, tool: act, dependsOn: [ask], params: {n: 1}}
- {name: careful, tool: careful, params: {n: 9}}
"""
LIFE_TOOLS = """
act: {}
read: {sideEffect: None}
flaky: {retry: {limit: 1, backoff: {initial: 1s}}}
careful: {approval: {required: Always}}
"""
LIFE_SCRIPT = """
tools:
  act: [{result: 1, delay: 200ms}]
  read: [{result: 1}]
  flaky: [{failure: {}}, {result: 2}]
  careful: [{result: 1}]
"""


async def live(world: World, mortality: Mortality) -> int:
    """Live the run above with a scheduler that dies once; return how many steps it took outside."""
    world.start_worker()
    world.start_scheduler(mortality)
    world.apply_run(LIFE)

    async def approve() -> None:
        for node in ("careful", "ask"):
            await world.until(lambda: bool(world.open_question(node)))  # noqa: B023
            world.decide(node, Decision(verdict=Verdict.APPROVE, decided_by="Ada"))

    approving = asyncio.create_task(approve())
    if await world.wait_for_death():
        world.start_scheduler()
    ended = await world.ended(within=3600)
    await approving
    assert ended.phase == "Succeeded", ended.message
    phases = {path: str(status.phase) for path, status in world.nodes().items()}
    assert set(phases.values()) == {"Succeeded"}, phases
    assert len(phases) == 10
    assert world.counts.effects == {"act": 3, "read": world.counts.effects["read"], "flaky": 1, "careful": 1}
    assert world.nodes()["same"].reason == "Replayed"
    assert world.scheduler is not None
    assert world.scheduler.failed_turns_total == 0
    assert world.ledger.space("default").claims == {}
    # What a dead scheduler held is free when its lease has passed.
    await asyncio.sleep(SLOT_LEASE.total_seconds() + 1)
    assert await world.ledger.find_slots_in_use("default", "global") == 0
    counters = await world.ledger.find_counters("default", world.cluster.get_run("default", "run").metadata.uid)
    assert counters.held.micros == 0
    return mortality.steps


STEPS = in_world(lambda world: live(world, Mortality()), LIFE_TOOLS, LIFE_SCRIPT)


def test_the_run_that_is_killed_takes_enough_steps_to_be_worth_killing() -> None:
    assert STEPS > 60


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("part", range(8))
def test_a_scheduler_killed_at_any_step_changes_neither_outcome_nor_effects(part: int, *, after: bool) -> None:
    for step in range(1 + part, STEPS + 1, 8):
        try:
            in_world(lambda world: live(world, Mortality(step, after)), LIFE_TOOLS, LIFE_SCRIPT)  # noqa: B023
        except BaseException as error:
            error.add_note(f"killed {'after' if after else 'before'} step {step}")
            raise


async def answer_while_nobody_leads(world: World) -> None:
    world.start_scheduler()
    world.start_worker()
    world.apply_run("nodes: [{name: a, type: Approval, approval: {message: ok?}}]")
    await world.until(lambda: world.open_question("a") is not None)
    await world.kill_scheduler()
    world.decide("a", Decision(verdict=Verdict.APPROVE))


def test_a_decision_counts_though_the_watch_shows_it_before_its_run() -> None:
    async def test(world: World) -> None:
        await answer_while_nobody_leads(world)
        # Each kind has a watch of its own, and nobody says which of them tells first.
        objects = world.cluster._objects
        world.cluster._objects = dict(reversed(objects.items()))
        world.start_scheduler()
        assert (await world.ended(within=60)).phase == "Succeeded"

    in_world(test, ACT)


def test_a_decision_counts_though_the_watch_shows_it_after_its_question_was_found_again() -> None:
    async def test(world: World) -> None:
        await answer_while_nobody_leads(world)
        world.start_scheduler()
        scheduler = world.scheduler
        assert scheduler is not None
        see = scheduler._see_approval

        def see_late(seen: AgentApproval, *, gone: bool) -> None:
            asyncio.get_running_loop().call_later(5, lambda: see(seen, gone=gone))

        scheduler._see_approval = see_late  # type: ignore[method-assign]
        assert (await world.ended(within=60)).phase == "Succeeded"

    in_world(test, ACT)


def test_a_fan_out_that_is_expanded_again_lets_the_next_instance_begin_for_each_that_had_ended() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        items = "fanOut: {items: [1, 2, 3], maxParallel: 1, node: {tool: act, params: {n: '${item}'}}}"
        world.apply_run(f"nodes: [{{name: f, type: FanOut, {items}}}]")
        await world.until(lambda: "f.0" in world.nodes() and world.nodes()["f.0"].phase == "Succeeded")
        assert world.nodes()["f"].phase == "Expanded"
        await world.kill_scheduler()
        world.start_scheduler()
        assert (await world.ended(within=600)).phase == "Succeeded"

    in_world(test, ACT, "tools: {act: [{result: 1, delay: 100ms}, {result: 2, delay: 5s}, {result: 3}]}")


def test_a_leader_that_was_overtaken_makes_no_instances() -> None:
    async def test(world: World) -> None:
        # It hears of its successor by nothing else.
        world.start_scheduler(settings=SchedulerSettings(ledger_look=timedelta(hours=1)))
        world.start_worker()
        fan_out = "fanOut: {items: [1, 2], node: {tool: act, params: {n: '${item}'}}}"
        world.apply_run(f"nodes: [{{name: a, tool: read}}, {{name: f, type: FanOut, dependsOn: [a], {fan_out}}}]")
        await asyncio.sleep(2)
        await world.ledger.take_epoch(1)
        with pytest.raises(EpochLostError):
            await world.engine_ends(within=600)
        assert world.counts.calls["read"] == 1
        assert set(world.nodes()) == {"a", "f"}

    in_world(test, f"{ACT}\nread: {{timeout: 10s}}", "tools: {act: [{result: 1}], read: [{result: 1, delay: 5s}]}")


def test_an_order_that_the_ledger_knows_better_is_not_sent_again_and_again() -> None:
    async def test(world: World) -> None:
        sent = 0

        async def refuse(*_: object) -> DispatchAnswer:
            nonlocal sent
            sent += 1
            return DispatchAnswer(RefusalKind.STALE_SEQ)

        setattr(world.ledger, "dispatch", refuse)  # noqa: B010 - a ledger that says so and does not say why
        world.start_scheduler()
        world.start_worker()
        world.apply_run(ONE)
        await asyncio.sleep(10)
        assert 5 <= sent <= 20

    in_world(test, ACT)


def test_a_call_that_was_sent_and_not_written_down_is_known_again() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        node = "node: {tool: read, params: {n: '${item}'}}"
        world.apply_run(f"nodes: [{{name: f, type: FanOut, fanOut: {{items: [1], {node}}}}}]")
        await world.until(lambda: world.counts.calls["read"] == 1)
        await world.kill_scheduler()
        assert world.nodes()["f.0"].call is None
        await asyncio.sleep(5)
        world.start_scheduler()
        assert (await world.ended(within=60)).phase == "Succeeded"
        read = world.nodes()["f.0"]
        assert read.call is not None
        assert (read.attempt, read.call.params) == (1, {"n": 1})
        assert world.counts.calls["read"] == 1

    in_world(test, "read: {sideEffect: None, timeout: 20s}", "tools: {read: [{result: 1, delay: 100ms}]}")


def test_a_retry_that_was_reported_while_nobody_knew_that_the_node_had_begun_counts() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: read, params: {n: 1}}]")
        await world.until(lambda: world.counts.calls["read"] == 2)
        await world.kill_scheduler()
        assert world.nodes()["a"].phase == "Pending"
        await asyncio.sleep(5)
        world.start_scheduler()
        assert (await world.ended(within=60)).phase == "Succeeded"
        assert world.counts.calls["read"] == 2

    tools = (
        "read: {sideEffect: None, timeout: 20s, retry: {limit: 3, backoff: {initial: 100ms, factor: 1, max: 100ms}}}"
    )
    in_world(test, tools, "tools: {read: [{failure: {}}, {result: 1, delay: 100ms}]}")


def test_retries_that_were_made_and_not_written_down_are_known_again() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: read, params: {n: 1}}]")
        await world.until(lambda: world.counts.calls["read"] >= 3)
        await world.kill_scheduler()
        assert world.nodes()["a"].attempt == 0
        await asyncio.sleep(5)
        world.start_scheduler()
        ended = await world.ended(within=60)
        assert (ended.phase, world.nodes()["a"].attempt) == ("Succeeded", 5)
        assert world.counts.calls["read"] == 5, "the attempt that was due is made, and none twice"

    tools = (
        "read: {sideEffect: None, timeout: 20s, retry: {limit: 9, backoff: {initial: 300ms, factor: 1, max: 300ms}}}"
    )
    in_world(test, tools, "tools: {read: [{failure: {}}, {failure: {}}, {failure: {}}, {failure: {}}, {result: 1}]}")


def test_a_call_that_a_human_had_let_go_on_before_a_crash_is_made_once() -> None:
    async def test(world: World) -> None:
        replace_status = world.cluster.replace_status
        away = False

        async def replace_unless_away(changed: ClusterObject) -> ClusterObject:
            if away:
                raise ClusterUnavailableError("away")
            return await replace_status(changed)

        world.cluster.replace_status = replace_unless_away  # type: ignore[method-assign]
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase == "WaitingApproval" and bool(world.open_question("a")))
        away = True
        world.decide("a", Decision(verdict=Verdict.APPROVE))
        await world.until(lambda: world.counts.calls["act"] == 1, 10)
        await asyncio.sleep(1)
        await world.kill_scheduler()
        away = False
        assert world.nodes()["a"].phase == "WaitingApproval"
        world.start_scheduler()
        assert (await world.ended(within=20)).phase == "Succeeded"
        assert world.nodes()["a"].result == 1
        assert world.counts.calls["act"] == 1

    in_world(test, "act: {sideEffect: Idempotent, approval: {required: Always}}", "tools: {act: [{result: 1}]}")


def test_what_becomes_of_a_run_while_its_turn_is_under_way_is_seen() -> None:
    async def test(world: World) -> None:
        find_node, asked = world.ledger.find_node, asyncio.Event()

        async def find_slowly(*arguments: Any) -> Any:
            asked.set()
            await asyncio.sleep(2)
            return await find_node(*arguments)

        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase == "Running")
        world.ledger.find_node = find_slowly  # type: ignore[method-assign]
        await asked.wait()
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update={"cancel": True}))
        assert (await world.ended(within=30)).phase == "Cancelled"

    in_world(test, "act: {timeout: 10m}", "tools: {act: [{result: 1, delay: 5m}]}")


def test_a_report_is_acknowledged_when_it_is_stored_though_the_ledger_was_looked_at_before() -> None:
    async def test(world: World) -> None:
        read_reports, late = world.ledger.read_reports, False

        async def read_late(*arguments: Any) -> Any:
            while late:
                await asyncio.sleep(0.01)
            return await read_reports(*arguments)

        world.ledger.read_reports = read_late  # type: ignore[method-assign]
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: looked, params: {n: 1}}]")
        await world.until(lambda: world.counts.calls["looked"] == 1)
        await asyncio.sleep(0.3)
        late = True
        # The state Running is due to be written after a second: the ledger is looked at then, and knows more.
        await world.until(lambda: world.counts.calls["read"] == 1, within=20)
        late = False
        await asyncio.sleep(0.5)
        await world.kill_scheduler()
        assert world.nodes()["a"].phase == "Queued"
        world.start_scheduler()
        assert (await world.ended(within=600)).phase == "Succeeded"
        assert world.counts.calls["looked"] == 1

    tools = """
    read: {sideEffect: None}
    looked:
      timeout: 20s
      recovery: {lookup: {tool: read}, outcome: {completed: {when: {path: result, op: eq, value: 1}}}}
    """
    script = "tools: {looked: [{failure: {effect: Unknown}, delay: 700ms}], read: [{result: 1, delay: 5s}]}"
    in_world(test, tools, script)


def test_a_timeline_that_was_stored_is_only_added_to() -> None:
    async def test(world: World) -> None:
        replace_status, stored = world.cluster.replace_status, list[tuple[Transition, ...]]()

        async def replace_slowly(changed: ClusterObject) -> ClusterObject:
            if isinstance(changed, AgentNode) and changed.spec.path == "f" and changed.status is not None:
                stored.append(changed.status.timeline)
            await asyncio.sleep(0.02)
            return await replace_status(changed)

        world.cluster.replace_status = replace_slowly  # type: ignore[method-assign]
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: f, type: FanOut, fanOut: {items: [1, 2], node: {tool: act, params: {n: 1}}}}]")
        assert (await world.ended(within=60)).phase == "Succeeded"
        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(stored))

    in_world(test, ACT, "tools: {act: [{result: 1, delay: 3s}]}")


class _Sleeper(Mortality):
    """A scheduler that stands still before one of its steps outside, counted from when that was set."""

    sleeps_in: int | None = None
    awake = True

    async def step(self, work: Callable[[], Awaitable[Any]], failure: Exception) -> Any:
        if self.sleeps_in is not None:
            self.awake = self.awake and self.sleeps_in > 0
            self.sleeps_in -= 1
        while not self.awake:
            await asyncio.sleep(0.1)
        return await super().step(work, failure)


@pytest.mark.parametrize("emptied", [False, True], ids=["ledger kept", "ledger emptied"])
@pytest.mark.parametrize("steps", range(8))
def test_a_leader_that_wakes_up_in_an_admission_does_not_revive_what_its_successor_has_ended(
    steps: int, emptied: bool
) -> None:
    async def test(world: World) -> None:
        sleeper = _Sleeper()
        world.start_scheduler(sleeper)
        await asyncio.sleep(1)
        world.apply_run(ONE)
        sleeper.sleeps_in = steps
        await world.until(lambda: not sleeper.awake, 60)
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update={"cancel": True}))
        world.start_scheduler()
        await world.ended()
        if emptied:
            world.ledger.lose_everything()
        sleeper.sleeps_in, sleeper.awake = None, True
        changes = world.cluster.watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                async for change in changes:
                    if isinstance(change.object, AgentRun):
                        assert change.object.status is not None
                        assert change.object.status.phase == "Cancelled"

    in_world(test, ACT, "tools: {act: [{result: 1}]}")
