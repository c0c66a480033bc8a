"""Moves that need an unlucky moment: cancels, drains and recoveries that meet each other."""

import asyncio
from typing import Any

import pytest

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.failures import Effect
from agentrun.contract.run import AgentRunSpec
from agentrun.ledger.port import Claim, ClaimAnswer, Delivery, WorkerIdentity
from support.scenario import play
from support.world import World, in_world


def cancelled(spec: AgentRunSpec) -> AgentRunSpec:
    return spec.model_copy(update={"cancel": True})


def test_a_cancel_takes_back_an_order_that_nobody_has_claimed() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        await asyncio.sleep(1)
        world.kill_worker()
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase == "Queued")
        world.cluster.patch_run_spec("default", "run", cancelled)
        assert (await world.ended(within=20)).phase == "Cancelled"
        assert (world.nodes()["a"].phase, world.nodes()["a"].attempt) == ("Cancelled", 0)
        world.start_worker()
        await asyncio.sleep(60)
        assert world.counts.calls["act"] == 0

    in_world(test, "act: {}", "tools: {act: [{result: 1}]}")


def test_a_worker_that_drains_between_claim_and_call_undoes_the_claim() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker("first")
        claim = world.ledger.claim

        async def claim_and_drain(worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
            answer = await claim(worker, delivery, token)
            if worker.name == "first":
                assert world.worker is not None
                world.worker.request_drain()
            return answer

        world.ledger.claim = claim_and_drain  # type: ignore[method-assign]
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: any(line.to_phase == "Ready" and line.attempt == 0 for line in steps(world)[1:]))
        world.start_worker("second")
        assert (await world.ended(within=120)).phase == "Succeeded"
        assert world.nodes()["a"].attempt == 1
        assert [(str(line.from_phase), str(line.to_phase)) for line in steps(world)].count(("Running", "Ready")) == 1
        assert world.counts.calls["act"] == 1

    def steps(world: World) -> list:  # type: ignore[type-arg]
        return list(world.nodes()["a"].timeline)

    in_world(test, "act: {}", "tools: {act: [{result: 1}]}")


def test_a_cancel_during_a_recovery_still_finds_out_what_happened() -> None:
    played = play(
        "nodes: [{name: pay, tool: pay}, {name: b, tool: pay, dependsOn: [pay], params: {n: 1}}]",
        """
        pay:
          timeout: 10s
          recovery:
            lookup: {tool: look, params: {key: "${key}"}}
            outcome: {completed: {when: {path: result.state, op: eq, value: done}}}
        look: {sideEffect: None, timeout: 1m}
        """,
        """
        tools: {pay: [{crash: after-effect}], look: [{result: {state: done}, delay: 10s}]}
        events: [{at: 20s, cancel: true}]
        """,
    )
    assert played.phase == "Cancelled"
    assert (played.phases["pay"], str(played.node("pay").effect)) == ("Cancelled", "Executed")
    assert played.steps("pay")[-2:] == ["TimedOut", "Cancelled"]
    assert played.effects("pay") == 1


def test_an_attempt_that_fails_while_its_run_ends_is_not_tried_again() -> None:
    played = play(
        "nodes: [{name: bad, tool: bad}, {name: a, tool: act}]",
        "{bad: {sideEffect: None}, act: {sideEffect: None, retry: {limit: 5}}}",
        "tools: {bad: [{failure: {class: Permanent}}], act: [{failure: {}, delay: 5s}]}",
    )
    assert played.phase == "Failed"
    assert played.phases["a"] == "Cancelled"
    assert played.calls("act") == 1


def test_a_quarantined_node_is_cancelled_with_its_run() -> None:
    played = play(
        "nodes: [{name: q, tool: gated, params: {n: text}}, {name: bad, tool: bad}]",
        "{gated: {params: {schema: {properties: {n: {type: integer}}}}}, bad: {sideEffect: None}}",
        "tools: {bad: [{failure: {class: Permanent}, delay: 5s}]}",
    )
    assert played.phase == "Failed"
    assert played.ends["q"] == ("Cancelled", "RunEnded")
    assert played.approvals("q") == [("Quarantine", "Withdrawn")]


def test_an_equal_call_behind_an_outcome_that_nobody_settled_is_recovered_first() -> None:
    tools = """
    pay:
      timeout: 10s
      recovery:
        lookup: {tool: look, params: {key: "${key}"}}
        outcome: {completed: {when: {path: result.state, op: eq, value: done}, result: result.payment}}
    look: {sideEffect: None}
    """
    run = "session: s\nonNodeFailure: Continue\nnodes: [{name: pay, tool: pay, params: {order: 7}}]"

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(run)
        await world.until(lambda: world.nodes()["pay"].phase == "Quarantined" and bool(world.open_question("pay")))
        world.decide("pay", Decision(verdict=Verdict.DISCARD, effect=Effect.EXECUTED))
        await world.ended(within=60)
        world.apply_run(run, "second")
        assert (await world.ended("second", within=600)).phase == "Succeeded"
        node = world.nodes("second")["pay"]
        assert [str(line.to_phase) for line in node.timeline] == ["Ready", "Queued", "TimedOut", "Succeeded"]
        assert node.result == {"id": 1}
        assert node.attempt == 0, "a recovery of another's call uses no attempt"
        assert world.counts.effects["pay"] == 1

    in_world(
        test,
        tools,
        "tools: {pay: [{crash: after-effect}], look: [{result: {}}, {result: {state: done, payment: {id: 1}}}]}",
    )


def test_a_worker_that_drains_while_it_waits_for_a_call_to_end_leaves_that_to_another() -> None:
    tools = """
    pay:
      timeout: 10s
      recovery:
        lookup: {tool: look, params: {key: "${key}"}}
        outcome:
          running: {when: {path: result.state, op: eq, value: going}}
          completed: {when: {path: result.state, op: eq, value: done}, result: result.payment}
    look: {sideEffect: None}
    """

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker("first")
        world.apply_run("nodes: [{name: pay, tool: pay}]")
        await world.until(lambda: world.counts.calls["look"] == 1)
        await asyncio.sleep(0.2)
        assert world.worker is not None
        world.worker.request_drain()
        world.start_worker("second")
        assert (await world.ended(within=60)).phase == "Succeeded"
        pay = world.nodes()["pay"]
        assert [(str(line.from_phase), line.reason) for line in pay.timeline if line.to_phase == "TimedOut"] == [
            ("Running", "EffectUnknown"),
            ("Running", "HandedBack"),
        ]
        assert (pay.result, pay.attempt) == ({"id": 1}, 1)

    looks = "[{result: {state: going}}, {result: {state: done, payment: {id: 1}}}]"
    in_world(test, tools, f"tools: {{pay: [{{failure: {{effect: Unknown}}}}], look: {looks}}}")


@pytest.mark.parametrize("drained", [False, True], ids=["turned away by the gate", "handed back"])
def test_a_recovery_that_comes_back_is_sent_again_a_moment_later(drained: bool) -> None:
    tools = """
    pay:
      timeout: 10s
      recovery:
        lookup: {tool: look, params: {key: "${key}"}}
        outcome: {completed: {when: {path: result.state, op: eq, value: done}, result: result.payment}}
    look: {sideEffect: None, timeout: 20s}
    """

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker("first")
        gate, turned_away = world.ledger._gate, list[str]()

        def turn_away_once(space: Any, node: Any, order: Any, record: Any, *asker: Any, recovers: bool) -> Any:
            if recovers and not drained and not turned_away:
                turned_away.append(order.node_path)
                record.reserved_for, record.reserved_until = "another", world.clock.now_ms() + 500
            return gate(space, node, order, record, *asker, recovers=recovers)

        world.ledger._gate = turn_away_once  # type: ignore[method-assign]
        world.apply_run("nodes: [{name: pay, tool: pay}]")
        if drained:
            await world.until(lambda: world.counts.calls["look"] == 1)
            assert world.worker is not None
            world.worker.request_drain()
            world.start_worker("second")
        assert (await world.ended(within=30)).phase == "Succeeded"
        assert turned_away == ([] if drained else ["pay"])

    looks = "[{result: {state: done, payment: {id: 1}}, delay: 5s}, {result: {state: done, payment: {id: 1}}}]"
    in_world(test, tools, f"tools: {{pay: [{{failure: {{effect: Unknown}}}}], look: {looks}}}")


def test_a_node_that_is_not_needed_any_more_leaves_the_line_of_the_record_that_it_waited_for() -> None:
    run = """
    nodes:
    - {name: a, tool: act, params: {n: 1}}
    - {name: later, tool: quick}
    - name: f
      type: FanOut
      dependsOn: [later]
      fanOut: {items: [1, 2], join: {rule: Any}, node: {tool: act, params: {n: "${item}"}}}
    """

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(run)
        await world.until(lambda: world.nodes()["f"].phase == "Succeeded", 30)
        await asyncio.sleep(2)
        ended = world.nodes()
        assert (ended["a"].phase, ended["f.0"].phase, ended["f.0"].reason) == ("Running", "Cancelled", "NoLongerNeeded")
        assert any(line.reason == "HandedBack" for line in ended["f.0"].timeline)
        assert not any(world.ledger.space("default").waiters.values())
        assert (await world.ended(within=120)).phase == "Succeeded"

    script = "tools: {act: [{result: 1, delay: 60s}, {result: 2, delay: 3s}], quick: [{result: 1, delay: 1s}]}"
    in_world(test, "{act: {timeout: 90s}, quick: {}}", script)


def test_a_late_commit_of_a_fenced_worker_is_refused_and_billed_once() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        commit = world.ledger.commit
        kept: list[tuple[Claim, object]] = []

        async def late(claim: Claim, outcome: object) -> object:
            if not kept:
                kept.append((claim, outcome))
                await asyncio.Event().wait()
            return await commit(claim, outcome)  # type: ignore[arg-type]

        world.ledger.commit = late  # type: ignore[method-assign,assignment]
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: bool(kept))
        world.kill_worker()
        await asyncio.sleep(2)
        world.start_worker("second")
        assert (await world.ended(within=600)).phase == "Succeeded"
        verdict = await commit(*kept[0])  # type: ignore[arg-type]
        assert verdict == "Fenced"
        uid = world.cluster.get_run("default", "run").metadata.uid
        counters = await world.ledger.find_counters("default", uid)
        assert counters.settled.micros == 500_000, (
            "two attempts at 0.25, the first booked as an estimate, then for good"
        )
        assert world.nodes()["a"].attempt == 2

    in_world(test, 'act: {sideEffect: Idempotent, cost: {perCall: "0.25"}}', "tools: {act: [{result: 1}]}")


def test_an_answer_that_comes_after_the_record_has_moved_changes_nothing_and_the_gate_looks_again() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: pay, tool: pay}]")
        await world.until(lambda: world.nodes()["pay"].phase == "Quarantined" and bool(world.open_question("pay")))
        call, inbox = world.nodes()["pay"].call, world.nodes()["pay"].inbox
        assert call is not None
        assert inbox is not None
        # Meanwhile somebody else settles the record: it was executed after all.
        await world.ledger.answer_record(
            "default", call.key, inbox.record_version, Effect.EXECUTED, {"id": 7}, has_result=True
        )
        world.decide("pay", Decision(verdict=Verdict.RELEASE, effect=Effect.NOT_EXECUTED))
        assert (await world.ended(within=60)).phase == "Succeeded"
        assert world.nodes()["pay"].result == {"id": 7}
        assert world.nodes()["pay"].reason == "Replayed"
        assert world.counts.calls["pay"] == 1

    in_world(test, "pay: {}", "tools: {pay: [{failure: {effect: Unknown}}, {result: {id: 1}}]}")


@pytest.mark.parametrize(
    "effect, want_phase, want_effects",
    [pytest.param("Once", "Quarantined", 1, id="once"), pytest.param("None", "Succeeded", 2, id="harmless")],
)
def test_a_ledger_that_loses_everything_has_no_once_call_made_again(
    effect: str, want_phase: str, want_effects: int
) -> None:
    """The order is claimed and its report lost with everything else: to the scheduler it still stands in its stream."""

    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        claim = world.ledger.claim

        async def claim_and_lose(worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
            answer = await claim(worker, delivery, token)
            if not world.counts.calls["act"]:
                world.ledger.lose_everything()
            return answer

        world.ledger.claim = claim_and_lose  # type: ignore[method-assign]
        world.apply_run("nodes: [{name: a, tool: act}]")
        await world.until(lambda: world.nodes()["a"].phase in ("Quarantined", "Succeeded", "Dead"), 3600)
        assert world.nodes()["a"].phase == want_phase, world.nodes()["a"]
        assert world.counts.effects["act"] == want_effects

    in_world(test, f"act: {{sideEffect: {effect}}}", "tools: {act: [{result: 1}]}")
