"""One suite for both ledgers: what every operation promises, whoever carries it out."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentrun.contract.failures import Effect
from agentrun.contract.orders import Amount
from agentrun.contract.run import Priority
from agentrun.contract.tool import IdempotencyScope, OnDuplicate, SideEffect
from agentrun.ledger.port import (
    AdmissionVerdict,
    AnswerVerdict,
    Claim,
    ClaimVerdict,
    CommitVerdict,
    OpenRun,
    RecordStatus,
    RefusalKind,
    RestoredNode,
    RestoredRecord,
    SlotLimit,
    WithdrawVerdict,
)
from support.ledgers import LedgerBench, as_recovery, build_memory_bench, build_redis_bench, build_two_users_bench
from support.orders import NAMESPACE, build_order, build_registration, build_worker, done, failed

LEASE_MS = 30_000


@pytest.fixture(params=["memory", "redis", "redis, workers with users of their own"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[LedgerBench]:
    if request.param == "memory":
        built = await build_memory_bench()
    else:
        build = build_redis_bench if request.param == "redis" else build_two_users_bench
        built = await build(request.getfixturevalue("empty_ledger_url"))
    yield built
    await built.close()


# --- runs and sessions


async def test_the_same_run_is_admitted_again_with_the_same_answer(bench: LedgerBench) -> None:
    for _ in range(2):
        answer = await bench.ledger.admit_run(build_registration("a", "name"))
        assert answer.verdict is AdmissionVerdict.ADMITTED


async def test_a_finished_run_of_this_name_and_content_gives_its_outcome(bench: LedgerBench) -> None:
    await bench.begin("a", name="name")
    await bench.ledger.finish_run(NAMESPACE, "a", {"phase": "Succeeded", "n": 9007199254740993}, 1000_000)
    again = await bench.ledger.admit_run(build_registration("b", "name"))
    assert (again.verdict, again.other_uid) == (AdmissionVerdict.ALREADY_FINISHED, "a")
    assert again.outcome == {"phase": "Succeeded", "n": 9007199254740993}
    other = await bench.ledger.admit_run(build_registration("c", "name", spec_digest="sha256:other"))
    assert other.verdict is AdmissionVerdict.ADMITTED


async def test_a_run_that_never_finished_is_gone_on_with_under_the_first_ones_identity(bench: LedgerBench) -> None:
    await bench.begin("a", name="name")
    second = await bench.ledger.admit_run(build_registration("b", "name"))
    assert (second.verdict, second.other_uid) == (AdmissionVerdict.ADOPT, "a")
    await bench.ledger.finish_run(NAMESPACE, "b", None, 1000_000)
    third = await bench.ledger.admit_run(build_registration("c", "name"))
    assert (third.verdict, third.other_uid) == (AdmissionVerdict.ADOPT, "a")


async def test_a_tombstone_ends_with_its_time(bench: LedgerBench) -> None:
    await bench.begin("a", name="name")
    await bench.ledger.finish_run(NAMESPACE, "a", {}, 5_000)
    await bench.pass_time(6_000)
    assert (await bench.ledger.admit_run(build_registration("b", "name"))).verdict is AdmissionVerdict.ADMITTED


async def test_a_session_has_one_run_at_a_time(bench: LedgerBench) -> None:
    await bench.begin("a", session="s")
    busy = await bench.ledger.admit_run(build_registration("b", session="s"))
    assert (busy.verdict, busy.other_uid, busy.other_name) == (AdmissionVerdict.SESSION_BUSY, "a", "a")
    await bench.ledger.finish_run(NAMESPACE, "a", {}, 1000)
    assert (await bench.ledger.admit_run(build_registration("b", session="s"))).verdict is AdmissionVerdict.ADMITTED


async def test_a_session_stays_busy_while_a_finished_runs_claim_lives(bench: LedgerBench) -> None:
    await bench.begin(session="s")
    claim = await bench.claim(build_order(session="s"))
    await bench.ledger.cancel_run(NAMESPACE, "run-1")
    await bench.ledger.finish_run(NAMESPACE, "run-1", {}, 1000_000)
    refused = await bench.ledger.admit_run(build_registration("b", session="s"))
    assert refused.verdict is AdmissionVerdict.SESSION_BUSY
    await bench.ledger.commit(claim, done())
    assert (await bench.ledger.admit_run(build_registration("b", session="s"))).verdict is AdmissionVerdict.ADMITTED


async def test_a_run_is_listed_until_it_is_closed_and_no_claim_of_it_lives(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.begin("b", name="b")
    assert sorted(await bench.ledger.find_open_runs(NAMESPACE), key=lambda run: run.uid) == [
        OpenRun("b", "b", ended=False),
        OpenRun("run-1", "run-1", ended=False),
    ]
    assert await bench.ledger.find_namespaces() == [NAMESPACE]
    await bench.claim(build_order())
    for uid in ("run-1", "b"):
        await bench.ledger.finish_run(NAMESPACE, uid, {"phase": "Cancelled"}, 1000_000)
    assert await bench.ledger.find_open_runs(NAMESPACE) == [OpenRun("run-1", "run-1", ended=True)]
    await bench.pass_time(LEASE_MS + 1)
    await bench.ledger.finish_run(NAMESPACE, "run-1", None, 1000_000)
    assert await bench.ledger.find_open_runs(NAMESPACE) == []
    record = await bench.ledger.find_record(NAMESPACE, build_order().record.key)
    assert record is not None
    assert record.status is RecordStatus.UNKNOWN
    again = await bench.ledger.admit_run(build_registration("c", "run-1"))
    assert again.outcome == {"phase": "Cancelled"}


async def test_a_run_that_the_ledger_never_knew_is_wound_up(bench: LedgerBench) -> None:
    await bench.ledger.finish_run(NAMESPACE, "stranger", {}, 1000_000)
    assert await bench.ledger.find_open_runs(NAMESPACE) == []
    answer = await bench.ledger.admit_run(build_registration("b", ""))
    assert answer.verdict is AdmissionVerdict.ADMITTED


def build_restored(node_uid: str = "n", **more: Any) -> RestoredNode:
    fields: dict[str, Any] = {
        "namespace": NAMESPACE,
        "run_uid": "run-1",
        "node_uid": node_uid,
        "path": node_uid,
        "owner": f"{NAMESPACE}/run-1/{node_uid}",
        "seq": 3,
        "attempt": 2,
        "tool": "act",
        "in_flight": False,
        "settled": Amount(micros=70, tokens=8, model_calls=1),
        "record": None,
    }
    return RestoredNode(**{**fields, **more})


def build_restored_record(status: RecordStatus, **more: Any) -> RestoredRecord:
    order = build_order()
    fields: dict[str, Any] = {
        "key": order.record.key,
        "status": status,
        "params_digest": order.params_digest,
        "side_effect": SideEffect.ONCE,
        "scope": IdempotencyScope.SESSION,
        "window_ms": 5_000,
    }
    return RestoredRecord(**{**fields, **more})


async def test_a_closed_gate_refuses_orders_and_claims_until_it_is_opened(bench: LedgerBench) -> None:
    await bench.begin()
    delivery = await bench.send(build_order("a", key="a"))
    assert (await bench.ledger.look()).is_sound
    await bench.ledger.close_gate()
    assert not (await bench.ledger.look()).is_sound
    assert (await bench.ledger.dispatch(build_order("b"), (), None)).refusal is RefusalKind.LEDGER_CLOSED
    assert (await bench.gate(delivery))[0].verdict is ClaimVerdict.LEDGER_CLOSED
    await bench.ledger.open_gate()
    assert (await bench.ledger.look()).is_sound
    assert (await bench.gate(delivery))[0].verdict is ClaimVerdict.EXECUTE


async def test_what_a_node_cost_is_put_back_once_and_only_where_nothing_is_known(bench: LedgerBench) -> None:
    await bench.begin()
    for _ in range(2):
        await bench.ledger.restore_node(build_restored())
    counters = await bench.ledger.find_counters(NAMESPACE, "run-1")
    assert counters.settled == counters.nodes["n"] == Amount(micros=70, tokens=8, model_calls=1)
    await bench.execute(build_order("known", key="known"), done(micros=5))
    await bench.ledger.restore_node(build_restored("known", settled=Amount(micros=5)))
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 75


@pytest.mark.parametrize(
    "in_flight, rebuilt_first, want",
    [
        pytest.param(True, True, 75, id="in flight, committed after the rebuild"),
        pytest.param(True, False, 75, id="in flight, committed before the rebuild"),
        pytest.param(False, True, 70, id="ended, committed again after the rebuild"),
        pytest.param(False, False, 70, id="ended, committed again before the rebuild"),
    ],
)
async def test_a_late_commit_after_a_loss_is_booked_once(
    bench: LedgerBench, in_flight: bool, rebuilt_first: bool, want: int
) -> None:
    await bench.ledger.open([NAMESPACE])
    order = build_order("n", seq=3, attempt=2)
    claim = Claim(order, "token-before-the-loss", "", "")

    async def rebuild() -> None:
        await bench.ledger.admit_run(build_registration())
        await bench.ledger.restore_node(build_restored(in_flight=in_flight))

    if rebuilt_first:
        await rebuild()
    assert await bench.ledger.commit(claim, done(micros=5)) is CommitVerdict.FENCED
    if not rebuilt_first:
        await rebuild()
    await rebuild()
    counters = await bench.ledger.find_counters(NAMESPACE, "run-1")
    assert counters.settled.micros == counters.nodes["n"].micros == want


@pytest.mark.parametrize("rebuilt_first", [True, False], ids=["committed after the rebuild", "before the rebuild"])
async def test_a_late_commit_of_a_node_that_nobody_had_written_down_is_booked_to_its_run(
    bench: LedgerBench, rebuilt_first: bool
) -> None:
    await bench.ledger.open([NAMESPACE])
    if rebuilt_first:
        await bench.ledger.admit_run(build_registration(budget=Amount(micros=12)))
    claim = Claim(build_order("n"), "token-before-the-loss", "", "")
    assert await bench.ledger.commit(claim, done(micros=5)) is CommitVerdict.FENCED
    await bench.ledger.admit_run(build_registration(budget=Amount(micros=12)))
    if rebuilt_first:
        before = await bench.ledger.find_counters(NAMESPACE, "run-1")
        assert before.settled.micros == before.nodes["n"].micros == 5, "it may never be sent again"
    # As far as the resources prove, it was never sent.
    answer = await bench.ledger.dispatch(build_order("n", hold=Amount(micros=8)), (), None)
    assert answer.refusal is RefusalKind.BUDGET_EXHAUSTED
    assert (await bench.ledger.dispatch(build_order("n", hold=Amount(micros=7)), (), None)).refusal is None
    counters = await bench.ledger.find_counters(NAMESPACE, "run-1")
    assert counters.settled.micros == counters.nodes["n"].micros == 5
    assert counters.held.micros == 7


@pytest.mark.parametrize("rebuilt_first", [True, False], ids=["committed after the rebuild", "before the rebuild"])
@pytest.mark.parametrize("in_flight", [True, False], ids=["in flight", "ended"])
@pytest.mark.parametrize(
    "attempt, estimates, want",
    [
        pytest.param(2, ((2, 30),), 45, id="it was estimated"),
        pytest.param(1, ((1, 30),), 45, id="an earlier attempt was estimated"),
        pytest.param(1, ((2, 30),), 70, id="another attempt was estimated"),
    ],
)
async def test_an_estimate_outlives_a_loss_and_is_replaced_by_a_late_commit(
    bench: LedgerBench,
    attempt: int,
    estimates: tuple[tuple[int, int], ...],
    want: int,
    in_flight: bool,
    rebuilt_first: bool,
) -> None:
    await bench.ledger.open([NAMESPACE])
    claim = Claim(build_order("n", seq=attempt, attempt=attempt), "token-before-the-loss", "", "")

    async def rebuild() -> None:
        await bench.ledger.admit_run(build_registration())
        await bench.ledger.restore_node(build_restored(in_flight=in_flight, estimates=estimates))

    if rebuilt_first:
        await rebuild()
    assert await bench.ledger.commit(claim, done(micros=5)) is CommitVerdict.FENCED
    await rebuild()
    counters = await bench.ledger.find_counters(NAMESPACE, "run-1")
    assert counters.settled.micros == counters.nodes["n"].micros == want


async def test_a_call_that_was_out_when_the_ledger_was_lost_is_booked_at_its_stake_once_it_is_given_up(
    bench: LedgerBench,
) -> None:
    await bench.begin()
    await bench.ledger.restore_node(build_restored(in_flight=True, stake_micros=30))
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 70
    for _ in range(2):
        assert await bench.ledger.fence_attempt(NAMESPACE, "n", 3)
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 100
    claim = Claim(build_order("n", seq=3, attempt=2), "token-before-the-loss", "", "")
    assert await bench.ledger.commit(claim, failed(Effect.NOT_EXECUTED)) is CommitVerdict.FENCED
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 70


async def test_a_restored_node_counts_its_orders_on(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.ledger.restore_node(build_restored())
    assert (await bench.ledger.dispatch(build_order("n", seq=1), (), None)).refusal is RefusalKind.STALE_SEQ
    assert (await bench.ledger.dispatch(build_order("n", seq=4), (), None)).refusal is None


async def test_an_order_that_was_out_when_the_ledger_was_lost_is_neither_standing_nor_withdrawn(
    bench: LedgerBench,
) -> None:
    await bench.begin()
    await bench.ledger.restore_node(build_restored(in_flight=True))
    assert await bench.ledger.withdraw(NAMESPACE, "run-1", "n", 3) is WithdrawVerdict.LOST
    state = await bench.ledger.find_node(NAMESPACE, "n")
    assert (state.seq, state.queued, state.claimed) == (3, False, False)
    assert await bench.ledger.fence_attempt(NAMESPACE, "n", 3)


async def test_a_restored_result_is_replayed_within_its_window(bench: LedgerBench) -> None:
    await bench.begin()
    record = build_restored_record(RecordStatus.SUCCESS, outcome=done(7))
    await bench.ledger.restore_node(build_restored(record=record))
    answer, _ = await bench.gate(await bench.send(build_order("b")))
    assert (answer.verdict, answer.report_kind) == (ClaimVerdict.REPORTED, "Replayed")
    await bench.pass_time(5_001)
    assert (await bench.gate(await bench.send(build_order("c"))))[0].verdict is ClaimVerdict.EXECUTE


async def test_a_restored_open_outcome_is_never_executed_again(bench: LedgerBench) -> None:
    await bench.begin()
    record = build_restored_record(RecordStatus.UNKNOWN)
    await bench.ledger.restore_node(build_restored(in_flight=True, record=record))
    busy, _ = await bench.gate(await bench.send(build_order("other")))
    assert busy.report_kind == "Busy"
    own, _ = await bench.gate(await bench.send(build_order("n", seq=4)))
    assert own.report_kind == "Recover"


async def test_a_restored_question_keeps_its_version_and_holds_others_back(bench: LedgerBench) -> None:
    await bench.begin()
    record = build_restored_record(RecordStatus.UNKNOWN, version=6, in_inbox=True)
    await bench.ledger.restore_node(build_restored(record=record))
    await bench.pass_time(3600_000)
    busy, _ = await bench.gate(await bench.send(build_order("other")))
    assert busy.report_kind == "Busy"
    verdict = await bench.ledger.answer_record(NAMESPACE, record.key, 6, Effect.NOT_EXECUTED, None, False)
    assert verdict is AnswerVerdict.APPLIED


async def test_a_record_that_is_known_is_never_put_back_over(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a"), done(1))
    await bench.ledger.restore_node(build_restored(record=build_restored_record(RecordStatus.UNKNOWN)))
    record = await bench.ledger.find_record(NAMESPACE, build_order().record.key)
    assert record is not None
    assert record.status is RecordStatus.SUCCESS


async def test_an_epoch_never_goes_backward(bench: LedgerBench) -> None:
    assert await bench.ledger.take_epoch(0) == 1
    assert await bench.ledger.take_epoch(7) == 8
    assert await bench.ledger.take_epoch(0) == 9


# --- dispatch


async def test_an_order_that_is_dispatched_twice_stands_once(bench: LedgerBench) -> None:
    await bench.begin()
    for _ in range(3):
        assert (await bench.ledger.dispatch(build_order(), (), None)).refusal is None
    assert len(await bench.take()) == 1


@pytest.mark.parametrize(
    "order, want",
    [
        pytest.param(build_order(seq=2), RefusalKind.STALE_SEQ, id="a seq that is not the next"),
        pytest.param(build_order(epoch=0), RefusalKind.STALE_EPOCH, id="an older epoch"),
        pytest.param(build_order(run_uid="other"), RefusalKind.RUN_CLOSED, id="an unknown run"),
    ],
)
async def test_an_order_is_refused(bench: LedgerBench, order: object, want: RefusalKind) -> None:
    await bench.begin()
    await bench.ledger.take_epoch(0)
    assert (await bench.ledger.dispatch(order, (), None)).refusal is want  # type: ignore[arg-type]


async def test_a_cancelled_run_gets_no_orders_but_its_recoveries(bench: LedgerBench) -> None:
    await bench.begin()
    order = build_order()
    await bench.claim(order)
    await bench.pass_time(LEASE_MS + 1)
    await bench.ledger.fence_attempt(NAMESPACE, "node-1", 1)
    await bench.ledger.cancel_run(NAMESPACE, "run-1")
    assert (await bench.ledger.dispatch(build_order("node-2"), (), None)).refusal is RefusalKind.RUN_CLOSED
    assert (await bench.ledger.dispatch(as_recovery(order, 2), (), None)).refusal is None


async def test_a_new_order_takes_the_place_of_one_nobody_claimed(bench: LedgerBench) -> None:
    await bench.begin()
    first = await bench.send(build_order(seq=1))
    await bench.ledger.dispatch(build_order(seq=2), (), None)
    assert (await bench.gate(first))[0].verdict is ClaimVerdict.STALE
    assert [one.order.seq for one in await bench.take()] == [2]


async def test_slots_are_held_from_dispatch_to_the_end(bench: LedgerBench) -> None:
    await bench.begin()
    limits = (SlotLimit("global", 9), SlotLimit("tool:act", 2))
    first = await bench.send(build_order("a", key="a"), limits)
    await bench.ledger.dispatch(build_order("b", key="b"), limits, None)
    answer = await bench.ledger.dispatch(build_order("c", key="c"), limits, None)
    assert (answer.refusal, answer.limit) == (RefusalKind.NO_SLOT, "tool:act")
    _, claim = await bench.gate(first)
    await bench.ledger.commit(claim, done())
    assert (await bench.ledger.dispatch(build_order("c", key="c"), limits, None)).refusal is None
    assert await bench.ledger.find_slots_in_use(NAMESPACE, "tool:act") == 2
    assert await bench.ledger.find_slots_in_use(NAMESPACE, "global") == 3, "the scheduler frees the global one"
    await bench.ledger.release_slots(NAMESPACE, [("a", 1), ("unknown", 1)])
    assert await bench.ledger.find_slots_in_use(NAMESPACE, "global") == 2


async def test_slots_are_leases_that_renewal_extends(bench: LedgerBench) -> None:
    await bench.begin()
    limits = (SlotLimit("tool:act", 1),)
    await bench.ledger.dispatch(build_order("a", key="a", claim_within_ms=10**9), limits, None)
    await bench.pass_time(50_000)
    await bench.ledger.renew_slots(NAMESPACE, [("a", 1)])
    await bench.pass_time(50_000)
    assert await bench.ledger.find_slots_in_use(NAMESPACE, "tool:act") == 1
    await bench.pass_time(61_000)
    assert await bench.ledger.find_slots_in_use(NAMESPACE, "tool:act") == 0


async def test_priority_decides_what_is_taken_first(bench: LedgerBench) -> None:
    await bench.begin()
    for node, priority in (("a", Priority.P3), ("b", Priority.P0), ("c", Priority.P2)):
        await bench.ledger.dispatch(build_order(node, key=node, priority=priority), (), None)
    assert [one.order.node_uid for one in await bench.take()] == ["b", "c", "a"]
    assert await bench.ledger.find_backlog(NAMESPACE, "shared", "act") == {
        Priority.P0: 1,
        Priority.P1: 0,
        Priority.P2: 1,
        Priority.P3: 1,
    }


# --- withdraw


async def test_an_unclaimed_order_is_taken_back_once_and_for_all(bench: LedgerBench) -> None:
    await bench.begin()
    delivery = await bench.send(build_order(hold=Amount(micros=5)))
    for _ in range(2):
        assert await bench.ledger.withdraw(NAMESPACE, "run-1", "node-1", 1) is WithdrawVerdict.WITHDRAWN
    assert (await bench.gate(delivery))[0].verdict is ClaimVerdict.STALE
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).held == Amount()


async def test_a_claimed_order_cannot_be_taken_back(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order())
    assert await bench.ledger.withdraw(NAMESPACE, "run-1", "node-1", 1) is WithdrawVerdict.CLAIMED
    await bench.ledger.commit(claim, done())
    assert await bench.ledger.withdraw(NAMESPACE, "run-1", "node-1", 1) is WithdrawVerdict.ENDED


async def test_an_order_that_is_withdrawn_before_it_came_finds_its_seq_taken(bench: LedgerBench) -> None:
    await bench.begin()
    assert await bench.ledger.withdraw(NAMESPACE, "run-1", "node-1", 1) is WithdrawVerdict.WITHDRAWN
    assert (await bench.ledger.dispatch(build_order(seq=1), (), None)).refusal is RefusalKind.STALE_SEQ
    assert (await bench.ledger.dispatch(build_order(seq=2), (), None)).refusal is None


async def test_a_ledger_that_lost_everything_says_so_instead_of_taking_back(bench: LedgerBench) -> None:
    await bench.ledger.open([NAMESPACE])
    assert await bench.ledger.withdraw(NAMESPACE, "run-1", "node-1", 1) is WithdrawVerdict.LOST


# --- the gate


async def test_one_of_many_workers_passes_the_gate(bench: LedgerBench) -> None:
    await bench.begin()
    delivery = await bench.send(build_order())
    verdicts = [(await bench.gate(delivery, build_worker(f"w{number}")))[0].verdict for number in range(20)]
    assert sorted(verdicts) == [ClaimVerdict.EXECUTE, *[ClaimVerdict.STALE] * 19]
    assert await bench.kinds() == ["Claimed"]


async def test_a_claim_whose_reply_was_lost_gets_the_same_answer(bench: LedgerBench) -> None:
    await bench.begin()
    delivery = await bench.send(build_order())
    first = await bench.ledger.claim(build_worker(), delivery, "mine")
    assert (await bench.ledger.claim(build_worker(), delivery, "mine")) == first
    assert await bench.kinds() == ["Claimed"]


async def test_an_equal_call_gets_the_stored_result(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a"), done({"n": 9007199254740993, "t": "Ω"}))
    await bench.reports()
    answer, _ = await bench.gate(await bench.send(build_order("b")))
    assert (answer.verdict, answer.report_kind) == (ClaimVerdict.REPORTED, "Replayed")
    (report,) = await bench.reports()
    assert report.outcome is not None
    assert report.outcome.result == {"n": 9007199254740993, "t": "Ω"}
    assert report.holder == f"{NAMESPACE}/run-1/a"


async def test_one_key_with_other_params_is_a_conflict_whatever_stands_there(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a"), done())
    answer, _ = await bench.gate(await bench.send(build_order("b", params={"order": 8})))
    assert answer.report_kind == "Conflict"


@pytest.mark.parametrize("rule", [OnDuplicate.REJECT, OnDuplicate.ASK])
async def test_a_duplicate_is_reported_where_the_tool_says_so(bench: LedgerBench, rule: OnDuplicate) -> None:
    await bench.begin()
    await bench.execute(build_order("a"), done())
    other = build_order("b", record={"on_duplicate": rule})
    assert (await bench.gate(await bench.send(other)))[0].report_kind == "Duplicate"
    own = build_order("c", record={"on_duplicate": rule, "own_key": True}, key="own")
    assert (await bench.gate(await bench.send(own)))[0].verdict is ClaimVerdict.EXECUTE


async def test_an_equal_call_of_a_live_claim_waits_and_is_told(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order("a"))
    assert (await bench.gate(await bench.send(build_order("b"))))[0].report_kind == "Busy"
    await bench.reports()
    await bench.ledger.commit(claim, done())
    assert {(str(report.kind), report.node_uid) for report in await bench.reports()} == {
        ("Committed", "a"),
        ("RecordFreed", "b"),
    }


async def test_who_no_longer_waits_is_not_told(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order("a"))
    await bench.gate(await bench.send(build_order("b")))
    await bench.reports()
    await bench.ledger.stop_waiting(NAMESPACE, "key-1", "b")
    await bench.ledger.commit(claim, done())
    assert await bench.kinds() == ["Committed"]


async def test_who_has_had_its_turn_is_not_told_in_place_of_the_next_in_line(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a"), failed(Effect.UNKNOWN))
    for node in ("b", "c"):
        assert (await bench.gate(await bench.send(build_order(node))))[0].report_kind == "Busy"
    # What kept them waiting passes, and one asks again before anybody was told.
    await bench.pass_time(3_600_000)
    await bench.gate(await bench.send(build_order("b", seq=2)))
    recovering, _ = await bench.gate(await bench.send(as_recovery(build_order("b", seq=2), 3)))
    assert recovering.verdict is ClaimVerdict.RECOVER
    await bench.reports()
    await bench.ledger.abandon_recovery(NAMESPACE, "b", 3)
    await bench.ledger.mark_inbox(NAMESPACE, "key-1", "b", True)
    await bench.ledger.mark_inbox(NAMESPACE, "key-1", "b", False)
    assert [(str(report.kind), report.node_uid) for report in await bench.reports()] == [("RecordFreed", "c")]


async def test_a_node_waits_for_the_record_of_its_last_order_alone(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order("a"))
    await bench.gate(await bench.send(build_order("b")))
    await bench.send(build_order("b", seq=2, params={"order": 8}, key="key-2"))
    await bench.reports()
    await bench.ledger.commit(claim, done())
    assert await bench.kinds() == ["Committed"]


async def test_the_nodes_of_an_ended_run_wait_no_more(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.begin("run-2")
    claim = await bench.claim(build_order("a"))
    await bench.gate(await bench.send(build_order("b", run_uid="run-2", run_name="run-2")))
    await bench.ledger.finish_run(NAMESPACE, "run-2", {}, 1000_000)
    assert await bench.find_waiters("key-1") == []
    await bench.gate(await bench.send(build_order("c")))
    assert await bench.find_waiters("key-1") == ["c"]
    await bench.ledger.commit(claim, done())
    assert await bench.find_waiters("key-1") == []


async def test_behind_an_unknown_outcome_a_once_call_is_recovered_and_another_is_made_again(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a", key="once"), failed(Effect.UNKNOWN))
    await bench.ledger.mark_inbox(NAMESPACE, "once", "a", True)
    await bench.ledger.mark_inbox(NAMESPACE, "once", "a", False)
    assert (await bench.gate(await bench.send(build_order("b", key="once"))))[0].report_kind == "Recover"
    harmless = {"key": "harmless", "side_effect": SideEffect.IDEMPOTENT}
    await bench.execute(build_order("c", **harmless), failed(Effect.UNKNOWN))
    answer, _ = await bench.gate(await bench.send(build_order("d", **harmless)))
    assert answer.verdict is ClaimVerdict.EXECUTE


async def test_a_deadline_that_has_passed_executes_nothing(bench: LedgerBench) -> None:
    await bench.begin()
    delivery = await bench.send(build_order())
    await bench.pass_time(60_001)
    assert (await bench.gate(delivery))[0].report_kind == "DeadlinePassed"


async def test_no_attempt_outlives_the_runs_deadline(bench: LedgerBench) -> None:
    await bench.begin()
    answer, _ = await bench.gate(await bench.send(build_order(run_remaining_ms=3_000)))
    assert answer.remaining_ms == 3_000


async def test_a_rate_lets_through_one_call_per_period(bench: LedgerBench) -> None:
    await bench.begin()
    deliveries = [await bench.send(build_order(node, key=node, rate_per_second=10)) for node in "ab"]
    assert (await bench.gate(deliveries[0]))[0].verdict is ClaimVerdict.EXECUTE
    waiting, _ = await bench.gate(deliveries[1])
    assert waiting.verdict is ClaimVerdict.WAIT_RATE
    assert 100 <= waiting.wait_ms <= 101
    await bench.pass_time(waiting.wait_ms)
    assert (await bench.gate(deliveries[1]))[0].verdict is ClaimVerdict.EXECUTE


# --- commit, fencing, recovery


async def test_a_commit_is_counted_once(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order(hold=Amount(micros=10)))
    for _ in range(3):
        assert await bench.ledger.commit(claim, done(micros=7)) is CommitVerdict.COMMITTED
    counters = await bench.ledger.find_counters(NAMESPACE, "run-1")
    assert (counters.settled.micros, counters.held.micros) == (7, 0)
    assert await bench.kinds() == ["Claimed", "Committed"]


async def test_a_heartbeat_keeps_the_claim_and_tells_of_a_cancel(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order(timeout_ms=200_000))
    for _ in range(3):
        await bench.pass_time(20_000)
        answer = await bench.ledger.heartbeat(build_worker(), claim)
        assert (answer.fenced, answer.cancelled, answer.lease_ms) == (False, False, LEASE_MS)
    await bench.ledger.cancel_run(NAMESPACE, "run-1")
    assert (await bench.ledger.heartbeat(build_worker(), claim)).cancelled
    assert await bench.ledger.commit(claim, done()) is CommitVerdict.COMMITTED


async def test_a_silent_claim_is_reported_lost_once(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.claim(build_order())
    await bench.reports()
    await bench.pass_time(LEASE_MS + 6_000)
    await bench.take(build_worker("other"))
    await bench.pass_time(6_000)
    await bench.take(build_worker("other"))
    assert await bench.kinds() == ["Lost"]
    state = await bench.ledger.find_node(NAMESPACE, "node-1")
    assert state.claimed
    assert state.claim_silent_ms > LEASE_MS


async def test_a_fenced_workers_commit_is_evidence_and_billed_once(bench: LedgerBench) -> None:
    await bench.begin()
    order = build_order(hold=Amount(micros=10))
    claim = await bench.claim(order)
    assert await bench.ledger.fence_attempt(NAMESPACE, "node-1", 1)
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 10
    assert (await bench.ledger.heartbeat(build_worker(), claim)).fenced
    for _ in range(2):
        assert await bench.ledger.commit(claim, done({"id": 1}, micros=7)) is CommitVerdict.FENCED
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 7
    answer, _ = await bench.gate(await bench.send(as_recovery(order, 2)))
    assert answer.verdict is ClaimVerdict.RECOVER
    assert answer.evidence is not None
    assert answer.evidence.result == {"id": 1}


@pytest.mark.parametrize("late", ["committed", "abandoned"])
@pytest.mark.parametrize("moved_on", [False, True], ids=["at once", "when the next attempt has ended"])
async def test_what_a_fenced_worker_did_not_do_is_taken_off_the_bill_and_reported(
    bench: LedgerBench, late: str, moved_on: bool
) -> None:
    await bench.begin()
    order = build_order(hold=Amount(micros=10), side_effect=SideEffect.IDEMPOTENT)
    claim = await bench.claim(order)
    assert await bench.ledger.fence_attempt(NAMESPACE, "node-1", 1)
    if moved_on:
        await bench.execute(order.model_copy(update={"seq": 2, "attempt": 2, "request_id": "2"}), done(micros=4))
    before = 4 if moved_on else 0
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 10 + before
    await bench.reports()
    seen = await bench.ledger.find_node(NAMESPACE, "node-1")
    # A stranger's word about it counts for nothing.
    stranger = Claim(claim.order, "token-of-nobody", claim.stream, claim.entry_id)
    assert not await bench.ledger.abandon_claim(stranger, "ClaimLost")
    assert await bench.reports() == []
    for _ in range(2):
        if late == "committed":
            assert await bench.ledger.commit(claim, failed(Effect.NOT_EXECUTED)) is CommitVerdict.FENCED
        else:
            assert not await bench.ledger.abandon_claim(claim, "ClaimLost")
    counters = await bench.ledger.find_counters(NAMESPACE, "run-1")
    assert counters.settled.micros == counters.nodes["node-1"].micros == before
    (report,) = await bench.reports()
    assert (report.kind, report.attempt, report.seq, report.recovering) == ("CostKnown", 1, 1, False)
    assert (report.outcome is None) == (late == "abandoned")
    assert (await bench.ledger.find_node(NAMESPACE, "node-1")).last_report == seen.last_report


async def test_a_recovery_resolves_the_record(bench: LedgerBench) -> None:
    await bench.begin()
    order = build_order()
    await bench.claim(order)
    await bench.ledger.fence_attempt(NAMESPACE, "node-1", 1)
    answer, recovery = await bench.gate(await bench.send(as_recovery(order, 2)))
    assert answer.previous is not None
    assert answer.previous.status is RecordStatus.PROCESSING
    assert not answer.previous_worker_gone
    for _ in range(2):
        assert await bench.ledger.adopt(recovery)
    await bench.ledger.commit(recovery, done({"id": 1}))
    record = await bench.ledger.find_record(NAMESPACE, "key-1")
    assert record is not None
    assert record.status is RecordStatus.SUCCESS
    assert await bench.kinds() == ["Claimed", "Claimed", "Adopted", "Committed"]


@pytest.mark.parametrize("how", ["retired", "replaced"])
async def test_a_worker_is_proven_gone(bench: LedgerBench, how: str) -> None:
    await bench.begin()
    await bench.ledger.register_worker(build_worker("w", "1"), 1)
    order = build_order()
    await bench.claim(order)
    if how == "retired":
        await bench.ledger.retire_worker(build_worker("w", "1"))
    else:
        await bench.ledger.register_worker(build_worker("w", "2"), 1)
    await bench.ledger.fence_attempt(NAMESPACE, "node-1", 1)
    await bench.ledger.dispatch(as_recovery(order, 2), (), None)
    taker = build_worker("other")
    (delivery,) = await bench.take(taker)
    answer, _ = await bench.gate(delivery, taker)
    assert answer.previous_worker_gone


async def test_a_recovery_nobody_carried_out_leaves_the_outcome_unknown(bench: LedgerBench) -> None:
    await bench.begin()
    order = build_order()
    await bench.claim(order)
    await bench.ledger.fence_attempt(NAMESPACE, "node-1", 1)
    delivery = await bench.send(as_recovery(order, 2))
    assert await bench.ledger.abandon_recovery(NAMESPACE, "node-1", 2)
    assert (await bench.gate(delivery))[0].verdict is ClaimVerdict.STALE
    record = await bench.ledger.find_record(NAMESPACE, "key-1")
    assert record is not None
    assert record.status is RecordStatus.UNKNOWN


async def test_an_abandoned_claim_was_no_attempt(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order())
    for _ in range(2):
        assert await bench.ledger.abandon_claim(claim, "Draining")
    assert await bench.kinds() == ["Claimed", "HandedBack"]
    assert (await bench.gate(await bench.send(build_order(seq=2))))[0].verdict is ClaimVerdict.EXECUTE


async def test_a_handed_back_order_returns_its_hold(bench: LedgerBench) -> None:
    await bench.begin()
    delivery = await bench.send(build_order(hold=Amount(micros=5)))
    for _ in range(2):
        await bench.ledger.hand_back(build_worker(), delivery, "Rate")
    assert await bench.kinds() == ["HandedBack"]
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).held.micros == 0


async def test_an_order_that_kills_its_workers_is_poison(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.ledger.dispatch(build_order(claim_within_ms=10**9), (), None)
    for number in range(3):
        worker = build_worker(f"w{number}")
        await bench.ledger.register_worker(worker, 1)
        assert len(await bench.take(worker)) == 1
        await bench.ledger.retire_worker(worker)
        await bench.pass_time(6_000)
    assert await bench.take(build_worker("last")) == []
    assert await bench.kinds() == ["Poison"]


async def test_an_unclaimed_order_of_a_dead_worker_is_handed_on(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.ledger.register_worker(build_worker("dead"), 1)
    await bench.ledger.dispatch(build_order(), (), None)
    assert len(await bench.take(build_worker("dead"))) == 1
    assert await bench.take(build_worker("alive")) == []
    await bench.pass_time(LEASE_MS + 6_000)
    assert len(await bench.take(build_worker("alive"))) == 1


# --- a human's answers


async def test_a_humans_answer_reaches_the_record_it_was_asked_about(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a"), failed(Effect.UNKNOWN))
    await bench.ledger.mark_inbox(NAMESPACE, "key-1", "a", True)
    assert (await bench.gate(await bench.send(build_order("b"))))[0].report_kind == "Busy"
    await bench.reports()
    record = await bench.ledger.find_record(NAMESPACE, "key-1")
    assert record is not None
    assert record.in_inbox
    for _ in range(2):
        verdict = await bench.ledger.answer_record(NAMESPACE, "key-1", record.version, Effect.EXECUTED, {"id": 1}, True)
        assert verdict is AnswerVerdict.APPLIED
    assert await bench.kinds() == ["RecordFreed"]
    late = await bench.ledger.answer_record(NAMESPACE, "key-1", record.version, Effect.NOT_EXECUTED, None, False)
    assert late is AnswerVerdict.MOVED
    settled = await bench.ledger.find_record(NAMESPACE, "key-1")
    assert settled is not None
    assert settled.outcome is not None
    assert settled.outcome.result == {"id": 1}


async def test_when_an_inbox_closes_unsettled_one_waiter_after_the_other_is_told(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a"), failed(Effect.UNKNOWN))
    await bench.ledger.mark_inbox(NAMESPACE, "key-1", "a", True)
    for node in ("b", "c"):
        await bench.gate(await bench.send(build_order(node)))
    await bench.reports()
    await bench.ledger.mark_inbox(NAMESPACE, "key-1", "a", False)
    assert [(str(report.kind), report.node_uid) for report in await bench.reports()] == [("RecordFreed", "b")]


@pytest.mark.parametrize("lacks", ["slot", "budget"])
@pytest.mark.parametrize("side_effect", [SideEffect.ONCE, SideEffect.IDEMPOTENT], ids=str)
async def test_a_late_copy_of_a_refused_order_is_stale_where_it_may_happen_only_once(
    bench: LedgerBench, side_effect: SideEffect, lacks: str
) -> None:
    await bench.begin(budget=Amount(micros=100, tokens=-1, model_calls=-1))
    limits = (SlotLimit("tool:act", 1),) if lacks == "slot" else ()
    hold = Amount(micros=60)
    first = await bench.send(build_order("a", key="a", hold=hold), limits)
    refused = build_order("b", key="b", hold=hold, side_effect=side_effect)
    missing = RefusalKind.NO_SLOT if lacks == "slot" else RefusalKind.BUDGET_HELD
    assert (await bench.ledger.dispatch(refused, limits, None, 7)).refusal is missing
    _, claim = await bench.gate(first)
    await bench.ledger.commit(claim, done())
    copy = await bench.ledger.dispatch(refused, limits, None, 7)
    once = side_effect is SideEffect.ONCE
    assert copy.refusal is (RefusalKind.STALE_SEQ if once else None)
    assert (await bench.ledger.dispatch(refused, limits, None, 8)).refusal is None


# --- money


@pytest.mark.parametrize(
    "limit, want",
    [
        pytest.param(Amount(micros=100, tokens=-1, model_calls=-1), RefusalKind.BUDGET_HELD, id="live holds"),
        pytest.param(Amount(micros=30, tokens=-1, model_calls=-1), RefusalKind.BUDGET_EXHAUSTED, id="never fits"),
        pytest.param(Amount(micros=0, tokens=-1, model_calls=-1), RefusalKind.BUDGET_EXHAUSTED, id="zero is nothing"),
        pytest.param(Amount(micros=-1, tokens=-1, model_calls=-1), None, id="unlimited"),
    ],
)
async def test_a_hold_must_fit_the_runs_budget(bench: LedgerBench, limit: Amount, want: RefusalKind | None) -> None:
    await bench.begin(budget=limit)
    hold = Amount(micros=60)
    first = await bench.ledger.dispatch(build_order("a", key="a", hold=hold), (), None)
    second = await bench.ledger.dispatch(build_order("b", key="b", hold=hold), (), None)
    if want is RefusalKind.BUDGET_HELD:
        assert first.refusal is None
    assert second.refusal is want


async def test_ten_thousand_tiny_amounts_add_up_exactly(bench: LedgerBench) -> None:
    await bench.begin()
    for number in range(200):
        node = f"n{number}"
        await bench.execute(build_order(node, key=node, hold=Amount(micros=13)), done(micros=13))
    counters = await bench.ledger.find_counters(NAMESPACE, "run-1")
    assert counters.settled.micros == 2600
    assert counters.settled.micros == sum(amount.micros for amount in counters.nodes.values())
    assert counters.held == Amount()


async def test_no_report_ever_lowers_a_counter(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order(hold=Amount(micros=5)), done(micros=-100))
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 0


async def test_a_raised_budget_admits_at_once(bench: LedgerBench) -> None:
    await bench.begin(budget=Amount(micros=10, tokens=-1, model_calls=-1))
    order = build_order(hold=Amount(micros=20))
    assert (await bench.ledger.dispatch(order, (), None)).refusal is RefusalKind.BUDGET_EXHAUSTED
    await bench.ledger.set_budget(NAMESPACE, "run-1", Amount(micros=20, tokens=-1, model_calls=-1))
    assert (await bench.ledger.dispatch(order, (), None)).refusal is None


# --- ends


async def test_a_finished_run_leaves_no_open_claim_behind(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.claim(build_order("dead", key="dead"))
    await bench.ledger.dispatch(build_order("queued", key="queued"), (SlotLimit("tool:act", 5),), None)
    await bench.pass_time(LEASE_MS + 1)
    await bench.ledger.finish_run(NAMESPACE, "run-1", {}, 1000_000)
    record = await bench.ledger.find_record(NAMESPACE, "dead")
    assert record is not None
    assert record.status is RecordStatus.UNKNOWN
    assert await bench.take() == []
    assert await bench.ledger.find_slots_in_use(NAMESPACE, "tool:act") == 0
    assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).held == Amount()


async def test_a_result_answers_for_its_window_only(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a", record={"window_ms": 5_000}), done())
    await bench.pass_time(5_001)
    assert (await bench.gate(await bench.send(build_order("b"))))[0].verdict is ClaimVerdict.EXECUTE


async def test_a_result_of_scope_run_lives_until_the_runs_end(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.execute(build_order("a", record={"scope": IdempotencyScope.RUN, "window_ms": 1}), done())
    await bench.pass_time(1_000_000)
    assert await bench.ledger.find_record(NAMESPACE, "key-1") is not None


async def test_an_unacknowledged_report_comes_again_to_a_new_reader(bench: LedgerBench) -> None:
    await bench.begin()
    await bench.claim(build_order())
    first = await bench.ledger.read_reports([NAMESPACE], "one", 10, 1)
    second = await bench.ledger.read_reports([NAMESPACE], "two", 10, 1)
    assert [report for _, report in first] == [report for _, report in second]
    await bench.ledger.acknowledge_reports(NAMESPACE, [entry for entry, _ in second])
    assert not await bench.ledger.read_reports([NAMESPACE], "three", 10, 1)


async def test_a_tools_definition_is_kept_exactly(bench: LedgerBench) -> None:
    await bench.ledger.put_tool(NAMESPACE, "sha256:t", {"n": 9007199254740993, "t": "\u2028"})
    assert await bench.ledger.fetch_tool(NAMESPACE, "sha256:t") == {"n": 9007199254740993, "t": "\u2028"}
    assert await bench.ledger.fetch_tool(NAMESPACE, "sha256:other") is None


async def test_a_pool_announces_the_slots_of_its_live_workers(bench: LedgerBench) -> None:
    await bench.ledger.register_worker(build_worker("a", slots=3), 1)
    await bench.ledger.register_worker(build_worker("b", slots=4), 1)
    assert await bench.ledger.find_pool_slots(NAMESPACE, "shared") == 7
    await bench.ledger.retire_worker(build_worker("b", slots=4))
    assert await bench.ledger.find_pool_slots(NAMESPACE, "shared") == 3
    await bench.pass_time(LEASE_MS + 1)
    assert await bench.ledger.find_pool_slots(NAMESPACE, "shared") == 0
    await bench.ledger.keep_alive(build_worker("a", slots=3))
    assert await bench.ledger.find_pool_slots(NAMESPACE, "shared") == 3


async def test_an_order_whose_seq_a_recovery_took_is_withdrawn_without_touching_that(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order("n"))
    assert await bench.ledger.fence_attempt(NAMESPACE, "n", 1)
    recovery = as_recovery(claim.order, seq=2)
    assert (await bench.ledger.dispatch(recovery, (), None)).refusal is None
    assert (await bench.ledger.find_node(NAMESPACE, "n")).recovers
    assert await bench.ledger.withdraw(NAMESPACE, "run-1", "n", 2) is WithdrawVerdict.WITHDRAWN
    assert (await bench.ledger.find_node(NAMESPACE, "n")).queued


async def test_an_order_of_which_a_recovery_was_sent_is_no_order_to_send_again(bench: LedgerBench) -> None:
    await bench.begin()
    claim = await bench.claim(build_order("n"))
    assert await bench.ledger.fence_attempt(NAMESPACE, "n", 1)
    assert (await bench.ledger.dispatch(as_recovery(claim.order, seq=2), (), None)).refusal is None
    assert await bench.ledger.withdraw(NAMESPACE, "run-1", "n", 1) is WithdrawVerdict.LOST
    assert (await bench.ledger.find_node(NAMESPACE, "n")).queued
