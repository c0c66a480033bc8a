"""Whole runs on virtual time: retries, deadlines, cancel, suspend, degradation, and how runs end."""

import asyncio
from datetime import timedelta

import pytest

from support.scenario import play
from support.world import World, in_world

SLOW = "work: {sideEffect: None, timeout: 1h}"


def test_a_passing_failure_is_retried_as_often_as_its_priority_says() -> None:
    for priority, want_calls in (("P0", 3), ("P1", 3), ("P2", 2), ("P3", 1)):
        played = play(
            f"nodes: [{{name: a, tool: work, priority: {priority}}}]",
            "work: {sideEffect: None, retry: {backoff: {initial: 10ms}, afterLast: Dead}}",
            "tools: {work: [{failure: {}}]}",
        )
        assert played.calls("work") == want_calls
        assert played.ends["a"] == ("Dead", "RetriesExhausted")


def test_a_permanent_failure_is_not_retried() -> None:
    played = play("nodes: [{name: a, tool: work}]", SLOW, "tools: {work: [{failure: {class: Permanent}}]}")
    assert played.calls("work") == 1
    assert played.ends["a"] == ("Dead", "NodeFailed")


def test_retry_after_is_waited_for() -> None:
    played = play(
        "nodes: [{name: a, tool: work}]",
        "work: {sideEffect: None}",
        "tools: {work: [{failure: {reason: RateLimited, retryAfter: 40s}}, {result: 1}]}",
    )
    assert played.phase == "Succeeded"
    assert played.scenario.took >= timedelta(seconds=40)


def test_a_retry_after_beyond_the_deadline_ends_the_node_at_once() -> None:
    played = play(
        "nodes: [{name: a, tool: work}]",
        "work: {sideEffect: None}",
        "tools: {work: [{failure: {reason: RateLimited, retryAfter: 1h}}, {result: 1}]}",
    )
    assert played.phase == "Failed"
    assert played.calls("work") == 1
    assert played.scenario.took < timedelta(minutes=1)


def test_no_attempt_starts_after_the_runs_deadline() -> None:
    played = play(
        "{timeout: 12s, nodes: [{name: a, tool: work, timeout: 5s, retry: {limit: 3, backoff: {initial: 10s}}}]}",
        "work: {sideEffect: None}",
        "tools: {work: [{hang: true}]}",
    )
    assert played.phase == "Failed"
    assert played.scenario.took <= timedelta(seconds=23)
    assert played.calls("work") <= 3


def test_the_runs_deadline_ends_what_waits_and_lets_attempts_end_first() -> None:
    played = play(
        """
        timeout: 30s
        nodes: [{name: a, tool: work, timeout: 1h}, {name: b, tool: work, dependsOn: [a]}]
        """,
        SLOW,
        "tools: {work: [{result: 1, delay: 20m}]}",
    )
    assert (played.phase, played.run.reason) == ("Failed", "RunDeadlineExceeded")
    assert played.phases["b"] in ("Cancelled", "Skipped")


def test_an_optional_node_that_fails_is_skipped() -> None:
    played = play(
        "nodes: [{name: a, tool: work, optional: true}, {name: b, tool: ok, dependsOn: [a], join: {rule: Always}}]",
        "{work: {sideEffect: None, retry: {limit: 0}}, ok: {sideEffect: None}}",
        "tools: {work: [{failure: {}}], ok: [{result: 1}]}",
    )
    assert played.ends["a"] == ("Skipped", "OptionalFailed")
    assert played.phase == "Succeeded"


def test_a_tolerated_failure_lets_the_run_succeed() -> None:
    played = play(
        "{onNodeFailure: Continue, nodes: [{name: a, tool: work}, {name: b, tool: ok, dependsOn: [a]}]}",
        "{work: {sideEffect: None, retry: {limit: 0}}, ok: {sideEffect: None}}",
        "tools: {work: [{failure: {}}], ok: [{result: 1}]}",
    )
    assert played.phase == "Succeeded"
    assert played.phases == {"a": "Dead", "b": "Succeeded"}


def test_an_abort_lets_running_nodes_end_and_cancels_the_rest() -> None:
    played = play(
        """
        nodes:
        - {name: bad, tool: bad}
        - {name: long, tool: work}
        - {name: later, tool: work, dependsOn: [long]}
        """,
        f"{{bad: {{sideEffect: None}}, {SLOW}}}".replace("work: {", "work: {").replace("}}}", "}}}"),
        "tools: {bad: [{failure: {class: Permanent}, delay: 1s}], work: [{result: 1, delay: 60s}]}",
    )
    assert (played.phase, played.run.reason) == ("Failed", "NodeFailed")
    assert played.phases == {"bad": "Dead", "long": "Succeeded", "later": "Cancelled"}
    assert played.approvals("bad") == [("Dead", "Open")]


def test_when_the_retries_are_spent_a_cheaper_tool_takes_over() -> None:
    played = play(
        "nodes: [{name: a, tool: dear, params: {n: 1}}]",
        "{dear: {sideEffect: None, retry: {limit: 1, backoff: {initial: 1s}}, degradeTo: [cheap]}, cheap: {sideEffect: None}}",
        "tools: {dear: [{failure: {}}], cheap: [{result: 1}]}",
    )
    assert played.phase == "Succeeded"
    assert (played.calls("dear"), played.calls("cheap")) == (2, 1)
    assert any(line.reason == "Degraded" for line in played.node("a").timeline)


def test_nothing_takes_over_from_a_call_that_may_have_happened() -> None:
    played = play(
        "nodes: [{name: a, tool: dear}]",
        "{dear: {degradeTo: [cheap]}, cheap: {}}",
        "tools: {dear: [{failure: {effect: Unknown}}], cheap: [{result: 1}]}",
    )
    assert played.phases["a"] == "Quarantined"
    assert played.calls("cheap") == 0


CANCEL = """
nodes:
- {name: done, tool: quick}
- {name: running, tool: work, dependsOn: [done]}
- {name: asking, type: Approval, approval: {message: ok?}, dependsOn: [done]}
- {name: failing, tool: fail, dependsOn: [done]}
- {name: waiting, tool: work, dependsOn: [running]}
- {name: fan, type: FanOut, dependsOn: [done], fanOut: {items: [1, 2], maxParallel: 1, node: {tool: work, params: {n: "${item}"}}}}
"""
CANCEL_TOOLS = """
quick: {sideEffect: None}
work: {timeout: 1h}
fail: {sideEffect: None, retry: {limit: 5, backoff: {initial: 60s, max: 60s}}}
"""


def test_a_cancelled_run_ends_every_node_and_keeps_what_was_done() -> None:
    played = play(
        CANCEL,
        CANCEL_TOOLS,
        """
        tools: {quick: [{result: 1}], work: [{result: 1, delay: 10m}], fail: [{failure: {retryAfter: 50s}}]}
        events: [{at: 30s, cancel: true}]
        """,
    )
    assert (played.phase, played.run.reason) == ("Cancelled", "Cancelled")
    assert played.phases.pop("done") == "Succeeded"
    assert {phase for path, phase in played.phases.items() if path != "done"} == {"Cancelled"}
    assert played.node("running").effect == "Unknown"
    assert played.approvals("asking") == [("Call", "Withdrawn")]
    assert played.scenario.took < timedelta(minutes=2)


def test_a_call_that_ends_in_the_moment_of_a_cancel_tells_what_it_did() -> None:
    played = play(
        "nodes: [{name: a, tool: act}, {name: b, tool: act, dependsOn: [a], params: {n: 1}}]",
        'act: {timeout: 1h, cost: {perCall: "0.10"}}',
        "{tools: {act: [{result: 1, delay: 8s}]}, events: [{at: 7s, cancel: true}]}",
    )
    assert played.phase == "Cancelled"
    assert (played.phases["a"], str(played.node("a").effect)) == ("Cancelled", "Executed")
    assert played.run.spent is not None
    assert played.run.spent.cost == 100_000
    assert played.calls("act") == 1


def test_a_deleted_run_is_a_cancelled_run() -> None:
    played = play(
        "nodes: [{name: a, tool: quick}]",
        CANCEL_TOOLS,
        "{tools: {quick: [{result: 1, delay: 10s}]}, events: [{at: 2s, delete: true}]}",
    )
    assert played.scenario.outcome.runs == ()


def test_a_suspended_run_starts_nothing_and_its_clock_stands_still() -> None:
    played = play(
        "{timeout: 5m, nodes: [{name: a, tool: work}, {name: b, tool: work, dependsOn: [a]}]}",
        "work: {sideEffect: None}",
        """
        tools: {work: [{result: 1, delay: 10s}]}
        events: [{at: 5s, suspend: true}, {at: 10h, suspend: false}]
        """,
    )
    assert played.phase == "Succeeded"
    second = played.node("b")
    assert second.started_at is not None
    assert played.run.started_at is not None
    assert second.started_at - played.run.started_at >= timedelta(hours=9)


def test_a_suspended_run_is_cancelled_all_the_same() -> None:
    played = play(
        "nodes: [{name: a, tool: work}, {name: b, tool: work, dependsOn: [a]}]",
        "work: {sideEffect: None}",
        """
        tools: {work: [{result: 1, delay: 10s}]}
        events: [{at: 5s, suspend: true}, {at: 1h, cancel: true}]
        """,
    )
    assert played.phase == "Cancelled"
    assert played.phases == {"a": "Succeeded", "b": "Cancelled"}


def test_a_run_does_not_stand_still_for_ever() -> None:
    played = play(
        "{waits: {suspended: 2h}, nodes: [{name: a, tool: work}, {name: b, tool: work, dependsOn: [a]}]}",
        "work: {sideEffect: None}",
        "{tools: {work: [{result: 1, delay: 10s}]}, events: [{at: 5s, suspend: true}]}",
    )
    assert (played.phase, played.run.reason) == ("Failed", "SuspendedTooLong")


def test_a_retry_that_was_due_while_the_run_stood_still_is_made_once_afterwards() -> None:
    played = play(
        "nodes: [{name: a, tool: work}]",
        "work: {sideEffect: None, timeout: 20s}",
        """
        tools: {work: [{failure: {retryAfter: 30s}}, {result: 1}]}
        events: [{at: 5s, suspend: true}, {at: 20m, suspend: false}]
        """,
    )
    assert played.phase == "Succeeded"
    assert played.calls("work") == 2


def test_workers_that_die_again_and_again_end_a_once_call_with_a_human_and_no_repetition() -> None:
    played = play(
        "nodes: [{name: a, tool: act}]",
        "act: {}",
        "{tools: {act: [{hang: true}]}, events: [{at: 2s, killWorkers: true}, {at: 10s, killWorkers: true}]}",
    )
    assert played.ends["a"] == ("Quarantined", "OutcomeUnknown")
    assert played.calls("act") == 1


def test_a_queue_without_workers_is_bounded() -> None:
    played = play(
        "{waits: {queue: 10m}, timeout: 2h, nodes: "
        "[{name: a, tool: act, timeout: 1h, params: {n: 1}}, {name: b, tool: act, timeout: 1h, params: {n: 2}}]}",
        "act: {sideEffect: None, limits: {concurrency: 1}}",
        "tools: {act: [{result: 1, delay: 20m}]}",
    )
    reasons = [status.failure.reason for status in map(played.node, "ab") if status.failure]
    assert reasons == ["QueueWaitExceeded"]


def test_a_full_backlog_refuses_more_with_its_reason() -> None:
    played = play(
        """
        onNodeFailure: Continue
        nodes: [{name: many, type: FanOut, fanOut: {items: [1, 2, 3, 4, 5, 6], join: {rule: Always}, node: {tool: act, params: {n: "${item}"}}}}]
        """,
        "act: {sideEffect: None, limits: {concurrency: 1, backlog: 2}}",
        "tools: {act: [{result: 1, delay: 1s}]}",
    )
    failures = [played.node(f"many.{at}").failure for at in range(6)]
    refused = [failure.reason for failure in failures if failure is not None]
    assert refused
    assert set(refused) == {"BacklogFull"}
    assert played.calls("act") + len(refused) == 6


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_tools_concurrency_is_never_exceeded(concurrency: int) -> None:
    played = play(
        'nodes: [{name: many, type: FanOut, fanOut: {items: [1, 2, 3, 4, 5, 6, 7, 8], node: {tool: act, params: {n: "${item}"}}}}]',
        f"act: {{sideEffect: None, limits: {{concurrency: {concurrency}}}}}",
        "tools: {act: [{result: 1, delay: 5s}]}",
    )
    assert played.phase == "Succeeded"
    assert played.scenario.counts.most_at_once["act"] == concurrency


def test_a_tools_rate_is_kept_to() -> None:
    played = play(
        'nodes: [{name: many, type: FanOut, fanOut: {items: [1, 2, 3, 4, 5, 6, 7, 8], node: {tool: act, params: {n: "${item}"}}}}]',
        "act: {sideEffect: None, limits: {ratePerSecond: 2}}",
        "tools: {act: [{result: 1}]}",
    )
    assert played.phase == "Succeeded"
    assert played.scenario.took >= timedelta(seconds=3)


def test_urgent_nodes_go_first() -> None:
    played = play(
        """
        nodes:
        - {name: first, tool: act, params: {n: 0}}
        - {name: low, tool: act, params: {n: 1}, priority: P3}
        - {name: mid, tool: act, params: {n: 2}}
        - {name: high, tool: act, params: {n: 3}, priority: P0}
        """,
        "act: {sideEffect: None, limits: {concurrency: 1}}",
        "tools: {act: [{result: 1, delay: 1s}]}",
    )
    started = sorted(
        ("low", "mid", "high"),
        key=lambda path: played.node(path).started_at or played.run.finished_at,  # type: ignore[arg-type,return-value]
    )
    assert started[-1] == "low"
    assert started.index("high") < started.index("mid")


def test_a_node_that_waits_long_rises_and_shows_why_it_waits() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(
            """
            timeout: 2h
            nodes:
            - {name: first, tool: act, params: {n: 1}, priority: P0, timeout: 1h}
            - {name: second, tool: act, params: {n: 2}, timeout: 1h}
            """
        )
        await asyncio.sleep(100)
        assert world.nodes()["second"].waiting_for == "Slots(tool:act)"
        await asyncio.sleep(200)
        assert world.nodes()["second"].waiting_for == "Slots(tool:act) as P1"
        assert world.nodes()["second"].priority == "P2"
        assert (await world.ended(within=7200)).phase == "Succeeded"

    in_world(test, "act: {sideEffect: None, limits: {concurrency: 1}}", "tools: {act: [{result: 1, delay: 10m}]}")


def test_nodes_that_wait_for_a_retry_count_in_the_backlog() -> None:
    played = play(
        """
        onNodeFailure: Continue
        nodes:
        - {name: a, tool: act, params: {n: 1}}
        - {name: b, tool: act, params: {n: 2}}
        - {name: later, tool: wait}
        - {name: c, tool: act, params: {n: 3}, dependsOn: [later]}
        """,
        "{act: {sideEffect: None, limits: {backlog: 2}}, wait: {sideEffect: None}}",
        """
        tools:
          act: [{failure: {retryAfter: 30s}}, {failure: {retryAfter: 30s}}, {result: 1}]
          wait: [{result: 1, delay: 10s}]
        """,
    )
    refused = played.node("c").failure
    assert refused is not None
    assert refused.reason == "BacklogFull"
    assert played.phases["a"] == played.phases["b"] == "Succeeded"


def test_a_failed_run_says_which_failure_came_first() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: bad}, {name: b, dependsOn: [a], tool: bad}]")
        ended = await world.ended()
        assert (ended.phase, ended.reason) == ("Failed", "NodeFailed")
        assert ended.message == "node a is dead: NoSuchCustomer: 4711 is not known"
        succeeded = next(found for found in ended.conditions if found.type == "Succeeded")
        assert succeeded.message == ended.message

    failure = "{class: Permanent, reason: NoSuchCustomer, message: 4711 is not known}"
    in_world(test, "bad: {}", f"tools: {{bad: [{{failure: {failure}}}]}}")


def test_a_run_whose_fan_out_died_says_which_instance_failed_and_why() -> None:
    async def test(world: World) -> None:
        world.start_scheduler()
        world.start_worker()
        world.apply_run(
            "nodes: [{name: all, type: FanOut, fanOut: {items: [1, 2], join: {rule: AtLeast, count: 2},"
            ' node: {tool: bad, onFailure: Continue, params: {n: "${item}"}}}}]'
        )
        ended = await world.ended()
        assert ended.phase == "Failed"
        assert ended.message == "node all is dead: node all.1: NoSuchCustomer: 4711 is not known"

    failure = "{failure: {class: Permanent, reason: NoSuchCustomer, message: 4711 is not known}}"
    script = f"tools: {{bad: [{{when: {{n: 2}}, answers: [{failure}]}}, {{answers: [{{result: 1}}]}}]}}"
    in_world(test, "bad: {}", script)
