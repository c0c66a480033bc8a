"""Whole runs on virtual time: what a human is asked, and what each answer leads to."""

import pytest

from support.scenario import Played, play

REFUND = """
refund:
  approval: {when: [{path: params.amount, op: gt, value: 500}]}
  params:
    schema: {type: object, required: [amount], properties: {amount: {type: integer, maximum: 10000}}}
"""


def refund(amount: int, humans: str, more: str = "") -> Played:
    return play(
        f"nodes: [{{name: pay, tool: refund, params: {{amount: {amount}}}}}]",
        REFUND,
        f"{{tools: {{refund: [{{result: paid}}]}}, humans: [{humans}]{more}}}",
    )


def test_a_small_amount_asks_nobody() -> None:
    assert refund(500, "").approvals("pay") == []


def test_an_approved_call_is_made_once_with_the_params_that_were_shown() -> None:
    played = refund(501, "{node: pay, verdict: Approve, after: 10h, by: Ada}")
    assert played.phase == "Succeeded"
    assert played.steps("pay") == ["Ready", "WaitingApproval", "Ready", "Queued", "Running", "Succeeded"]
    assert played.approvals("pay") == [("Call", "Applied")]
    assert played.effects("refund") == 1
    assert played.node("pay").timeline[2].actor.name == "Ada"


def test_waiting_for_a_human_does_not_count_against_the_runs_time() -> None:
    played = play(
        "timeout: 1m\nnodes: [{name: pay, tool: refund, params: {amount: 501}}]",
        REFUND,
        "{tools: {refund: [{result: paid}]}, humans: [{node: pay, verdict: Approve, after: 10h}]}",
    )
    assert played.phase == "Succeeded"


def test_a_rejected_call_is_never_made_and_the_run_fails() -> None:
    played = refund(501, "{node: pay, verdict: Reject, reason: too much}")
    assert played.phase == "Failed"
    assert played.ends["pay"] == ("Dead", "RejectedByHuman")
    assert played.calls("refund") == 0


def test_nobody_answers_and_the_question_expires() -> None:
    played = play(
        "waits: {inbox: 2h}\nnodes: [{name: ask, type: Approval, approval: {message: go on?}}, "
        "{name: other, tool: refund, params: {amount: 1}}]",
        "refund: {timeout: 4h}",
        # The run does not stand still, so local mode does not give up on it before the question expires.
        "{tools: {refund: [{result: 1}]}, humans: [{node: ask, verdict: Approve, after: 3h}]}",
    )
    assert played.ends["ask"] == ("Dead", "Expired")
    assert played.phase == "Failed"


def test_edited_params_go_through_the_gate_again() -> None:
    smaller = refund(5000, "{node: pay, verdict: Approve, params: {amount: 100}}")
    assert smaller.phase == "Succeeded"
    assert smaller.node("pay").call is not None
    assert smaller.node("pay").call.params == {"amount": 100}
    misfit = refund(5000, "{node: pay, verdict: Approve, params: {amount: 99999}}")
    assert misfit.ends["pay"] == ("Quarantined", "ParamsInvalid")
    assert misfit.calls("refund") == 0


def test_an_answer_about_other_params_is_refused_and_asked_anew() -> None:
    played = refund(
        501,
        "{node: pay, verdict: Approve, params_digest: 'sha256:0'}, {node: pay, verdict: Approve}".replace(
            "params_digest", "paramsDigest"
        ),
    )
    assert played.phase == "Succeeded"
    assert played.approvals("pay") == [("Call", "Refused"), ("Call", "Applied")]
    assert played.effects("refund") == 1


def test_a_verdict_that_does_not_fit_the_question_moves_nothing() -> None:
    played = refund(501, "{node: pay, verdict: Resolve, result: 1}, {node: pay, verdict: Approve}")
    assert played.approvals("pay")[0] == ("Call", "Refused")
    assert played.effects("refund") == 1


def test_each_of_two_questions_is_answered_for_itself() -> None:
    played = play(
        """
        onNodeFailure: Continue
        nodes:
        - {name: one, tool: refund, params: {amount: 501}}
        - {name: two, tool: refund, params: {amount: 502}}
        """,
        REFUND,
        """
        tools: {refund: [{result: paid}]}
        humans: [{node: two, verdict: Approve, after: 1m}, {node: one, verdict: Reject, after: 2m}]
        """,
    )
    assert played.phases == {"one": "Dead", "two": "Succeeded"}
    assert played.effects("refund") == 1


def test_an_approval_that_pauses_the_run_holds_every_other_node() -> None:
    played = play(
        """
        nodes:
        - {name: pay, tool: refund, params: {amount: 501}}
        - {name: first, tool: work}
        - {name: second, tool: work, dependsOn: [first]}
        """,
        "{refund: {approval: {required: Always, pauses: Run}}, work: {sideEffect: None}}",
        """
        tools: {refund: [{result: paid}], work: [{result: 1, delay: 10s}]}
        humans: [{node: pay, verdict: Approve, after: 1h}]
        """,
    )
    assert played.phase == "Succeeded"
    second, pay = played.node("second"), played.node("pay")
    assert second.started_at is not None
    assert pay.started_at is not None
    assert second.started_at >= pay.started_at


def test_an_approval_node_gives_its_answer_as_result() -> None:
    played = play(
        """
        nodes:
        - {name: ask, type: Approval, approval: {message: "go on with ${inputs.x}?"}}
        - {name: next, tool: work, dependsOn: [ask], params: {ok: "${nodes.ask.result.approved}"}}
        inputs: {x: 1}
        """,
        "work: {sideEffect: None}",
        "{tools: {work: [{result: 1}]}, humans: [{node: ask, verdict: Approve, reason: fine, by: Ada}]}",
    )
    assert played.phase == "Succeeded"
    assert played.node("ask").result == {"approved": True, "by": "Ada", "reason": "fine"}
    assert played.node("next").call is not None
    assert played.node("next").call.params == {"ok": True}


def test_a_retry_is_granted_after_the_last_one() -> None:
    played = play(
        "priority: P1\nnodes: [{name: a, tool: work, timeout: 10s}]",
        "work: {sideEffect: None, retry: {limit: 0}}",
        """
        tools: {work: [{failure: {message: "503"}}, {result: 1}]}
        humans: [{node: a, verdict: Approve, after: 1h}]
        """,
    )
    assert played.phase == "Succeeded"
    assert played.approvals("a") == [("Grant", "Applied")]
    assert played.node("a").attempt == 2


QUARANTINED = """
nodes: [{name: a, tool: work, params: {n: wrong}}, {name: b, tool: next, dependsOn: [a]}]
"""
QUARANTINE_TOOLS = """
work: {params: {schema: {type: object, properties: {n: {type: integer}}}}}
next: {sideEffect: None}
"""


def quarantined(decision: str) -> Played:
    return play(
        QUARANTINED,
        QUARANTINE_TOOLS,
        f"{{tools: {{work: [{{result: 1}}], next: [{{result: 1}}]}}, humans: [{decision}]}}",
    )


def test_params_that_miss_the_schema_call_nothing_and_name_the_path() -> None:
    played = quarantined("")
    assert played.ends["a"] == ("Quarantined", "ParamsInvalid")
    assert "params.n" in played.node("a").message
    assert played.calls("work") == 0
    assert (played.phase, played.run.reason) == ("Suspended", "WaitingForHumans")


@pytest.mark.parametrize(
    "decision, want_phases, want_calls",
    [
        pytest.param("{node: a, verdict: Release, params: {n: 1}}", ("Succeeded", "Succeeded"), 1, id="release"),
        pytest.param("{node: a, verdict: Resolve, result: 7}", ("Succeeded", "Succeeded"), 0, id="resolve"),
        pytest.param("{node: a, verdict: Discard}", ("Dead", "Skipped"), 0, id="discard"),
    ],
)
def test_a_quarantined_node_is_released_resolved_or_discarded(
    decision: str, want_phases: tuple[str, str], want_calls: int
) -> None:
    played = quarantined(decision)
    ends = played.phases
    assert ends["a"] == want_phases[0]
    assert ends["b"] in (want_phases[1], "Cancelled")
    assert played.calls("work") == want_calls


def test_a_quarantine_expires_as_declared() -> None:
    played = play(
        "waits: {inbox: 1h}\ntimeout: 5h\n"
        "nodes: [{name: a, tool: work, params: {n: wrong}}, {name: long, tool: next, timeout: 2h}]",
        QUARANTINE_TOOLS,
        "tools: {next: [{result: 1, delay: 90m}]}",
    )
    assert played.ends["a"] == ("Dead", "Expired")


UNKNOWN = "nodes: [{name: pay, tool: pay}, {name: b, tool: next, dependsOn: [pay]}]"
UNKNOWN_TOOLS = "{pay: {}, next: {sideEffect: None}}"


def unknown(humans: str) -> Played:
    return play(
        UNKNOWN,
        UNKNOWN_TOOLS,
        f"""
        tools:
          pay: [{{failure: {{effect: Unknown, reason: ConnectionLost, message: reset}}}}, {{result: paid}}]
          next: [{{result: 1}}]
        humans: [{humans}]
        """,
    )


def test_an_unknown_outcome_of_a_once_tool_is_never_run_again_by_itself() -> None:
    played = unknown("")
    assert played.ends["pay"] == ("Quarantined", "OutcomeUnknown")
    assert played.steps("pay")[-2:] == ["TimedOut", "Quarantined"]
    assert played.calls("pay") == 1


def test_releasing_an_unknown_outcome_needs_the_answer_that_nothing_happened() -> None:
    played = unknown("{node: pay, verdict: Release}, {node: pay, verdict: Release, effect: NotExecuted}")
    assert played.approvals("pay")[:2] == [("Quarantine", "Refused"), ("Quarantine", "Applied")]
    assert played.phase == "Succeeded"
    assert played.calls("pay") == 2


def test_releasing_what_was_executed_is_refused() -> None:
    played = unknown("{node: pay, verdict: Release, effect: Executed}")
    assert played.approvals("pay")[0] == ("Quarantine", "Refused")
    assert played.calls("pay") == 1


def test_an_unknown_outcome_is_resolved_with_its_result() -> None:
    played = unknown("{node: pay, verdict: Resolve, effect: Executed, result: {id: 7}}")
    assert played.phase == "Succeeded"
    assert played.node("pay").result == {"id": 7}
    assert played.node("pay").effect == "Executed"
    assert played.calls("pay") == 1


def test_a_result_that_misses_the_tools_schema_resolves_nothing() -> None:
    played = play(
        UNKNOWN,
        "{pay: {result: {schema: {type: object, required: [id]}}}, next: {sideEffect: None}}",
        """
        tools: {pay: [{failure: {effect: Unknown}}], next: [{result: 1}]}
        humans:
        - {node: pay, verdict: Resolve, effect: Executed, result: {}}
        - {node: pay, verdict: Resolve, effect: Executed, result: {id: 7}}
        """,
    )
    assert played.approvals("pay") == [("Quarantine", "Refused"), ("Quarantine", "Applied")]
    assert played.phase == "Succeeded"


def test_a_dead_node_is_driven_again_while_the_run_lives() -> None:
    played = play(
        "onNodeFailure: Suspend\nnodes: [{name: a, tool: work}, {name: b, tool: work, dependsOn: [a]}]",
        "work: {sideEffect: None, retry: {limit: 0}}",
        """
        tools: {work: [{failure: {class: Permanent}}, {result: 1}]}
        humans: [{node: a, verdict: Redrive, after: 5h}]
        """,
    )
    assert played.phase == "Succeeded"
    assert played.steps("a")[:5] == ["Ready", "Queued", "Running", "Failed", "Dead"]
    assert played.approvals("a") == [("Dead", "Applied")]
    assert played.phases["b"] == "Succeeded"


def test_a_dead_node_that_is_discarded_ends_its_run() -> None:
    played = play(
        "onNodeFailure: Suspend\nnodes: [{name: a, tool: work}, {name: b, tool: work, dependsOn: [a]}]",
        "work: {sideEffect: None, retry: {limit: 0}}",
        "{tools: {work: [{failure: {class: Permanent}}]}, humans: [{node: a, verdict: Discard}]}",
    )
    assert played.phase == "Failed"
    assert played.phases["b"] in ("Skipped", "Cancelled")


def test_what_needs_a_human_goes_to_one() -> None:
    played = play(
        "nodes: [{name: a, tool: work}]",
        "work: {}",
        "{tools: {work: [{failure: {class: NeedsHuman, reason: LimitReached, message: credit limit}}, {result: 1}]}, "
        "humans: [{node: a, verdict: Release}]}",
    )
    assert played.phase == "Succeeded"
    assert "Quarantined" in played.steps("a")
    assert played.node("a").attempt == 2


def test_after_the_last_retry_an_urgent_node_goes_to_a_human() -> None:
    played = play(
        "nodes: [{name: a, tool: work, priority: P0, retry: {limit: 1, backoff: {initial: 1s}}}]",
        "work: {sideEffect: None}",
        "tools: {work: [{failure: {}}]}",
    )
    assert played.ends["a"] == ("Quarantined", "RetriesExhausted")
    assert played.calls("work") == 2


def test_after_the_last_retry_an_unimportant_node_is_dropped_with_a_record() -> None:
    played = play(
        "nodes: [{name: a, tool: work, priority: P3, onFailure: Continue}, {name: b, tool: ok}]",
        "{work: {sideEffect: None}, ok: {sideEffect: None}}",
        "tools: {work: [{failure: {}}], ok: [{result: 1}]}",
    )
    assert played.ends["a"] == ("Dead", "Dropped")
    assert played.phase == "Succeeded"
