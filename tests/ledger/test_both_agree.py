"""Random histories on both ledgers: every answer is the same, and money and slots add up after each step."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentrun.contract.failures import Effect
from agentrun.contract.orders import Amount, OrderKind
from agentrun.contract.tool import OnDuplicate, SideEffect
from agentrun.ledger.port import Claim, Delivery, SlotLimit
from support.ledgers import LedgerBench, build_memory_bench, build_redis_bench
from support.orders import NAMESPACE, build_order, build_registration, build_worker, done, failed

EXAMPLES = settings().max_examples // 6
"""Each example is a history on a real server."""
NODES = ["a", "b", "c"]
LIMITS = (SlotLimit("global", 3), SlotLimit("tool:act", 2))


@dataclass
class Mirror:
    """What the test itself remembers of one ledger: deliveries and claims by node."""

    bench: LedgerBench
    seqs: dict[str, int]
    deliveries: dict[str, Delivery]
    claims: dict[str, Claim]
    tokens: int = 0
    recovering: set[str] = field(default_factory=set)
    """Nodes whose last order asks what became of a call."""


steps = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from(NODES), st.sampled_from(["k1", "k2"]), st.sampled_from([0, 5, 40])),
    st.tuples(st.just("begin"), st.sampled_from(NODES), st.just("k1"), st.just(5)),
    st.tuples(
        *(st.just("send"), st.sampled_from(NODES), st.sampled_from(["k1", "k2"]), st.sampled_from([0, 5, 40])),
        st.integers(0, 3),
    ),
    st.tuples(st.just("recover"), st.sampled_from(NODES)),
    st.tuples(st.just("take"), st.sampled_from(["w1", "w2"])),
    st.tuples(st.just("claim"), st.sampled_from(NODES), st.sampled_from(["w1", "w2"]), st.booleans()),
    st.tuples(st.just("commit"), st.sampled_from(NODES), st.sampled_from(["ok", *Effect]), st.sampled_from([0, 3, 90])),
    st.tuples(st.just("beat"), st.sampled_from(NODES)),
    st.tuples(st.just("abandon"), st.sampled_from(NODES)),
    st.tuples(st.just("hand back"), st.sampled_from(NODES)),
    st.tuples(st.just("withdraw"), st.sampled_from(NODES)),
    st.tuples(st.just("fence"), st.sampled_from(NODES)),
    st.tuples(st.just("give up"), st.sampled_from(NODES)),
    st.tuples(st.just("release"), st.sampled_from(NODES)),
    st.tuples(st.just("inbox"), st.sampled_from(NODES), st.sampled_from(["k1", "k2"]), st.booleans()),
    st.tuples(
        st.just("answer"), st.sampled_from(["k1", "k2"]), st.sampled_from([Effect.EXECUTED, Effect.NOT_EXECUTED])
    ),
    st.tuples(st.just("time"), st.sampled_from([100, 8_000, 31_000])),
    st.tuples(st.just("retire"), st.sampled_from(["w1", "w2"])),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("budget"), st.sampled_from([-1, 0, 50])),
)


async def carry_out(mirror: Mirror, step: tuple[Any, ...], side: SideEffect, rule: OnDuplicate) -> object:
    ledger, what = mirror.bench.ledger, step[0]
    match what:
        case "begin":
            _, node, key, hold = step
            parts = [("send", node, key, hold, 0), ("take", "w1"), ("claim", node, "w1", False)]
            return [await carry_out(mirror, part, side, rule) for part in parts]
        case "send":
            _, node, key, hold, sending = step
            seq = mirror.seqs[node] + 1
            order = build_order(
                node, seq, key=key, hold=Amount(micros=hold), cost=Amount(micros=hold), side_effect=side,
                record={"on_duplicate": rule}, claim_within_ms=20_000, timeout_ms=60_000,
            )  # fmt: skip
            answer = await ledger.dispatch(order, LIMITS, None, sending)
            if answer.refusal is None:
                mirror.seqs[node] = seq
                mirror.recovering.discard(node)
            return answer
        case "recover":
            node = step[1]
            delivery = mirror.deliveries.get(node)
            if delivery is None:
                return None
            seq = mirror.seqs[node] + 1
            order = delivery.order.model_copy(
                update={"kind": OrderKind.RECOVER, "seq": seq, "request_id": f"recover-{seq}"}
            )
            answer = await ledger.dispatch(order, (), None)
            if answer.refusal is None:
                mirror.seqs[node] = seq
                mirror.recovering.add(node)
            return answer
        case "take":
            found: list[Delivery] = []
            for _ in range(4):
                found.extend(await ledger.take_orders(build_worker(step[1]), 5, 0))
            for one in found:
                mirror.deliveries[one.order.node_uid] = one
            return sorted((one.order.node_uid, one.order.seq) for one in found)
        case "claim":
            _, node, worker, again = step
            delivery = mirror.deliveries.get(node)
            if delivery is None:
                return None
            if not again:
                mirror.tokens += 1
            token = f"token-{mirror.tokens}"
            answer = await ledger.claim(build_worker(worker), delivery, token)
            if answer.token:
                mirror.claims[node] = Claim(delivery.order, token, delivery.stream, delivery.entry_id)
            return answer
        case "commit":
            _, node, how, micros = step
            claim = mirror.claims.get(node)
            if claim is None:
                return None
            outcome = done({"n": micros}, micros) if how == "ok" else failed(how, micros)
            return await ledger.commit(claim, outcome)
        case "beat":
            claim = mirror.claims.get(step[1])
            return await ledger.heartbeat(build_worker("w1"), claim) if claim else None
        case "abandon":
            claim = mirror.claims.get(step[1])
            return await ledger.abandon_claim(claim, "Draining") if claim else None
        case "hand back":
            delivery = mirror.deliveries.get(step[1])
            return await ledger.hand_back(build_worker("w1"), delivery, "Rate") if delivery else None
        case "withdraw":
            return (
                await ledger.withdraw(NAMESPACE, "run-1", step[1], mirror.seqs[step[1]])
                if mirror.seqs[step[1]]
                else None
            )
        case "fence":
            return await ledger.fence_attempt(NAMESPACE, step[1], mirror.seqs[step[1]])
        case "give up":
            return await ledger.abandon_recovery(NAMESPACE, step[1], mirror.seqs[step[1]])
        case "release":
            return await ledger.release_slots(NAMESPACE, [(step[1], mirror.seqs[step[1]])])
        case "inbox":
            return await ledger.mark_inbox(NAMESPACE, step[2], step[1], step[3])
        case "answer":
            record = await ledger.find_record(NAMESPACE, step[1])
            version = record.version if record else 0
            return await ledger.answer_record(NAMESPACE, step[1], version, step[2], {"id": 1}, True)
        case "time":
            return await mirror.bench.pass_time(step[1])
        case "retire":
            await ledger.retire_worker(build_worker(step[1]))
            return await ledger.register_worker(build_worker(step[1], "2"), 1)
        case "cancel":
            return await ledger.cancel_run(NAMESPACE, "run-1")
        case "budget":
            return await ledger.set_budget(NAMESPACE, "run-1", Amount(micros=step[1], tokens=-1, model_calls=-1))
    raise AssertionError(what)


async def look(mirror: Mirror) -> dict[str, object]:
    """Return everything that can be seen of a ledger."""
    bench, ledger = mirror.bench, mirror.bench.ledger
    counters = await ledger.find_counters(NAMESPACE, "run-1")
    spent = sum(amount.micros for amount in counters.nodes.values())
    assert counters.settled.micros == spent, "the run's counter is the sum of its nodes"
    assert counters.held.micros >= 0
    in_use = await ledger.find_slots_in_use(NAMESPACE, "tool:act")
    # A recovery takes the slots of its attempt back without asking for room: what it asks about may be under way.
    assert in_use <= 2 + len(mirror.recovering)
    return {
        "counters": (counters.settled, counters.held, {k: v for k, v in counters.nodes.items() if v.micros}),
        "nodes": [await ledger.find_node(NAMESPACE, node) for node in NODES],
        "records": [await ledger.find_record(NAMESPACE, key) for key in ("k1", "k2")],
        "slots": [in_use, await ledger.find_slots_in_use(NAMESPACE, "global")],
        "reports": await bench.reports(),
        "backlog": await ledger.find_backlog(NAMESPACE, "shared", "act"),
    }


async def compare(url: str, history: list[tuple[Any, ...]], side: SideEffect, rule: OnDuplicate) -> None:
    redis_bench = await build_redis_bench(url)
    await redis_bench.ledger.connection.client.flushdb()  # type: ignore[attr-defined]
    await redis_bench.pass_time(0)
    memory_bench = await build_memory_bench()
    mirrors = [Mirror(bench, dict.fromkeys(NODES, 0), {}, {}) for bench in (memory_bench, redis_bench)]
    try:
        for mirror in mirrors:
            ledger = mirror.bench.ledger
            await ledger.open([NAMESPACE])
            await ledger.admit_run(build_registration(budget=Amount(micros=100, tokens=-1, model_calls=-1)))
            for name in ("w1", "w2"):
                await ledger.register_worker(build_worker(name), 1)
        for at, step in enumerate(history):
            answers = [await carry_out(mirror, step, side, rule) for mirror in mirrors]
            assert answers[0] == answers[1], f"step {at}: {step}"
            seen = [await look(mirror) for mirror in mirrors]
            for name in seen[0]:
                assert seen[0][name] == seen[1][name], f"{name} after step {at}: {step}"
    finally:
        await redis_bench.close()


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@example(
    history=[("begin", "a", "k1", 5), ("begin", "c", "k1", 5), ("send", "b", "k1", 0, 0), ("recover", "c")],
    side=SideEffect.NONE,
    rule=OnDuplicate.REPLAY,
)
@given(
    history=st.lists(steps, min_size=4, max_size=25),
    side=st.sampled_from(SideEffect),
    rule=st.sampled_from(OnDuplicate),
)
def test_both_ledgers_answer_every_history_alike(
    ledger_url: str, history: list[tuple[Any, ...]], side: SideEffect, rule: OnDuplicate
) -> None:
    asyncio.run(compare(ledger_url, history, side, rule))
