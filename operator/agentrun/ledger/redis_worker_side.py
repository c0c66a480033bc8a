"""The worker's half of the ledger on Redis or Valkey: each method calls one Lua file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.ledger_keys import INSTALL_NAMESPACE
from agentrun.contract.orders import AttemptOutcome, OrderKind, ReportKind
from agentrun.contract.tool import SideEffect
from agentrun.ledger.port import (
    Claim,
    ClaimAnswer,
    ClaimVerdict,
    CommitVerdict,
    Delivery,
    HeartbeatAnswer,
    LedgerUnavailableError,
    WorkerIdentity,
)
from agentrun.ledger.redis_connection import Durability, RedisConnection, milliseconds, translated_errors
from agentrun.ledger.wire import (
    decode_object,
    decode_order,
    decode_outcome,
    decode_record_text,
    encode_model,
    encode_usage,
    record_status,
)

_LOOK_AT = 500
"""Entries that one step of taking orders looks at."""
_TOOL_KEPT_SECONDS = 30 * 24 * 3600


class RedisWorkerSide:
    """What workers may do."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._turn = 0
        self._reclaim_at: dict[str, int] = {}
        self._reply_lost: set[str] = set()
        self._looked_through: set[str] = set()
        """Consumers that had all there was: the doorbell tells them of what comes."""
        self._durable: bool | None = None

    async def register_worker(self, worker: WorkerIdentity, contract_version: int) -> None:
        """Announce the worker and its slots; proves earlier incarnations of the same name gone."""
        keys = self._connection.keys(worker.namespace)
        argument = {**_worker(worker), "version": str(contract_version)}
        await self._connection.run("register_worker", keys, [keys.workers(worker.pool)], argument)

    async def retire_worker(self, worker: WorkerIdentity) -> None:
        """Say goodbye: the worker is gone and executes nothing any more."""
        keys = self._connection.keys(worker.namespace)
        await self._connection.run("retire_worker", keys, [keys.workers(worker.pool)], _worker(worker))

    async def keep_alive(self, worker: WorkerIdentity) -> None:
        """Extend the registration of a worker that holds no claim."""
        keys = self._connection.keys(worker.namespace)
        await self._connection.run("keep_alive", keys, [keys.workers(worker.pool)], _worker(worker))

    async def take_orders(self, worker: WorkerIdentity, count: int, block_ms: int) -> Sequence[Delivery]:
        """Take up to ``count`` orders of the pool in priority order; wait up to ``block_ms`` for the first."""
        consumer = _consumer(worker)
        try:
            if consumer in self._reply_lost:
                found = await self._own_deliveries(worker, consumer, count)
                self._reply_lost.discard(consumer)
                if found:
                    return found
            return await self._take(worker, consumer, count, block_ms)
        except (LedgerUnavailableError, asyncio.CancelledError):
            # What that step delivered is found again by the next one.
            self._reply_lost.add(consumer)
            raise

    async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
        """Pass the gate: the last step before the side effect."""
        order = delivery.order
        keys = self._connection.keys(order.namespace)
        argument = {
            "node": order.node_uid,
            "seq": str(order.seq),
            "token": token,
            "worker": worker.name,
            "incarnation": worker.incarnation,
            "stream": delivery.stream,
            "entry": delivery.entry_id,
        }
        answer = _read_claim(token, await self._connection.run("claim", keys, [keys.node(order.node_uid)], argument))
        once = order.side_effect is SideEffect.ONCE and order.kind is OrderKind.EXECUTE
        if answer.verdict is ClaimVerdict.EXECUTE and once and not await self._proves_claims():
            await self.commit(Claim(order, token, delivery.stream, delivery.entry_id), _not_durable())
            return ClaimAnswer(ClaimVerdict.REPORTED, report_kind=str(ReportKind.COMMITTED))
        return answer

    async def hand_back(self, worker: WorkerIdentity, delivery: Delivery, reason: str) -> None:
        """Give an unclaimed order back: reported HandedBack, acknowledged, slot and hold returned."""
        order = delivery.order
        keys = self._connection.keys(order.namespace)
        argument = {
            "node": order.node_uid,
            "seq": str(order.seq),
            "stream": delivery.stream,
            "entry": delivery.entry_id,
            "worker": worker.name,
            "reason": reason,
        }
        await self._connection.run("hand_back", keys, [keys.node(order.node_uid)], argument)

    async def abandon_claim(self, claim: Claim, reason: str) -> bool:
        """Undo a claim under which nothing was executed: record freed, reported HandedBack."""
        return (
            int(await self._on_claim("abandon_claim", claim, {"attempt": str(claim.order.attempt), "reason": reason}))
            == 1
        )

    async def adopt(self, claim: Claim) -> bool:
        """Report, once, that the lookup of this recovery found the call still running."""
        return int(await self._on_claim("adopt", claim, {})) == 1

    async def heartbeat(self, worker: WorkerIdentity, claim: Claim) -> HeartbeatAnswer:
        """Extend claim, slots and worker registration."""
        order = claim.order
        keys = self._connection.keys(order.namespace)
        names = [keys.node(order.node_uid), keys.record(order.record.key), keys.workers(worker.pool)]
        argument = {**_claim(claim), **_worker(worker)}
        fenced, cancelled, remaining, lease = await self._connection.run("heartbeat", keys, names, argument)
        return HeartbeatAnswer(int(fenced) == 1, int(cancelled) == 1, int(remaining), int(lease))

    async def commit(self, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        """End the attempt in one step: record, cost, audit, report, acknowledge, slots, hold."""
        order = claim.order
        argument: dict[str, object] = {
            "run": order.run_uid,
            "attempt": str(order.attempt),
            "kind": str(order.kind),
            "side": str(order.side_effect),
            "status": str(record_status(outcome)),
            "effect": str(outcome.effect),
            "reason": outcome.failure.reason if outcome.failure else "",
            "usage": encode_usage(outcome.usage),
            "estimated": "1" if outcome.usage_estimated else "0",
            "scope": str(order.record.scope),
            "window": str(order.record.window_ms),
            "digest": order.params_digest,
            "owner": f"{order.namespace}/{order.run_name}/{order.node_path}",
        }
        return CommitVerdict(await self._on_claim("commit", claim, argument, encode_model(outcome)))

    async def fetch_tool(self, namespace: str, digest: str) -> JsonObject | None:
        """Return a tool's definition or None when the ledger has lost it."""
        with translated_errors():
            text = await self._connection.client.getex(
                self._connection.keys(namespace).tool(digest), ex=_TOOL_KEPT_SECONDS
            )
        return decode_object(str(text)) if text else None

    async def _on_claim(self, name: str, claim: Claim, more: dict[str, object], payload: str = "") -> Any:
        keys = self._connection.keys(claim.order.namespace)
        names = [keys.node(claim.order.node_uid), keys.record(claim.order.record.key)]
        return await self._connection.run(name, keys, names, {**_claim(claim), **more}, payload)

    async def _take(self, worker: WorkerIdentity, consumer: str, count: int, block_ms: int) -> Sequence[Delivery]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + block_ms / 1000
        if consumer in self._looked_through:
            self._looked_through.discard(consumer)
            if block_ms > 0:
                await self._listen(worker, block_ms / 1000)
        while True:
            found, more = await self._take_once(worker, consumer, count)
            left = ends - loop.time()
            if found or (left <= 0 and not more):
                return found
            if not more:
                await self._listen(worker, left)

    async def _take_once(self, worker: WorkerIdentity, consumer: str, count: int) -> tuple[Sequence[Delivery], bool]:
        keys = self._connection.keys(worker.namespace)
        names = [keys.queues(worker.pool), keys.workers(worker.pool), keys.bell(worker.pool)]
        self._turn += 1
        argument = {
            **_worker(worker),
            "consumer": consumer,
            "count": str(count),
            "turn": str(self._turn),
            "look": str(_LOOK_AT),
            "reclaimAt": str(self._reclaim_at.get(consumer, 0)),
        }
        now, what, *entries = await self._connection.run("take_orders", keys, names, argument)
        if what == "reclaim":
            return await self._reclaim(worker, consumer, count, int(now))
        if entries and what == "empty":
            self._looked_through.add(consumer)
        return await self._readable(worker, entries), what == "more"

    async def _reclaim(
        self, worker: WorkerIdentity, consumer: str, count: int, now: int
    ) -> tuple[Sequence[Delivery], bool]:
        settings = self._connection.settings
        keys = self._connection.keys(worker.namespace)
        argument = {
            "pool": worker.pool,
            "consumer": consumer,
            "count": str(count),
            "batch": str(settings.reclaim_batch),
            "maxDeliveries": str(settings.max_deliveries),
        }
        more, *entries = await self._connection.run("reclaim", keys, [keys.queues(worker.pool)], argument)
        # While more is left, fresh orders take turns with it: neither starves the other.
        pause = 0 if int(more) else milliseconds(settings.reclaim_every)
        self._reclaim_at[consumer] = now + max(pause, 1)
        return await self._readable(worker, entries), True

    async def _own_deliveries(self, worker: WorkerIdentity, consumer: str, count: int) -> Sequence[Delivery]:
        keys = self._connection.keys(worker.namespace)
        argument = {"pool": worker.pool, "consumer": consumer, "count": str(count)}
        entries = await self._connection.run("own_deliveries", keys, [keys.queues(worker.pool)], argument)
        return await self._readable(worker, entries)

    async def _readable(self, worker: WorkerIdentity, entries: Sequence[Sequence[str]]) -> list[Delivery]:
        found: list[Delivery] = []
        for stream, entry, text in entries:
            try:
                found.append(Delivery(stream, entry, decode_order(text)))
            except ValueError:
                keys = self._connection.keys(worker.namespace)
                await self._connection.run("drop_delivery", keys, [stream], {"entry": entry})
        return found

    async def _listen(self, worker: WorkerIdentity, seconds: float) -> None:
        bell = self._connection.keys(worker.namespace).bell(worker.pool)
        with translated_errors():
            await self._connection.wait_for(seconds, "BLPOP", bell, f"{max(seconds, 0.01):.3f}")

    async def _proves_claims(self) -> bool:
        """Tell whether what the server has answered is on disk."""
        if self._connection.settings.durability is Durability.ACCEPT:
            return True
        if self._durable is None:
            self._durable = await self._connection.is_durable()
        if self._durable is None:
            # The worker's user may not ask the server: the operator has, when it took the lead.
            meta = self._connection.keys(INSTALL_NAMESPACE).meta
            with translated_errors():
                return await self._connection.client.hget(meta, "durable") == "1"
        return self._durable


def _consumer(worker: WorkerIdentity) -> str:
    return f"{worker.name}/{worker.incarnation}"


def _worker(worker: WorkerIdentity) -> dict[str, object]:
    return {
        "pool": worker.pool,
        "name": worker.name,
        "incarnation": worker.incarnation,
        "slots": str(worker.slots),
    }


def _claim(claim: Claim) -> dict[str, object]:
    order = claim.order
    return {"node": order.node_uid, "seq": str(order.seq), "token": claim.token, "record": order.record.key}


def _not_durable() -> AttemptOutcome:
    return AttemptOutcome(
        effect=Effect.NOT_EXECUTED,
        failure=Failure(
            effect=Effect.NOT_EXECUTED,
            failure_class=FailureClass.PERMANENT,
            reason=Reason.NOT_DURABLE,
            message="the ledger would not survive its own crash: set appendonly yes and appendfsync always on it,"
            " or accept that explicitly (durability: Accept)",
        ),
    )


def _read_claim(token: str, answer: Sequence[Any]) -> ClaimAnswer:
    verdict = ClaimVerdict(answer[0])
    match verdict:
        case ClaimVerdict.EXECUTE:
            return ClaimAnswer(verdict, token=token, remaining_ms=int(answer[1]), lease_ms=int(answer[2]))
        case ClaimVerdict.RECOVER:
            return ClaimAnswer(
                verdict,
                token=token,
                remaining_ms=int(answer[1]),
                lease_ms=int(answer[2]),
                previous=decode_record_text(answer[3]),
                previous_worker_gone=answer[4] == "1",
                evidence=decode_outcome(answer[5]) if answer[5] else None,
            )
        case ClaimVerdict.REPORTED:
            return ClaimAnswer(verdict, report_kind=answer[1])
        case ClaimVerdict.WAIT_RATE:
            return ClaimAnswer(verdict, wait_ms=int(answer[1]))
        case ClaimVerdict.STALE | ClaimVerdict.LEDGER_CLOSED:
            return ClaimAnswer(verdict)
