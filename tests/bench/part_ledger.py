"""ledger: the round trips that every call costs, each alone, beside the server's plainest commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis

from agentrun.contract.orders import Order
from agentrun.contract.tool import SideEffect
from agentrun.ledger.port import Claim, ClaimVerdict, Delivery, SlotLimit
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.local.embedded_ledger import EmbeddedLedger
from bench.rates import time_all
from support.orders import NAMESPACE, build_order, build_registration, build_worker, done

_STEPS = 2000
_WIDTHS = (1, 32)
_POLICIES = ("always", "everysec")
_LIMITS = (SlotLimit("global", 1_000_000),)
_TAKEN_AT_ONCE = 256
_PAYLOAD = "x" * 400
"""About as long as a small order."""


class RefusedStepError(Exception):
    """The ledger refused a step of the measurement."""


async def measure_ledger(scale: float) -> dict[str, Any]:
    """Measure every step with a disk that is waited for (``always``, what the ledger demands) and one that is not."""
    steps = max(20, round(_STEPS * scale))
    found: dict[str, Any] = {"steps": steps}
    with EmbeddedLedger() as server:
        for policy in _POLICIES:
            await _set_policy(server.url, policy)
            for width in _WIDTHS:
                name = f"{policy}, {'one after another' if width == 1 else f'{width} at once'}"
                found[name] = {
                    **await _measure_raw(server.url, steps, width),
                    **await _measure_steps(server.url, f"bench-{policy}-{width}", steps, width),
                }
    return found


async def _set_policy(url: str, policy: str) -> None:
    client = Redis.from_url(url)
    try:
        await client.config_set("appendfsync", policy)
    finally:
        await client.aclose()


async def _measure_raw(url: str, steps: int, width: int) -> dict[str, Any]:
    client = Redis(connection_pool=BlockingConnectionPool.from_url(url, max_connections=width))
    raw: dict[str, Callable[[int], Awaitable[object]]] = {
        "raw PING": lambda at: client.ping(),
        "raw XADD": lambda at: client.xadd("bench:raw", {"order": _PAYLOAD}),
    }
    try:
        return {name: await time_all(range(steps), width, act) for name, act in raw.items()}
    finally:
        await client.delete("bench:raw")
        await client.aclose()
        await client.connection_pool.disconnect()


async def _measure_steps(url: str, install: str, steps: int, width: int) -> dict[str, Any]:
    ledger = RedisLedger.connect(url, LedgerSettings(install=install))
    worker = build_worker(slots=steps)
    claims: list[Claim] = []

    async def dispatch(order: Order) -> None:
        answer = await ledger.dispatch(order, _LIMITS, None)
        if answer.refusal is not None:
            raise RefusedStepError(f"dispatch: {answer.refusal}")

    async def claim(delivery: Delivery) -> None:
        token = f"token-{delivery.order.node_uid}"
        answer = await ledger.claim(worker, delivery, token)
        if answer.verdict is not ClaimVerdict.EXECUTE:
            raise RefusedStepError(f"claim: {answer.verdict}")
        claims.append(Claim(delivery.order, token, delivery.stream, delivery.entry_id))

    try:
        await ledger.open([NAMESPACE])
        await ledger.take_epoch(0)
        await ledger.admit_run(build_registration())
        await ledger.register_worker(worker, 1)
        orders = [
            build_order(f"node-{at}", key=f"key-{at}", params={"n": at}, side_effect=SideEffect.IDEMPOTENT)
            for at in range(steps)
        ]
        found = {"dispatch": await time_all(orders, width, dispatch)}
        deliveries: list[Delivery] = []
        while len(deliveries) < steps:
            deliveries.extend(await ledger.take_orders(worker, _TAKEN_AT_ONCE, 1))
        found["claim"] = await time_all(deliveries, width, claim)
        found["commit"] = await time_all(list(claims), width, lambda held: ledger.commit(held, done({"ok": True})))
        return found
    finally:
        await ledger.close()
