"""A worker on a real ledger: what it takes, when it begins, when it must stop, what it commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from agentrun.contract.orders import CONTRACT_VERSION, Amount, AttemptOutcome, ReportKind
from agentrun.contract.run import Priority
from agentrun.ledger.port import (
    Claim,
    ClaimAnswer,
    ClaimVerdict,
    Delivery,
    LedgerUnavailableError,
    RecordStatus,
    WorkerIdentity,
)
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun_worker.executor import ToolCall
from agentrun_worker.ledger_patience import LedgerPatience
from agentrun_worker.worker import WorkerSettings
from support.ledger_server import DURABLE, LedgerServer
from support.lossy_proxy import LossyProxy
from support.orders import NAMESPACE
from support.worker_rig import FAST, WorkerRig, rigged, working

StartServer = Callable[..., LedgerServer]
LEASE = timedelta(seconds=1)


@pytest.fixture
async def rig(ledger_url: str) -> AsyncIterator[WorkerRig]:
    async with rigged(ledger_url) as rig:
        yield rig


def pace(**more: timedelta) -> WorkerSettings:
    fields: dict[str, Any] = {name: getattr(FAST, name) for name in FAST.__dataclass_fields__}
    return WorkerSettings(**{**fields, **more})


async def test_an_order_is_claimed_executed_and_committed(rig: WorkerRig) -> None:
    order = await rig.send(params={"n": 1})
    async with working(rig.build_worker()) as _:
        await rig.executor.began.acquire()
        claimed = await rig.report(ReportKind.CLAIMED)
        rig.executor.release.set()
        committed = await rig.report(ReportKind.COMMITTED)
    (call,) = rig.executor.calls
    assert (call.params, call.idempotency_key, call.request_id) == ({"n": 1}, order.record.key, order.request_id)
    assert claimed.worker == "w"
    assert committed.outcome is not None
    assert (committed.outcome.succeeded, committed.outcome.result) == (True, {"ok": True})
    assert await rig.ledger.find_backlog(NAMESPACE, "shared", "act") == dict.fromkeys(Priority, 0)


async def test_no_more_is_taken_than_slots_are_free(rig: WorkerRig) -> None:
    for number in range(3):
        await rig.send(node=f"node-{number}")
    async with working(rig.build_worker(slots=1)):
        await rig.executor.began.acquire()
        backlog = await rig.ledger.find_backlog(NAMESPACE, "shared", "act")
        assert backlog[Priority.P2] == 2
        rig.executor.release.set()
        for _ in range(3):
            await rig.report(ReportKind.COMMITTED)
    assert rig.executor.most_at_once == 1


async def test_calls_run_side_by_side_within_the_slots(rig: WorkerRig) -> None:
    async with working(rig.build_worker(slots=3)):
        for number in range(5):
            await rig.send(node=f"node-{number}")
        for _ in range(3):
            await rig.executor.began.acquire()
        rig.executor.release.set()
        for _ in range(5):
            await rig.report(ReportKind.COMMITTED)
    assert rig.executor.most_at_once == 3


async def test_a_worker_announces_its_slots_until_it_has_drained(rig: WorkerRig) -> None:
    await rig.send()
    async with working(rig.build_worker(slots=7)):
        await rig.executor.began.acquire()
        assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 7
        rig.executor.release.set()
    assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 0


# --- one order


async def test_one_order_that_comes_to_no_call_ends_the_worker_as_well(rig: WorkerRig) -> None:
    order = await rig.send()
    newer = order.model_copy(update={"node_uid": "n2", "seq": 1, "contract_version": CONTRACT_VERSION + 1})
    await rig.dispatch(newer.model_copy(update={"priority": Priority.P0, "request_id": "newer"}))
    async with asyncio.timeout(10):
        assert await rig.build_worker(slots=1).run_one_order(within=timedelta(seconds=5))
    assert (await rig.report(ReportKind.HANDED_BACK)).node_uid == "n2"
    assert not rig.executor.calls


async def test_an_order_that_was_taken_is_carried_out_although_the_time_to_wait_for_it_is_over(rig: WorkerRig) -> None:
    await rig.send()
    task = asyncio.create_task(rig.build_worker(slots=1).run_one_order(within=timedelta(milliseconds=400)))
    await rig.executor.began.acquire()
    await asyncio.sleep(0.5)  # its patience ends while the call is at work
    rig.executor.release.set()
    async with asyncio.timeout(10):
        assert await task
    await rig.report(ReportKind.COMMITTED)


async def test_no_order_is_told(rig: WorkerRig) -> None:
    await rig.begin()
    assert not await rig.build_worker().run_one_order(within=timedelta(milliseconds=200))
    assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 0


# --- stopping


async def test_a_drain_lets_calls_end_and_begins_nothing_more(rig: WorkerRig) -> None:
    await rig.send(node="running")
    worker = rig.build_worker()
    async with working(worker) as task:
        await rig.executor.began.acquire()
        worker.request_drain()
        await rig.send(node="later")
        rig.executor.release.set()
        async with asyncio.timeout(5):
            await task
    committed = await rig.report(ReportKind.COMMITTED)
    assert committed.outcome is not None
    assert committed.outcome.succeeded
    assert len(rig.executor.calls) == 1
    assert (await rig.ledger.find_backlog(NAMESPACE, "shared", "act"))[Priority.P2] == 1
    assert worker.interrupted_total == 0


async def test_a_call_that_outlives_the_grace_is_interrupted_and_still_committed(rig: WorkerRig) -> None:
    await rig.send()
    worker = rig.build_worker(settings=pace(drain_grace=timedelta(milliseconds=100)))
    async with working(worker) as task:
        await rig.executor.began.acquire()
        worker.request_drain()
        async with asyncio.timeout(5):
            await task
    outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert (outcome.effect, outcome.failure.reason) == ("Unknown", "Cancelled")
    assert "the worker was stopped" in outcome.failure.message
    assert worker.interrupted_total == 1


async def test_what_was_claimed_and_has_not_begun_is_given_back(rig: WorkerRig) -> None:
    class DrainsAtTheGate(RedisLedger):
        async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
            answer = await super().claim(worker, delivery, token)
            drained.request_drain()
            return answer

    order = await rig.send()
    drained = rig.build_worker(ledger=DrainsAtTheGate.connect)
    async with working(drained):
        report = await rig.report(ReportKind.HANDED_BACK)
    assert report.reason == "Draining"
    assert rig.executor.calls == []
    record = await rig.ledger.find_record(NAMESPACE, order.record.key)
    assert record is None or record.status is RecordStatus.FAILED


async def test_what_a_draining_worker_leaves_is_done_by_the_next(rig: WorkerRig) -> None:
    class DrainsWhileTaking(RedisLedger):
        async def take_orders(self, worker: WorkerIdentity, count: int, block_ms: int) -> Any:
            found = await super().take_orders(worker, count, block_ms)
            if found:
                drained.request_drain()
            return found

    await rig.send()
    drained = rig.build_worker("first", ledger=DrainsWhileTaking.connect)
    async with working(drained) as task:
        async with asyncio.timeout(5):
            await task
    assert rig.executor.calls == []
    async with working(rig.build_worker("second")):
        if (await rig.all_reports())[-1:] == ["HandedBack"]:
            await rig.send(seq=2)
        await rig.executor.began.acquire()
        rig.executor.release.set()
        await rig.report(ReportKind.COMMITTED)
    assert len(rig.executor.calls) == 1


async def test_a_worker_that_waits_for_its_ledger_can_be_stopped(rig: WorkerRig) -> None:
    worker = rig.build_worker(url="redis://127.0.0.1:1/0")
    async with working(worker) as task:
        await asyncio.sleep(0)
        worker.request_drain()
        async with asyncio.timeout(2):
            await task


async def test_a_worker_that_ends_when_idle_does_everything_first(rig: WorkerRig) -> None:
    for number in range(5):
        await rig.send(node=f"node-{number}")
    rig.executor.release.set()
    async with asyncio.timeout(10):
        await rig.build_worker(slots=2).run(until_idle=True)
    assert len(rig.executor.calls) == 5
    assert (await rig.all_reports()).count("Committed") == 5


async def test_a_worker_that_ends_when_idle_does_not_wait_for_a_ledger_for_ever(rig: WorkerRig) -> None:
    with pytest.raises(LedgerUnavailableError):
        async with asyncio.timeout(5):
            await rig.build_worker(url="redis://127.0.0.1:1/0").run(until_idle=True)


# --- cancelling and losing a claim


async def test_a_cancelled_run_asks_a_call_to_stop_and_then_interrupts_it(rig: WorkerRig) -> None:
    await rig.send()
    async with working(rig.build_worker()):
        await rig.executor.began.acquire()
        (call,) = rig.executor.calls
        await rig.ledger.cancel_run(NAMESPACE, "run-1")
        async with asyncio.timeout(5):
            await call.stop_requested.wait()
        assert not call.cancelled.is_set()
        outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert (outcome.effect, outcome.failure.reason) == ("Unknown", "Cancelled")


async def test_a_cancelled_call_that_ends_within_its_grace_tells_what_it_did(rig: WorkerRig) -> None:
    await rig.send()
    async with working(rig.build_worker(settings=pace(cancel_grace=timedelta(seconds=10)))):
        await rig.executor.began.acquire()
        await rig.ledger.cancel_run(NAMESPACE, "run-1")
        async with asyncio.timeout(5):
            await rig.executor.calls[0].stop_requested.wait()
        rig.executor.release.set()
        outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.succeeded


async def test_an_order_that_grew_too_old_is_waited_for_until_it_is_sent_anew(rig: WorkerRig) -> None:
    rig.executor.release.set()
    old = await rig.send(claim_within_ms=0)
    worker = rig.build_worker(settings=pace(take_block=timedelta(seconds=5)))
    working_once = asyncio.create_task(worker.run(until_idle=True))
    await rig.report(ReportKind.DEADLINE_PASSED)
    await rig.dispatch(old.model_copy(update={"seq": 2, "request_id": "act-again", "claim_within_ms": 60_000}))
    async with asyncio.timeout(10):
        await working_once
    assert (worker.attempts_total, worker.uncalled_total) == (1, 1)
    assert len(rig.executor.calls) == 1


async def test_an_order_of_a_cancelled_run_is_not_begun(rig: WorkerRig) -> None:
    await rig.send()
    await rig.ledger.cancel_run(NAMESPACE, "run-1")
    async with asyncio.timeout(5):
        await rig.build_worker().run(until_idle=True)
    assert rig.executor.calls == []


async def test_a_call_whose_claim_was_given_up_is_interrupted(rig: WorkerRig) -> None:
    order = await rig.send()
    async with working(rig.build_worker()):
        await rig.executor.began.acquire()
        await rig.ledger.fence_attempt(NAMESPACE, order.node_uid, order.seq)
        async with asyncio.timeout(5):
            await rig.executor.calls[0].cancelled.wait()
    # Its commit is evidence for the recovery, and no report of its own.
    assert "Committed" not in await rig.all_reports()


async def test_a_worker_whose_leave_was_lost_with_its_claim_says_that_it_began_nothing(rig: WorkerRig) -> None:
    class LosesTheLeave(RedisLedger):
        async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
            answer = await super().claim(worker, delivery, token)
            if answer.verdict is ClaimVerdict.EXECUTE:
                # It stood still for so long that it was given up, and that it had the leave was never read.
                await rig.ledger.fence_attempt(NAMESPACE, delivery.order.node_uid, delivery.order.seq)
                raise LedgerUnavailableError("the reply was lost")
            return answer

    await rig.send(hold=Amount(micros=10))
    async with working(rig.build_worker(ledger=LosesTheLeave.connect)):
        report = await rig.report(ReportKind.COST_KNOWN)
    assert (report.attempt, report.outcome) == (1, None)
    assert (await rig.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 0
    assert rig.executor.calls == []


async def test_heartbeats_keep_a_call_alive_beyond_its_lease(ledger_url: str) -> None:
    async with rigged(ledger_url, LEASE) as rig:
        order = await rig.send()
        async with working(rig.build_worker()):
            await rig.executor.began.acquire()
            loop = asyncio.get_running_loop()
            ends = loop.time() + 1.5 * LEASE.total_seconds()
            while loop.time() < ends:
                state = await rig.ledger.find_node(NAMESPACE, order.node_uid)
                assert state.claim_silent_ms < 500
                await asyncio.sleep(0.1)
            assert not rig.executor.calls[0].cancelled.is_set()
            rig.executor.release.set()
            assert (await rig.report(ReportKind.COMMITTED)).outcome is not None


@pytest.mark.slow
async def test_a_worker_cut_off_from_its_ledger_stops_before_its_lease_ends(start_ledger_server: StartServer) -> None:
    server = start_ledger_server()
    async with rigged(server.url, LEASE) as rig:
        await rig.send()
        async with working(rig.build_worker()):
            await rig.executor.began.acquire()
            cut_at = asyncio.get_running_loop().time()
            server.pause()
            try:
                async with asyncio.timeout(5):
                    await rig.executor.calls[0].cancelled.wait()
            finally:
                server.resume()
            # Heartbeats before the cut had extended the lease to one second after it at the latest.
            assert rig.executor.calls[0].send_before < cut_at + LEASE.total_seconds()
            assert asyncio.get_running_loop().time() < cut_at + LEASE.total_seconds()
            # It is back: what is known is committed, and work goes on.
            outcome = (await rig.report(ReportKind.COMMITTED)).outcome
            assert outcome is not None
            assert outcome.failure is not None
            assert (outcome.effect, outcome.failure.reason) == ("Unknown", "HeartbeatLost")
            rig.executor.release.set()
            await rig.send(node="next")
            assert (await rig.report(ReportKind.COMMITTED)).node_uid == "next"


@pytest.mark.slow
async def test_an_outcome_is_kept_until_the_ledger_is_back(start_ledger_server: StartServer) -> None:
    server = start_ledger_server(DURABLE)
    async with rigged(server.url) as rig:
        await rig.send()
        async with working(rig.build_worker()):
            await rig.executor.began.acquire()
            await asyncio.to_thread(server.crash)
            rig.executor.release.set()
            await asyncio.sleep(0.2)  # a few vain tries
            await asyncio.to_thread(server.start)
            outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.succeeded
    assert len(rig.executor.calls) == 1


@pytest.mark.slow
async def test_a_worker_goes_on_with_a_ledger_that_has_lost_everything(start_ledger_server: StartServer) -> None:
    server = start_ledger_server()
    async with rigged(server.url) as rig:
        rig.executor.release.set()
        await rig.send()
        async with working(rig.build_worker()):
            await rig.report(ReportKind.COMMITTED)
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)
            async with rigged(server.url) as after:
                after.settings = rig.settings
                after.ledger = RedisLedger.connect(server.url, rig.settings)
                await after.send(node="after")
                assert (await after.report(ReportKind.COMMITTED)).node_uid == "after"
                await after.ledger.close()


async def test_a_leave_that_comes_too_late_begins_nothing(ledger_url: str) -> None:
    class SlowToAnswer(RedisLedger):
        async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
            answer = await super().claim(worker, delivery, token)
            await asyncio.sleep(answer.lease_ms / 1000)
            return answer

    async with rigged(ledger_url, timedelta(milliseconds=300)) as rig:
        await rig.send()
        async with working(rig.build_worker(ledger=SlowToAnswer.connect)):
            outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert (outcome.effect, outcome.failure.reason) == ("NotExecuted", "AttemptTimeout")
    assert rig.executor.calls == []


# --- what is handed back


@pytest.mark.parametrize(
    "more, want",
    [
        ({"contract_version": CONTRACT_VERSION + 1}, f"ContractVersion({CONTRACT_VERSION + 1})"),
        ({"tool_digest": "sha256:nobody-knows"}, "DefinitionMissing"),
        ({"tool_digest": "sha256:unreadable"}, "DefinitionUnreadable"),
    ],
)
async def test_an_order_that_this_worker_cannot_carry_out_is_handed_back(
    rig: WorkerRig, more: dict[str, Any], want: str
) -> None:
    await rig.begin()
    await rig.ledger.put_tool(NAMESPACE, "sha256:unreadable", {"type": "telepathy"})
    await rig.send(**more)
    async with working(rig.build_worker()):
        report = await rig.report(ReportKind.HANDED_BACK)
    assert report.reason == want
    assert rig.executor.calls == []


async def test_a_rate_is_waited_for_when_the_wait_is_short(rig: WorkerRig) -> None:
    rig.executor.release.set()
    for number in range(3):
        await rig.send(node=f"node-{number}", rate_per_second=10)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with working(rig.build_worker()):
        for _ in range(3):
            await rig.report(ReportKind.COMMITTED)
    assert loop.time() - began >= 0.2


async def test_an_order_is_handed_back_when_its_rate_takes_long(rig: WorkerRig) -> None:
    rig.executor.release.set()
    for number in range(2):
        await rig.send(node=f"node-{number}", rate_per_second=1)
    async with working(rig.build_worker(settings=pace(longest_rate_wait=timedelta(milliseconds=100)))):
        assert (await rig.report(ReportKind.HANDED_BACK)).reason == "Rate"
    assert len(rig.executor.calls) == 1


# --- lost replies and bugs


@pytest.mark.parametrize("step", ["register_worker", "take_orders", "claim", "fetch_tool", "heartbeat", "commit"])
async def test_a_lost_reply_repeats_no_call(ledger_server: LedgerServer, step: str) -> None:
    async with LossyProxy(ledger_server.port) as proxy, rigged(ledger_server.url) as rig:

        class LosesOneReply(RedisLedger):
            lost = False

            def __getattribute__(self, name: str) -> Any:
                if name == step and not LosesOneReply.lost:
                    LosesOneReply.lost = True
                    proxy.drop_next_reply()
                return super().__getattribute__(name)

        await rig.send()
        async with working(rig.build_worker(ledger=LosesOneReply.connect, url=proxy.url)):
            await rig.executor.began.acquire()
            if step == "heartbeat":
                async with asyncio.timeout(5):
                    while not LosesOneReply.lost:
                        await asyncio.sleep(0.01)
            rig.executor.release.set()
            outcome = (await rig.report(ReportKind.COMMITTED)).outcome
        assert outcome is not None
        assert outcome.succeeded
        assert LosesOneReply.lost
        assert len(rig.executor.calls) == 1
        assert (await rig.all_reports()).count("Committed") == 1


async def test_a_bug_in_an_executor_is_an_unknown_outcome_without_its_words(rig: WorkerRig) -> None:
    class Broken:
        async def execute(self, call: ToolCall) -> AttemptOutcome:
            raise RuntimeError("canary-7f3a9c")

    await rig.send()
    async with working(rig.build_worker(executor=Broken())):
        outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert (outcome.effect, outcome.failure.reason) == ("Unknown", "ToolCrashed")
    assert "canary" not in str(outcome)


async def test_a_bug_in_the_worker_costs_one_order_and_is_shown(rig: WorkerRig, logs: list[dict[str, object]]) -> None:
    class BreaksOnce(RedisLedger):
        broken = False

        async def commit(self, claim: Claim, outcome: AttemptOutcome) -> Any:
            if not BreaksOnce.broken:
                BreaksOnce.broken = True
                raise ZeroDivisionError
            return await super().commit(claim, outcome)

    rig.executor.release.set()
    await rig.send(node="first")
    async with working(rig.build_worker(ledger=BreaksOnce.connect, slots=1)):
        await rig.executor.began.acquire()
        await rig.send(node="second")
        assert (await rig.report(ReportKind.COMMITTED)).node_uid == "second"
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["task_failed"]


async def test_a_worker_retires_only_when_nothing_is_at_work_in_it(rig: WorkerRig) -> None:
    class Lingers:
        async def execute(self, call: ToolCall) -> AttemptOutcome:
            raise AssertionError

        def lingers(self) -> bool:
            return True

    await rig.begin()
    worker = rig.build_worker(executor=Lingers(), slots=3)
    await worker.run(until_idle=True)
    assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 3


@pytest.mark.parametrize("failures, step", [(1, 0.2), (2, 0.4), (4, 1.6), (8, 5.0), (1000, 5.0)])
@pytest.mark.parametrize("token, part", [("0000", 0.5), ("8000", 1.0), ("ffff", 1.5)])
def test_pauses_double_up_to_a_limit_with_jitter(failures: int, step: float, token: str, part: float) -> None:
    patience = LedgerPatience(timedelta(milliseconds=200), lambda: token)
    assert patience.pause(failures) == pytest.approx(step * part, rel=0.001)
