"""Whole runs on virtual time: dependencies, joins, conditions, skips, fan-outs, references."""

import pytest

from support.scenario import play

WORK = "work: {sideEffect: None}"


def test_a_run_of_three_nodes_passes_values_on() -> None:
    played = play(
        """
        nodes:
        - {name: a, tool: work}
        - {name: b, tool: work}
        - {name: c, tool: keep, dependsOn: [a, b], params: {left: "${nodes.a.result.n}", right: "${nodes.b.result}"}}
        """,
        "{work: {sideEffect: None}, keep: {sideEffect: None}}",
        "tools: {work: [{result: {n: 9007199254740993}}], keep: [{result: kept}]}",
    )
    assert played.phase == "Succeeded"
    assert played.node("c").call is not None
    assert played.node("c").call.params == {"left": 9007199254740993, "right": {"n": 9007199254740993}}
    assert played.steps("c") == ["Ready", "Queued", "Running", "Succeeded"]


CONDITION = """
nodes:
- {name: a, tool: work}
- name: route
  type: Condition
  dependsOn: [a]
  condition: {cases: [{when: {path: nodes.a.result.total, op: gt, value: 10}, goto: many}], default: few}
- {name: many, tool: work}
- {name: few, tool: work}
- {name: after-many, tool: work, dependsOn: [many]}
- {name: after-both, tool: work, dependsOn: [many, few], join: {rule: Any}}
"""


@pytest.mark.parametrize(
    "total, want_phases",
    [
        pytest.param(
            "11",
            {"many": "Succeeded", "few": "Skipped", "after-many": "Succeeded", "after-both": "Succeeded"},
            id="case",
        ),
        pytest.param(
            "10",
            {"many": "Skipped", "few": "Succeeded", "after-many": "Skipped", "after-both": "Succeeded"},
            id="default",
        ),
    ],
)
def test_a_condition_chooses_one_branch_and_skips_the_other_with_all_behind_it(
    total: str, want_phases: dict[str, str]
) -> None:
    played = play(CONDITION, WORK, f"tools: {{work: [{{result: {{total: {total}}}}}]}}")
    assert played.phase == "Succeeded"
    assert {path: played.phases[path] for path in want_phases} == want_phases


@pytest.mark.parametrize(
    "result, want_message",
    [
        pytest.param("{}", "nodes.a.result.total", id="missing path"),
        pytest.param('{total: "11"}', "string", id="text for a number"),
        pytest.param("{total: null}", "null", id="null"),
        pytest.param("{total: true}", "boolean", id="truth value"),
    ],
)
def test_a_condition_on_a_missing_or_mistyped_value_is_an_error_never_the_default(
    result: str, want_message: str
) -> None:
    played = play(CONDITION, WORK, f"tools: {{work: [{{result: {result}}}]}}")
    route = played.node("route")
    assert (route.phase, played.phase) == ("Dead", "Failed")
    assert route.failure is not None
    assert route.failure.reason == "ConditionError"
    assert want_message in route.failure.message
    assert played.phases["few"] != "Succeeded"


def test_a_branch_is_chosen_by_how_a_node_failed() -> None:
    played = play(
        """
        nodes:
        - {name: pay, tool: pay, onFailure: Continue, retry: {limit: 0}}
        - name: route
          type: Condition
          dependsOn: [pay]
          condition:
            cases:
            - {when: {path: nodes.pay.class, op: eq, value: Permanent}, goto: tell}
            - {when: {path: nodes.pay.effect, op: eq, value: NotExecuted}, goto: again}
        - {name: tell, tool: work}
        - {name: again, tool: work}
        """,
        "{pay: {}, work: {sideEffect: None}}",
        "tools: {pay: [{failure: {class: Permanent, reason: Declined, message: no funds}}], work: [{result: 1}]}",
    )
    assert played.phase == "Succeeded"
    assert played.phases == {"pay": "Dead", "route": "Succeeded", "tell": "Succeeded", "again": "Skipped"}
    assert played.node("pay").tolerated


@pytest.mark.parametrize(
    "rule, ends, want",
    [
        pytest.param("{rule: All}", "ok ok", "Succeeded", id="all met"),
        pytest.param("{rule: All}", "ok dead", "Skipped", id="all misses one"),
        pytest.param("{rule: Any}", "dead ok", "Succeeded", id="any"),
        pytest.param("{rule: AtLeast, count: 2}", "ok ok", "Succeeded", id="at least met"),
        pytest.param("{rule: AtLeast, count: 2}", "ok dead", "Skipped", id="at least missed"),
        pytest.param("{rule: Always}", "dead dead", "Succeeded", id="always"),
        pytest.param("{rule: NoFailureOneSuccess}", "ok ok", "Succeeded", id="no failure"),
    ],
)
def test_a_join_rule_decides_over_ends(rule: str, ends: str, want: str) -> None:
    tools = ends.split()
    played = play(
        f"""
        onNodeFailure: Suspend
        waits: {{suspended: 1m}}
        nodes:
        - {{name: a, tool: {tools[0]}}}
        - {{name: b, tool: {tools[1]}}}
        - {{name: join, type: Join, dependsOn: [a, b], join: {rule}}}
        """,
        "{ok: {sideEffect: None}, dead: {sideEffect: None, retry: {limit: 0}}}",
        """
        tools:
          ok: [{result: 1}]
          dead: [{failure: {class: Permanent}, delay: 1s}]
        humans:
        - {node: a, verdict: Discard}
        - {node: b, verdict: Discard}
        """,
    )
    assert played.phases["join"] in (want, "Cancelled")
    if want == "Succeeded":
        assert played.phases["join"] == want


def test_a_join_waits_for_the_slow_parent_after_the_fast_one_was_skipped() -> None:
    played = play(
        """
        nodes:
        - {name: pick, type: Condition, condition: {cases: [{when: {path: inputs.x, op: eq, value: 1}, goto: fast}]}}
        - {name: fast, tool: work}
        - {name: slow, tool: slow}
        - {name: join, type: Join, dependsOn: [fast, slow], join: {rule: NoFailureOneSuccess}}
        inputs: {x: 2}
        """,
        "{work: {sideEffect: None}, slow: {sideEffect: None, timeout: 1m}}",
        "tools: {work: [{result: 1}], slow: [{result: 1, delay: 30s}]}",
    )
    assert played.phases == {"pick": "Succeeded", "fast": "Skipped", "slow": "Succeeded", "join": "Succeeded"}


FAN_OUT = """
inputs: {{skus: {skus}}}
nodes:
- {{name: check, type: FanOut, fanOut: {{items: "${{inputs.skus}}", {more} node: {{tool: work, params: {{sku: "${{item}}", at: "${{index}}"}}}}}}}}
- {{name: sum, tool: keep, dependsOn: [check], params: {{all: "${{nodes.check.results}}"}}}}
"""
FAN_TOOLS = "{work: {sideEffect: None, retry: {limit: 0}}, keep: {sideEffect: None}}"


def test_a_fan_out_gives_its_results_in_item_order_whatever_ends_first() -> None:
    played = play(
        FAN_OUT.format(skus="[c, a, b]", more=""),
        FAN_TOOLS,
        """
        tools:
          work:
          - {when: {sku: c}, answers: [{result: first, delay: 9s}]}
          - {when: {sku: a}, answers: [{result: second, delay: 1s}]}
          - {when: {sku: b}, answers: [{result: third, delay: 5s}]}
          keep: [{result: done}]
        """,
    )
    assert played.phase == "Succeeded"
    assert played.node("sum").call is not None
    assert played.node("sum").call.params == {"all": ["first", "second", "third"]}


def test_an_empty_fan_out_succeeds_and_gives_an_empty_list() -> None:
    played = play(FAN_OUT.format(skus="[]", more=""), FAN_TOOLS, "tools: {keep: [{result: done}]}")
    assert played.ends["check"] == ("Succeeded", "JoinMet")
    assert played.node("sum").call is not None
    assert played.node("sum").call.params == {"all": []}


def test_a_fan_out_keeps_to_its_own_width() -> None:
    played = play(
        FAN_OUT.format(skus="[1, 2, 3, 4, 5, 6, 7]", more="maxParallel: 2,"),
        FAN_TOOLS,
        "tools: {work: [{result: 1, delay: 10s}], keep: [{result: 1}]}",
    )
    assert played.phase == "Succeeded"
    assert played.scenario.counts.most_at_once["work"] == 2


def test_a_fan_out_of_too_many_items_ends_the_run_dead_with_the_limits_name() -> None:
    played = play(FAN_OUT.format(skus="[1, 2, 3]", more="maxItems: 2,"), FAN_TOOLS)
    assert (played.phase, played.run.reason) == ("Dead", "TooManyItems")
    assert played.calls("work") == 0


@pytest.mark.parametrize("items", [pytest.param("text", id="text"), pytest.param("{a: 1}", id="object")])
def test_a_fan_out_over_no_list_is_quarantined_and_says_so(items: str) -> None:
    played = play(FAN_OUT.format(skus=items, more=""), FAN_TOOLS)
    assert played.phases["check"] == "Quarantined"
    assert "no list" in played.node("check").message


def test_a_graph_for_each_item_skips_within_its_own_instance_only() -> None:
    played = play(
        """
        inputs: {amounts: [5, 50]}
        nodes:
        - name: each
          type: FanOut
          fanOut:
            items: "${inputs.amounts}"
            nodes:
            - {name: look, tool: work, params: {amount: "${item}"}}
            - name: big
              type: Condition
              dependsOn: [look]
              condition: {cases: [{when: {path: item, op: gt, value: 10}, goto: report}], default: keep}
            - {name: report, tool: work}
            - {name: keep, tool: work}
            - {name: last, tool: work, dependsOn: [report, keep], join: {rule: Any}, params: {v: "${nodes.look.result}"}}
        """,
        WORK,
        "tools: {work: [{result: 7}]}",
    )
    assert played.phase == "Succeeded"
    assert played.phases["each.0.report"] == played.phases["each.1.keep"] == "Skipped"
    assert played.phases["each.0.last"] == played.phases["each.1.last"] == "Succeeded"


def test_a_fan_out_whose_rule_is_met_needs_the_rest_no_more() -> None:
    played = play(
        """
        nodes:
        - {name: any, type: FanOut, fanOut: {items: [1, 2, 3], join: {rule: Any}, node: {tool: work, params: {n: "${item}"}}}}
        """,
        "work: {sideEffect: None, timeout: 10m, retry: {limit: 0}}",
        """
        tools:
          work:
          - {when: {n: 1}, answers: [{failure: {class: Permanent}}]}
          - {when: {n: 2}, answers: [{result: 2, delay: 5s}]}
          - {when: {n: 3}, answers: [{result: 3, delay: 100s}]}
        """,
    )
    assert played.phases["any"] == "Succeeded"
    assert played.phase == "Succeeded"


def test_a_failed_instance_fails_its_fan_out_and_the_run() -> None:
    played = play(
        FAN_OUT.format(skus="[1, 2]", more=""),
        FAN_TOOLS,
        "tools: {work: [{failure: {class: Permanent, reason: Sold}}, {result: 1}]}",
    )
    assert played.phase == "Failed"
    assert played.phases["check"] in ("Dead", "Cancelled")


def test_what_a_skipped_node_did_not_give_is_its_declared_default() -> None:
    spec = """
    inputs: {{x: 2}}
    nodes:
    - {{name: pick, type: Condition, condition: {{cases: [{{when: {{path: inputs.x, op: eq, value: 1}}, goto: rate}}]}}}}
    - {{name: rate, tool: work, {defaults}}}
    - {{name: use, tool: keep, dependsOn: [rate], join: {{rule: Always}}, params: {{rate: "${{nodes.rate.result.rate}}"}}}}
    """
    with_default = play(
        spec.format(defaults='defaults: {result.rate: "1.0"}'), FAN_TOOLS, "tools: {keep: [{result: 1}]}"
    )
    assert with_default.node("use").call is not None
    assert with_default.node("use").call.params == {"rate": "1.0"}
    without = play(spec.format(defaults="optional: true"), FAN_TOOLS, "tools: {keep: [{result: 1}]}")
    use = without.node("use")
    assert (use.phase, use.reason) == ("Quarantined", "ReferenceUnresolved")
    assert "rate" in use.message
    assert "Skipped" in use.message
    assert without.calls("keep") == 0


def test_text_with_template_marks_in_a_result_stays_text() -> None:
    marks = '"${nodes.a.result} {{7*7}} $(id)"'
    played = play(
        'nodes: [{name: a, tool: work}, {name: b, tool: keep, dependsOn: [a], params: {t: "got ${nodes.a.result}"}}]',
        FAN_TOOLS,
        f"tools: {{work: [{{result: {marks}}}], keep: [{{result: 1}}]}}",
    )
    assert played.node("b").call is not None
    assert played.node("b").call.params == {"t": "got ${nodes.a.result} {{7*7}} $(id)"}


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]], ids=str)
def test_the_order_of_nodes_in_the_manifest_changes_nothing(order: list[int]) -> None:
    nodes = [
        "{name: a, tool: work}",
        "{name: b, type: Condition, dependsOn: [a], condition: {cases: "
        "[{when: {path: nodes.a.result, op: eq, value: 1}, goto: c}]}}",
        "{name: c, tool: work}",
        "{name: d, type: Join, dependsOn: [c, a]}",
    ]
    played = play(f"nodes: [{', '.join(nodes[at] for at in order)}]", WORK, "tools: {work: [{result: 1}]}")
    assert played.phases == {"a": "Succeeded", "b": "Succeeded", "c": "Succeeded", "d": "Succeeded"}


def test_a_node_is_reached_by_several_conditions_if_one_of_them_chooses_it() -> None:
    played = play(
        """
        inputs: {x: 2}
        nodes:
        - {name: one, type: Condition, condition: {cases: [{when: {path: inputs.x, op: eq, value: 1}, goto: t}]}}
        - {name: two, type: Condition, condition: {cases: [{when: {path: inputs.x, op: eq, value: 2}, goto: t}]}}
        - {name: three, type: Condition, condition: {cases: [{when: {path: inputs.x, op: eq, value: 3}, goto: t}]}}
        - {name: t, tool: work}
        """,
        WORK,
        "tools: {work: [{result: 1}]}",
    )
    assert played.phases["t"] == "Succeeded"
    assert played.calls("work") == 1


def test_a_priority_is_taken_from_a_results_field() -> None:
    spec = """
    nodes:
    - {{name: triage, tool: work}}
    - name: act
      tool: keep
      dependsOn: [triage]
      priorityFrom: {{path: nodes.triage.result.urgency, map: {{high: P0, low: P3}}, default: P2}}
    """.replace("{{", "{").replace("}}", "}")
    for urgency, want in (("high", "P0"), ("low", "P3"), ("odd", "P2")):
        script = f"tools: {{work: [{{result: {{urgency: {urgency}}}}}], keep: [{{result: 1}}]}}"
        assert play(spec, FAN_TOOLS, script).node("act").priority == want
    missing = play(spec, FAN_TOOLS, "tools: {work: [{result: {}}], keep: [{result: 1}]}")
    assert missing.ends["act"] == ("Quarantined", "ReferenceUnresolved")


def test_an_upstream_that_never_ends_ends_the_wait_with_a_human() -> None:
    played = play(
        """
        waits: {dependencies: 10m, inbox: 1h}
        timeout: 5h
        nodes:
        - {name: a, tool: slow, timeout: 2h}
        - {name: b, tool: slow, dependsOn: [a]}
        """,
        "slow: {sideEffect: None, retry: {limit: 0}}",
        "tools: {slow: [{result: 1, delay: 90m}]}",
    )
    assert "Quarantined" in played.steps("b")
    assert played.node("b").timeline[0].reason == "DependencyWaitExceeded"


def test_a_tool_that_never_comes_leaves_the_run_waiting_but_not_for_ever() -> None:
    played = play("waits: {suspended: 2h}\nnodes: [{name: a, tool: nowhere}]", "{other: {}}")
    assert (played.phase, played.run.reason) == ("Rejected", "ToolNotFound")
    assert "nowhere" in played.run.message
