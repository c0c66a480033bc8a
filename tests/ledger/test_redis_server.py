"""What only a server shows: lost replies, lost groups and data, broken entries, cancelled commands, configuration."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
import redis.asyncio as aioredis

from agentrun.contract.ledger_keys import INSTALLS_KEY, LedgerKeys
from agentrun.contract.orders import Amount
from agentrun.contract.tool import SideEffect
from agentrun.ledger.port import (
    Claim,
    ClaimVerdict,
    CommitVerdict,
    LedgerFormatError,
    LedgerUnavailableError,
    SlotLimit,
)
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from support.ledger_server import DURABLE, IN_MEMORY, LedgerServer
from support.ledgers import LedgerBench
from support.lossy_proxy import LossyProxy
from support.orders import NAMESPACE, build_order, build_registration, build_worker, done

KEYS = LedgerKeys("agentrun", NAMESPACE)


@pytest.fixture
async def bench(empty_ledger_url: str) -> AsyncIterator[LedgerBench]:
    built = LedgerBench(RedisLedger.connect(empty_ledger_url))
    await built.begin()
    yield built
    await built.close()


@pytest.fixture
async def raw(empty_ledger_url: str) -> AsyncIterator[aioredis.Redis]:
    async with aioredis.Redis.from_url(empty_ledger_url, decode_responses=True) as client:
        yield client


async def test_a_step_whose_reply_is_lost_has_happened_once(ledger_server: LedgerServer, bench: LedgerBench) -> None:
    limits = (SlotLimit("tool:act", 5),)
    order = build_order(hold=Amount(micros=10))
    async with LossyProxy(ledger_server.port) as proxy:
        lossy = RedisLedger.connect(proxy.url, LedgerSettings(answer_within=LedgerSettings().answer_within))
        # The scripts are known to the server before replies are dropped, so that it is the step's reply that is lost.
        await lossy.dispatch(build_order("warm", key="warm"), (), None)
        (warm,) = await lossy.take_orders(build_worker(), 1, 0)
        await lossy.claim(build_worker(), warm, "warm")
        await lossy.commit(Claim(warm.order, "warm", warm.stream, warm.entry_id), done())
        await lossy.read_reports([NAMESPACE], "reader", 100, 1)

        async def lost(step: Callable[[], object]) -> object:
            proxy.drop_next_reply()
            with pytest.raises(LedgerUnavailableError):
                await step()  # type: ignore[misc]
            return await step()  # type: ignore[misc]

        answer = await lost(lambda: lossy.dispatch(order, limits, None))
        assert answer.refusal is None  # type: ignore[attr-defined]
        assert await bench.ledger.find_slots_in_use(NAMESPACE, "tool:act") == 1
        assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).held.micros == 10
        taken = await lost(lambda: lossy.take_orders(build_worker(), 5, 0))
        assert [one.order.node_uid for one in taken] == ["node-1"]  # type: ignore[attr-defined]
        (delivery,) = taken  # type: ignore[misc]
        claimed = await lost(lambda: lossy.claim(build_worker(), delivery, "mine"))
        assert claimed.verdict is ClaimVerdict.EXECUTE  # type: ignore[attr-defined]
        claim = Claim(delivery.order, "mine", delivery.stream, delivery.entry_id)
        committed = await lost(lambda: lossy.commit(claim, done({"id": 1}, micros=7)))
        assert committed is CommitVerdict.COMMITTED
        assert (await bench.ledger.find_counters(NAMESPACE, "run-1")).settled.micros == 7
        reports = await lost(lambda: lossy.read_reports([NAMESPACE], "reader", 100, 1))
        kinds = [str(report.kind) for _, report in reports if report.node_uid == "node-1"]  # type: ignore[attr-defined]
        assert kinds == ["Claimed", "Committed"]
        await lossy.close()


async def test_twenty_workers_at_once_make_one_call(bench: LedgerBench, empty_ledger_url: str) -> None:
    delivery = await bench.send(build_order())
    others = [RedisLedger.connect(empty_ledger_url) for _ in range(4)]
    answers = await asyncio.gather(
        *(others[number % 4].claim(build_worker(f"w{number}"), delivery, f"token-{number}") for number in range(20))
    )
    assert [answer.verdict for answer in answers].count(ClaimVerdict.EXECUTE) == 1
    for other in others:
        await other.close()


async def test_after_everything_was_lost_workers_and_reader_go_on(bench: LedgerBench, raw: aioredis.Redis) -> None:
    await bench.send(build_order())
    await bench.reports()
    await raw.flushall()
    assert await bench.take() == []
    assert await bench.reports() == []
    await bench.begin()
    await bench.execute(build_order("again", key="again"), done())
    assert await bench.kinds() == ["Claimed", "Committed"]


async def test_a_lost_group_repeats_no_finished_order_and_loses_none(bench: LedgerBench, raw: aioredis.Redis) -> None:
    for number in range(10):
        await bench.execute(build_order(f"done{number}", key=f"d{number}"), done())
    for number in range(10):
        await bench.ledger.dispatch(build_order(f"open{number}", key=f"o{number}"), (), None)
    pending = await bench.take(count=5)
    stream = KEYS.queue("shared", "act", "P2")
    await raw.xgroup_destroy(stream, "workers")
    await bench.ledger.dispatch(build_order("late", key="late"), (), None)
    seen = {one.order.node_uid for one in await bench.take(count=50)}
    assert seen == {f"open{number}" for number in range(10)} | {"late"}
    assert len(pending) == 5


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"x": "y"}, id="other fields"),
        pytest.param({"node": "n", "seq": "1", "order": "{"}, id="cut JSON"),
        pytest.param({"node": "n", "seq": "1", "order": b"\xff\xfe"}, id="no UTF-8"),
    ],
)
async def test_an_entry_that_is_no_order_is_removed_and_others_go_on(
    bench: LedgerBench, raw: aioredis.Redis, fields: dict[str, str | bytes]
) -> None:
    await bench.ledger.dispatch(build_order(), (), None)
    stream = KEYS.queue("shared", "act", "P2")
    await raw.xadd(stream, fields)  # type: ignore[arg-type]
    assert [one.order.node_uid for one in await bench.take()] == ["node-1"]
    assert await raw.xlen(stream) == 1


async def test_a_report_that_cannot_be_read_is_put_away(bench: LedgerBench, raw: aioredis.Redis) -> None:
    await bench.claim(build_order())
    await raw.xadd(KEYS.reports, {"report": "nonsense"})
    assert await bench.kinds() == ["Claimed"]
    assert await raw.xlen(KEYS.reports) == 0


async def test_a_deleted_entry_is_found_to_be_lost(bench: LedgerBench, raw: aioredis.Redis) -> None:
    await bench.ledger.dispatch(build_order(), (), None)
    assert (await bench.ledger.find_node(NAMESPACE, "node-1")).queued
    await raw.delete(KEYS.queue("shared", "act", "P2"))
    state = await bench.ledger.find_node(NAMESPACE, "node-1")
    assert (state.queued, state.claimed, state.last_report) == (False, False, None)


async def test_streams_and_consumers_stay_bounded_over_many_workers(bench: LedgerBench, raw: aioredis.Redis) -> None:
    for number in range(40):
        worker = build_worker(f"w{number}")
        await bench.ledger.register_worker(worker, 1)
        await bench.ledger.dispatch(build_order(f"n{number}", key=f"k{number}"), (), None)
        (delivery,) = await bench.take(worker, count=1)
        _, claim = await bench.gate(delivery, worker)
        await bench.ledger.commit(claim, done())
        await bench.ledger.retire_worker(worker)
    await bench.reports()
    stream = KEYS.queue("shared", "act", "P2")
    assert await raw.xlen(stream) == 0
    assert await raw.xlen(KEYS.reports) == 0
    last = RedisLedger.connect(_url(raw))
    await last.take_orders(build_worker("last"), 1, 0)
    consumers = await raw.xinfo_consumers(stream, "workers")
    await last.close()
    assert len(consumers) <= 3


def _url(client: aioredis.Redis) -> str:
    known = client.connection_pool.connection_kwargs
    return f"redis://{known['host']}:{known['port']}/0"


async def test_cancelled_commands_give_nobody_anothers_answer(bench: LedgerBench) -> None:
    for number in range(50):
        await bench.ledger.put_tool(NAMESPACE, f"t{number}", {"n": number})

    async def fetch(number: int) -> None:
        found = await bench.ledger.fetch_tool(NAMESPACE, f"t{number}")
        assert found == {"n": number}

    for round_ in range(20):
        tasks = [asyncio.create_task(fetch(number)) for number in range(50)]
        await asyncio.sleep(0.0005 * (round_ % 5))
        for task in tasks[::2]:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)


@pytest.mark.slow
async def test_twenty_thousand_deliveries_of_a_dead_worker_are_taken_over_in_bounded_steps(
    bench: LedgerBench, raw: aioredis.Redis
) -> None:
    stream = KEYS.queue("shared", "act", "P2")
    await bench.ledger.dispatch(build_order(claim_within_ms=10**9), (), None)
    pipe = raw.pipeline(transaction=False)
    for number in range(20_000):
        pipe.xadd(stream, {"node": f"gone{number}", "seq": "1", "order": "{}"})
    await pipe.execute()
    await raw.xreadgroup("workers", "dead/1", {stream: ">"}, count=30_000)
    found: list[str] = []
    taker = build_worker("alive")
    for _ in range(300):
        found.extend(one.order.node_uid for one in await bench.ledger.take_orders(taker, 10, 0))
        if found and await raw.xlen(stream) <= 1:
            break
    assert found == ["node-1"]


@pytest.mark.parametrize("options, want_made", [(DURABLE, True), (IN_MEMORY, False)], ids=["durable", "not durable"])
async def test_a_once_call_needs_a_durable_ledger(
    start_ledger_server: Callable[..., LedgerServer], options: dict[str, str], *, want_made: bool
) -> None:
    server = start_ledger_server(options)
    ledger = RedisLedger.connect(server.url)
    bench = LedgerBench(ledger)
    await bench.begin()
    answer, _ = await bench.gate(await bench.send(build_order()))
    assert (answer.verdict is ClaimVerdict.EXECUTE) is want_made
    if not want_made:
        report = (await bench.reports())[-1]
        assert report.outcome is not None
        assert report.outcome.failure is not None
        assert report.outcome.failure.reason == "NotDurable"
    harmless = build_order("b", key="b", side_effect=SideEffect.NONE)
    assert (await bench.gate(await bench.send(harmless)))[0].verdict is ClaimVerdict.EXECUTE
    faults = await ledger.find_faults()
    assert bool(faults) is not want_made
    await ledger.close()


async def test_an_eviction_policy_is_reported_at_start(start_ledger_server: Callable[..., LedgerServer]) -> None:
    server = start_ledger_server({**DURABLE, "maxmemory-policy": "allkeys-lru", "maxmemory": "100mb"})
    ledger = RedisLedger.connect(server.url)
    assert any("noeviction" in fault for fault in await ledger.find_faults())
    await ledger.close()


async def test_what_was_claimed_survives_a_crash_of_the_server(
    start_ledger_server: Callable[..., LedgerServer],
) -> None:
    server = start_ledger_server(DURABLE)
    ledger = RedisLedger.connect(server.url)
    bench = LedgerBench(ledger)
    await bench.begin()
    claim = await bench.claim(build_order())
    server.crash()
    with pytest.raises(LedgerUnavailableError):
        await ledger.commit(claim, done())
    server.start()
    assert await ledger.commit(claim, done({"id": 1})) is CommitVerdict.COMMITTED
    answer, _ = await bench.gate(await bench.send(build_order("b")))
    assert answer.report_kind == "Replayed"
    await ledger.close()


async def test_a_newer_ledgers_format_is_refused(bench: LedgerBench, raw: aioredis.Redis) -> None:
    await raw.hset(KEYS.meta, "formatVersion", "99")
    with pytest.raises(LedgerFormatError, match="99"):
        await bench.ledger.open([NAMESPACE])


async def test_a_registration_of_another_install_is_another_world(bench: LedgerBench, raw: aioredis.Redis) -> None:
    other = RedisLedger.connect(_url(raw), LedgerSettings(install="other"))
    await other.open([NAMESPACE])
    await other.admit_run(build_registration())
    await bench.execute(build_order(), done({"id": 1}))
    assert await other.find_record(NAMESPACE, "key-1") is None
    await other.close()


@pytest.mark.parametrize(
    "first, second, want",
    [
        pytest.param([], [], ("one", "*"), id="everything twice"),
        pytest.param([], ["a"], ("one", "*"), id="a part of everything"),
        pytest.param(["a", "b"], [], ("one", "a"), id="everything with a part taken"),
        pytest.param(["a", "b"], ["b", "c"], ("one", "b"), id="an overlap"),
        pytest.param(["a"], ["b"], None, id="side by side"),
    ],
)
async def test_what_one_install_serves_no_other_one_serves(
    empty_ledger_url: str, raw: aioredis.Redis, first: list[str], second: list[str], want: tuple[str, str] | None
) -> None:
    one = RedisLedger.connect(empty_ledger_url, LedgerSettings(install="one"))
    two = RedisLedger.connect(empty_ledger_url, LedgerSettings(install="two"))
    try:
        assert await one.bind_install("cluster", first) is None
        before = await raw.hgetall(INSTALLS_KEY)
        assert await one.bind_install("cluster", first) is None
        assert await raw.hgetall(INSTALLS_KEY) == before
        found = await two.bind_install("cluster", second)
        assert (found and found[0]) == (want and want[0])
        if want is not None:
            assert found is not None
            assert found[1] in (first or ["*"])
            assert await raw.hgetall(INSTALLS_KEY) == before
        # Another cluster is another matter.
        assert await two.bind_install("elsewhere", second) is None
    finally:
        await one.close()
        await two.close()


async def test_an_install_that_serves_less_than_before_leaves_room(empty_ledger_url: str) -> None:
    one = RedisLedger.connect(empty_ledger_url, LedgerSettings(install="one"))
    two = RedisLedger.connect(empty_ledger_url, LedgerSettings(install="two"))
    try:
        assert await one.bind_install("cluster", []) is None
        assert await one.bind_install("cluster", ["a"]) is None
        assert await two.bind_install("cluster", ["b"]) is None
        assert await one.bind_install("cluster", []) == ("two", "b")
    finally:
        await one.close()
        await two.close()


async def test_what_a_single_orders_queue_leaves_goes_by_itself(bench: LedgerBench, raw: aioredis.Redis) -> None:
    queue = f"shared.{'0' * 32}"
    worker = replace(build_worker(), pool=queue)
    await bench.ledger.register_worker(worker, 1)
    await bench.send(build_order(), ())
    assert (await bench.ledger.dispatch(build_order("node-2", key="key-2", pool=queue), (), None)).refusal is None
    stream = KEYS.queue(queue, "act", "P2")
    left = {key: await raw.pttl(key) for key in (stream, KEYS.queues(queue), KEYS.bell(queue), KEYS.workers(queue))}
    day = 24 * 3600 * 1000
    assert all(day < milliseconds <= 2 * day for milliseconds in left.values()), left
    # It is delivered, claimed and committed like any other meanwhile.
    (delivery,) = await bench.ledger.take_orders(worker, 5, 0)
    assert (await bench.ledger.claim(worker, delivery, "token")).verdict is ClaimVerdict.EXECUTE
    claim = Claim(delivery.order, "token", delivery.stream, delivery.entry_id)
    assert await bench.ledger.commit(claim, done()) is CommitVerdict.COMMITTED
    await bench.ledger.retire_worker(worker)
    assert set(await raw.keys(f"*{queue}*")) <= set(left)
    # Those of a pool that is there to stay do not.
    assert await raw.pttl(KEYS.queues("shared")) == -1
    assert await raw.pttl(KEYS.queue("shared", "act", "P2")) == -1
