"""Whole runs on virtual time: what may happen only once, repetitions, crashes of workers, recovery by lookup."""

import asyncio

import pytest

from agentrun.contract.defaults import CLAIM_WITHIN, RECOVERY_WAIT
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun.ledger.port import Claim, CommitVerdict, DispatchAnswer
from agentrun_worker.outcomes import not_started
from support.scenario import Played, play
from support.world import World, in_world

LOOKUP = """
pay:
  timeout: 10s
  recovery:
    lookup: {tool: look, params: {key: "${key}", order: "${params.order}"}}
    outcome:
      completed: {when: {path: result.state, op: eq, value: done}, result: result.payment}
      running: {when: {path: result.state, op: eq, value: running}}
      notExecuted: {when: {path: result.state, op: eq, value: none}}
  result: {schema: {type: object, required: [id]}}
look: {sideEffect: None, timeout: 5s}
"""
PAY = "nodes: [{name: pay, tool: pay, params: {order: 7}}]"


def recovered(crash: str, lookup: str) -> Played:
    return play(PAY, LOOKUP, f"tools: {{pay: [{{crash: {crash}}}, {{result: {{id: 2}}}}], look: [{lookup}]}}")


@pytest.mark.parametrize(
    "crash, lookup, want_end, want_effects",
    [
        pytest.param(
            "after-effect",
            "{result: {state: done, payment: {id: 1}}}",
            ("Succeeded", "RecoveredCompleted"),
            1,
            id="completed",
        ),
        pytest.param("before-effect", "{result: {state: none}}", ("Succeeded", "Completed"), 1, id="not executed"),
        pytest.param(
            "after-effect",
            "{result: {state: running}}, {result: {state: running}}, {result: {state: done, payment: {id: 1}}}",
            ("Succeeded", "Completed"),
            1,
            id="running, then completed",
        ),
        pytest.param("after-effect", "{result: {state: huh}}", ("Quarantined", "OutcomeUnknown"), 1, id="nonsense"),
        pytest.param("after-effect", "{result: {}}", ("Quarantined", "OutcomeUnknown"), 1, id="another type"),
        pytest.param(
            "after-effect", "{failure: {class: Permanent}}", ("Quarantined", "OutcomeUnknown"), 1, id="lookup fails"
        ),
        pytest.param("after-effect", "{hang: true}", ("Quarantined", "OutcomeUnknown"), 1, id="no answer"),
        pytest.param(
            "after-effect",
            "{result: {state: done, payment: {}}}",
            ("Quarantined", "OutcomeUnknown"),
            1,
            id="completed without a usable result",
        ),
    ],
)
def test_after_a_workers_death_the_lookup_decides(
    crash: str, lookup: str, want_end: tuple[str, str], want_effects: int
) -> None:
    played = recovered(crash, lookup)
    assert played.ends["pay"] == want_end
    assert played.effects("pay") == want_effects


@pytest.mark.parametrize(
    "lookup, want_reason",
    [
        pytest.param("{crash: before-effect}", "RecoveredCompleted", id="before it was answered"),
        pytest.param(
            "{result: {state: running}}, {crash: after-effect}", "RecoveredCompleted", id="after it was adopted"
        ),
    ],
)
def test_a_recovery_whose_worker_dies_as_well_is_made_by_the_next(lookup: str, want_reason: str) -> None:
    played = recovered("after-effect", f"{lookup}, {{result: {{state: done, payment: {{id: 1}}}}}}")
    assert played.ends["pay"] == ("Succeeded", want_reason)
    assert played.effects("pay") == 1
    assert played.run.started_at is not None
    assert played.run.finished_at is not None
    assert played.run.finished_at - played.run.started_at < RECOVERY_WAIT


def test_a_call_that_runs_for_ever_ends_with_a_human_when_the_recoverys_time_is_over() -> None:
    played = recovered("after-effect", "{result: {state: running}}")
    assert played.ends["pay"] == ("Quarantined", "OutcomeUnknown")
    assert "Running" in played.steps("pay")
    assert played.effects("pay") == 1


def test_without_a_lookup_a_dead_workers_call_is_quarantined_and_never_made_again() -> None:
    played = play(PAY, "pay: {}", "tools: {pay: [{crash: after-effect}]}")
    assert played.ends["pay"] == ("Quarantined", "OutcomeUnknown")
    assert played.calls("pay") == 1


@pytest.mark.parametrize("effect", ["None", "Idempotent"])
def test_a_harmless_call_of_a_dead_worker_is_made_again(effect: str) -> None:
    played = play(PAY, f"pay: {{sideEffect: {effect}}}", "tools: {pay: [{crash: after-effect}, {result: {id: 2}}]}")
    assert played.phase == "Succeeded"
    assert played.calls("pay") == 2
    assert "TimedOut" in played.steps("pay")


def test_a_timeout_never_goes_straight_to_a_retry() -> None:
    played = play(PAY, "pay: {sideEffect: None, timeout: 5s}", "tools: {pay: [{hang: true}, {result: {id: 1}}]}")
    steps = played.steps("pay")
    assert steps[:4] == ["Ready", "Queued", "Running", "Failed"]
    assert played.phase == "Succeeded"


TWO_EQUAL = """
session: s
nodes:
- {name: one, tool: act, params: {order: 7}}
- {name: two, tool: act, params: {order: 7}, dependsOn: [one]}
"""


def test_an_equal_once_call_of_the_session_is_replayed() -> None:
    played = play(TWO_EQUAL, "act: {}", "tools: {act: [{result: {id: 1}}, {result: {id: 2}}]}")
    assert played.phase == "Succeeded"
    assert played.ends["two"] == ("Succeeded", "Replayed")
    assert played.node("two").result == {"id": 1}
    assert played.node("two").replay_of == "default/run/one"
    assert played.effects("act") == 1
    assert played.node("one").call is not None
    assert played.node("two").call is not None
    assert played.node("one").call.request_id != played.node("two").call.request_id


def test_an_equal_read_is_made_again() -> None:
    played = play(TWO_EQUAL, "act: {sideEffect: None}", "tools: {act: [{result: {id: 1}}, {result: {id: 2}}]}")
    assert played.node("two").result == {"id": 2}
    assert played.calls("act") == 2


def test_an_equal_call_at_the_same_time_waits_and_is_replayed() -> None:
    played = play(
        """
        session: s
        nodes: [{name: one, tool: act, params: {order: 7}}, {name: two, tool: act, params: {order: 7}}]
        """,
        "act: {}",
        "tools: {act: [{result: {id: 1}, delay: 10s}]}",
    )
    assert played.phase == "Succeeded"
    assert played.effects("act") == 1
    assert sorted(reason for _, reason in played.ends.values()) == ["Completed", "Replayed"]


def test_one_key_with_other_params_is_a_conflict_and_calls_nothing() -> None:
    played = play(
        """
        session: s
        nodes:
        - {name: one, tool: act, params: {order: 7}, idempotency: {key: k}}
        - {name: two, tool: act, params: {order: 8}, idempotency: {key: k}, dependsOn: [one]}
        """,
        "act: {}",
        "tools: {act: [{result: 1}]}",
    )
    assert played.ends["two"] == ("Quarantined", "IdempotencyConflict")
    assert played.calls("act") == 1


def test_an_intended_repetition_says_so_with_its_own_key() -> None:
    played = play(
        """
        session: s
        nodes:
        - {name: one, tool: act, params: {order: 7}}
        - {name: two, tool: act, params: {order: 7}, idempotency: {key: "again"}, dependsOn: [one]}
        """,
        "act: {}",
        "tools: {act: [{result: 1}]}",
    )
    assert played.phase == "Succeeded"
    assert played.effects("act") == 2


def test_a_duplicate_is_rejected_where_the_tool_says_so() -> None:
    played = play(TWO_EQUAL, "act: {idempotency: {onDuplicate: Reject}}", "tools: {act: [{result: 1}]}")
    assert played.phase == "Failed"
    assert played.node("two").failure is not None
    assert played.node("two").failure.reason == "DuplicateRejected"
    assert played.effects("act") == 1


@pytest.mark.parametrize(
    "verdict, want_end, want_effects", [("Approve", "Succeeded", 2), ("Reject", "Dead", 1)], ids=["approve", "reject"]
)
def test_a_duplicate_is_asked_about_where_the_tool_says_so(verdict: str, want_end: str, want_effects: int) -> None:
    played = play(
        TWO_EQUAL,
        "act: {idempotency: {onDuplicate: Ask}}",
        f"{{tools: {{act: [{{result: 1}}]}}, humans: [{{node: two, verdict: {verdict}, after: 1h}}]}}",
    )
    assert played.phases["two"] == want_end
    assert played.effects("act") == want_effects
    assert played.approvals("two")[0][0] == "Duplicate"


def test_equal_calls_behind_an_unknown_outcome_wait_in_one_line_behind_one_question() -> None:
    played = play(
        """
        session: s
        nodes:
        - {name: many, type: FanOut, fanOut: {items: [1, 2, 3, 4, 5], node: {tool: act, params: {order: 7}}}}
        """,
        "act: {}",
        "{tools: {act: [{failure: {effect: Unknown}}]}, humans: ["
        + ", ".join(
            f"{{node: many.{at}, verdict: Resolve, effect: Executed, result: {{id: 1}}, after: 1m}}" for at in range(5)
        )
        + "]}",
    )
    assert played.phase == "Succeeded"
    assert played.effects("act") == 0
    assert played.calls("act") == 1
    asked = [path for path in played.phases if played.approvals(path)]
    assert len(asked) == 1
    assert sorted(reason for path, (_, reason) in played.ends.items() if path != "many") == [
        "Replayed",
        "Replayed",
        "Replayed",
        "Replayed",
        "ResolvedByHuman",
    ]


def test_waiting_behind_anothers_question_costs_the_run_no_time() -> None:
    played = play(
        """
        session: s
        timeout: 1m
        nodes: [{name: one, tool: act, params: {order: 7}}, {name: two, tool: act, params: {order: 7}}]
        """,
        "act: {}",
        """
        tools: {act: [{failure: {effect: Unknown}, delay: 2s}]}
        humans: [{node: one, verdict: Resolve, effect: Executed, result: 1, after: 5h}, {node: two, verdict: Resolve, effect: Executed, result: 1, after: 5h}]
        """,
    )
    assert played.phase == "Succeeded"
    assert played.calls("act") == 1


def test_a_done_call_with_a_useless_answer_is_for_a_human_and_never_repeated() -> None:
    played = play(
        PAY,
        "pay: {result: {schema: {type: object, required: [id]}}}",
        "{tools: {pay: [{result: {}}]}, humans: [{node: pay, verdict: Release}, {node: pay, verdict: Resolve, result: {id: 1}}]}",
    )
    assert played.approvals("pay") == [("Quarantine", "Refused"), ("Quarantine", "Applied")]
    assert played.phase == "Succeeded"
    assert played.effects("pay") == 1


def test_a_paid_calls_cost_is_settled_once() -> None:
    played = play(
        "nodes: [{name: a, tool: act}, {name: b, tool: act, params: {n: 1}}]",
        'act: {cost: {perCall: "0.25"}}',
        "tools: {act: [{result: 1}]}",
    )
    assert played.run.spent is not None
    assert played.run.spent.cost == 500_000
    assert played.node("a").cost == 250_000


def test_a_lost_paid_call_is_booked_at_its_worst_case() -> None:
    played = play(PAY, 'pay: {cost: {perCall: "0.25"}}', "tools: {pay: [{crash: after-effect}]}")
    assert played.node("pay").cost == 250_000
    assert played.node("pay").cost_estimated


@pytest.mark.parametrize("fault", ["crash: after-effect", "failure: {effect: Unknown}"], ids=["lost", "unknown"])
@pytest.mark.parametrize(
    "lookup",
    [
        pytest.param("{result: {state: done, payment: {id: 1}}}", id="the lookup knows no cost"),
        pytest.param("{result: {state: none}}", id="not executed"),
        pytest.param("{result: {state: huh}}", id="nobody knows"),
    ],
)
def test_a_nodes_bill_is_the_ledgers_whatever_became_of_its_call(fault: str, lookup: str) -> None:
    tools = LOOKUP.replace("pay:\n", 'pay:\n  cost: {perCall: "0.25"}\n', 1)
    human = "humans: [{node: pay, verdict: Discard, effect: NotExecuted}]"
    said = f"tools: {{pay: [{{{fault}}}, {{result: {{id: 2}}}}], look: [{lookup}]}}\n{human}"
    played = play(PAY, tools, said)
    assert played.node("pay").cost == 250_000
    assert played.run.spent is not None
    assert played.run.spent.cost == 250_000


@pytest.mark.parametrize(
    "late, want_cost",
    [
        pytest.param(not_started(Reason.ATTEMPT_TIMEOUT, "the claim ran out", FailureClass.RETRYABLE), 0, id="nothing"),
        pytest.param(
            AttemptOutcome(effect=Effect.EXECUTED, usage=Amount(micros=100_000)), 100_000, id="less than the worst case"
        ),
        pytest.param(None, 0, id="that it never began"),
    ],
)
@pytest.mark.parametrize("meanwhile", ["", "the scheduler died"], ids=["", "and the scheduler died before it knew"])
def test_what_a_worker_says_late_takes_the_estimates_place_in_the_nodes_bill(
    late: AttemptOutcome | None, want_cost: int, meanwhile: str
) -> None:
    async def test(world: World) -> None:
        world.start_worker()
        world.start_scheduler()
        world.apply_run(PAY)
        await world.until(lambda: world.nodes()["pay"].phase == "Running", 60)
        run = world.cluster.get_run("default", "run").metadata.uid
        (node,) = world.cluster.nodes_of("default", run)
        held = world.ledger.space("default").node(node.metadata.uid)
        assert held.order is not None
        claim = Claim(held.order, held.token, held.stream, held.entry)
        world.kill_worker()
        if meanwhile:
            await world.kill_scheduler()
            assert await world.ledger.fence_attempt("default", node.metadata.uid, 1)
        else:
            await world.until(lambda: world.nodes()["pay"].phase == "Quarantined", 600)
            assert (world.nodes()["pay"].cost, world.nodes()["pay"].cost_estimated) == (250_000, True)
        for _ in range(2):
            if late is None:
                assert not await world.ledger.abandon_claim(claim, "ClaimLost")
            else:
                assert await world.ledger.commit(claim, late) is CommitVerdict.FENCED
        if meanwhile:
            world.start_scheduler()
            world.start_worker()
            await world.until(lambda: world.nodes()["pay"].seq > 1, 600)
        await world.until(lambda: world.nodes()["pay"].cost == want_cost, 60)
        assert not world.nodes()["pay"].cost_estimated
        assert world.nodes()["pay"].estimates == ()
        assert (await world.ledger.find_counters("default", run)).settled.micros == want_cost

    in_world(test, 'pay: {cost: {perCall: "0.25"}, timeout: 10s}', "tools: {pay: [{hang: true}]}")


@pytest.mark.parametrize(
    "budget, want_calls, want_phase",
    [
        pytest.param('limit: "1.00"', 2, "Failed", id="two of three fit"),
        pytest.param('limit: "1.20"', 3, "Succeeded", id="all fit"),
        pytest.param('limit: "0"', 0, "Failed", id="zero is nothing"),
        pytest.param("tokens: 5", 3, "Succeeded", id="unset money is unlimited"),
    ],
)
def test_a_budget_is_never_overspent_by_parallel_calls(budget: str, want_calls: int, want_phase: str) -> None:
    played = play(
        f"""
        budget: {{{budget}}}
        nodes:
        - {{name: a, tool: act, params: {{n: 1}}}}
        - {{name: b, tool: act, params: {{n: 2}}}}
        - {{name: c, tool: act, params: {{n: 3}}}}
        """,
        'act: {cost: {perCall: "0.40"}}',
        "tools: {act: [{result: 1, delay: 5s}]}",
    )
    assert played.calls("act") == want_calls
    assert played.phase == want_phase
    if want_phase == "Failed":
        reasons = {status.failure.reason for status in map(played.node, "abc") if status.failure}
        assert "BudgetExhausted" in reasons


def test_a_nodes_own_budget_stops_its_retries() -> None:
    played = play(
        'nodes: [{name: a, tool: act, budget: {limit: "0.50"}, retry: {limit: 5, backoff: {initial: 1s}}}]',
        'act: {sideEffect: None, cost: {perCall: "0.40"}}',
        'tools: {act: [{failure: {effect: Executed, class: Retryable}, cost: "0.40"}, {result: 1}]}',
    )
    assert played.calls("act") == 1


def test_a_call_that_was_put_on_record_and_never_sent_is_sent_at_once_by_the_next_scheduler() -> None:
    async def test(world: World) -> None:
        sends, hangs = world.ledger.dispatch, asyncio.Event()

        async def never_arrive(*order: object) -> DispatchAnswer:
            hangs.set()
            await asyncio.Event().wait()
            raise AssertionError("nothing wakes it")

        world.ledger.dispatch = never_arrive  # type: ignore[method-assign]
        world.start_worker()
        world.start_scheduler()
        world.apply_run(PAY)
        await hangs.wait()
        assert [node.phase for node in world.nodes().values()] == ["Queued"]
        world.ledger.dispatch = sends  # type: ignore[method-assign]
        died_at = world.clock.now()
        world.start_scheduler()
        ended = await world.ended()
        assert ended.phase == "Succeeded"
        assert [node.attempt for node in world.nodes().values()] == [1]
        assert world.clock.now() - died_at < CLAIM_WITHIN

    in_world(test, "pay: {timeout: 10s}", "tools: {pay: [{result: {id: 1}}]}")
