"""The scheduler's half of the ledger on Redis or Valkey: each method calls one Lua file."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from agentrun.contract.exact_json import JsonObject, JsonValue, json_digest
from agentrun.contract.execution import serves_one_order
from agentrun.contract.failures import Effect
from agentrun.contract.ledger_keys import FORMAT_VERSION, INSTALL_NAMESPACE, SCHEDULER_GROUP
from agentrun.contract.orders import Amount, AttemptOutcome, Order, OrderKind, Report
from agentrun.contract.run import Priority
from agentrun.ledger.port import (
    Admission,
    AdmissionVerdict,
    AnswerVerdict,
    DispatchAnswer,
    LedgerFormatError,
    LedgerSight,
    LedgerUnavailableError,
    NodeLedgerState,
    OpenRun,
    RecordStatus,
    RecordView,
    RefusalKind,
    RestoredNode,
    RunCounters,
    RunRegistration,
    SlotLimit,
    WithdrawVerdict,
)
from agentrun.ledger.redis_connection import RedisConnection, translated_errors
from agentrun.ledger.wire import (
    decode_amount,
    decode_object,
    decode_record,
    decode_report,
    encode_amount,
    encode_model,
    encode_object,
)

_TOOL_KEPT_SECONDS = 30 * 24 * 3600
_ORDER_QUEUE_KEPT_MS = 24 * 3600 * 1000
"""Queues of single orders are as many as there are attempts: they go by themselves, long after the order may be
claimed."""
_SWEEP_BATCH = 200


class RedisSchedulerSide:
    """What the scheduler may do."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._taken_over: set[tuple[str, str]] = set()

    # --- runs

    async def open(self, namespaces: Sequence[str]) -> str:
        """Prepare the layout and return the generation id."""
        connection = self._connection
        keys = connection.keys(INSTALL_NAMESPACE)
        argument = {
            "generation": secrets.token_hex(16),
            "formatVersion": str(FORMAT_VERSION),
            "namespaces": list(namespaces),
            "replid": await self._replication_id(),
        }
        streams = [connection.keys(namespace).reports for namespace in namespaces]
        generation, found = await connection.run("open_ledger", keys, [keys.meta, keys.namespaces, *streams], argument)
        if int(found) > FORMAT_VERSION:
            raise LedgerFormatError(f"the ledger has format {found}, this program knows {FORMAT_VERSION}: upgrade it")
        return str(generation)

    async def look(self) -> LedgerSight:
        """Look at the ledger as a whole."""
        keys = self._connection.keys(INSTALL_NAMESPACE)
        with translated_errors():
            answer: list[Any] = await self._connection.client.hmget(
                keys.meta, ["generation", "open", "replid", "formatVersion", "epoch"]
            )
        generation, is_open, server, found, epoch = answer
        if found and int(found) > FORMAT_VERSION:
            raise LedgerFormatError(f"the ledger has format {found}, this program knows {FORMAT_VERSION}: upgrade it")
        same = server == await self._replication_id()
        return LedgerSight(str(generation or ""), is_open == "1", same, int(epoch or 0))

    async def close_gate(self) -> None:
        """Have every claim and dispatch refused until the gate is opened."""
        keys = self._connection.keys(INSTALL_NAMESPACE)
        argument = {"generation": secrets.token_hex(16), "formatVersion": str(FORMAT_VERSION)}
        await self._connection.run("close_gate", keys, [keys.meta], argument)

    async def open_gate(self) -> None:
        """Say that what stands here may be relied on, on the server as it is now."""
        keys = self._connection.keys(INSTALL_NAMESPACE)
        server = await self._replication_id()
        with translated_errors():
            await self._connection.client.hset(keys.meta, mapping={"open": "1", "replid": server})

    async def restore_node(self, node: RestoredNode) -> None:
        """Put back what the resources prove about a node, where nothing is known."""
        keys = self._connection.keys(node.namespace)
        names = [keys.node(node.node_uid), keys.run(node.run_uid), keys.run_nodes(node.run_uid)]
        argument: dict[str, object] = {
            "node": node.node_uid,
            "run": node.run_uid,
            "path": node.path,
            "owner": node.owner,
            "seq": str(node.seq),
            "attempt": str(node.attempt),
            "tool": node.tool,
            "state": "lost" if node.in_flight else "ended",
            "settled": encode_amount(node.settled),
            "estimates": {str(attempt): str(micros) for attempt, micros in node.estimates},
            "stake": str(node.stake_micros),
        }
        record, payload = node.record, ""
        if record is not None:
            names.append(keys.record(record.key))
            payload = encode_model(record.outcome) if record.outcome is not None else ""
            argument |= {
                "record": record.key,
                "status": str(record.status),
                "digest": record.params_digest,
                "side": str(record.side_effect),
                "scope": str(record.scope),
                "window": str(record.window_ms),
                "version": str(max(record.version, 1)),
                "inbox": "1" if record.in_inbox else "0",
            }
        await self._connection.run("restore_node", keys, names, argument, payload)

    async def _replication_id(self) -> str:
        with translated_errors():
            return str((await self._connection.client.info("replication")).get("master_replid", ""))

    async def take_epoch(self, seen: int) -> int:
        """Return ``max(ledger, seen) + 1`` and store it."""
        keys = self._connection.keys(INSTALL_NAMESPACE)
        durable = await self._connection.is_durable()
        argument = {"seen": str(seen), "durable": "1" if durable else "0"}
        return int(await self._connection.run("take_epoch", keys, [keys.meta], argument))

    async def admit_run(self, registration: RunRegistration) -> Admission:
        """Check tombstone and session and register the run, in one step."""
        keys = self._connection.keys(registration.namespace)
        names = [keys.run(registration.uid), keys.tombstone(registration.name), keys.namespaces, keys.runs]
        if registration.session:
            names.append(keys.session(registration.session))
        argument = {
            "uid": registration.uid,
            "name": registration.name,
            "digest": registration.spec_digest,
            "holder": registration.holder,
            **encode_amount(registration.budget),
        }
        verdict, uid, name, outcome = await self._connection.run("admit_run", keys, names, argument)
        return Admission(AdmissionVerdict(verdict), uid, name, decode_object(outcome) if outcome else None)

    async def set_budget(self, namespace: str, run_uid: str, budget: Amount | None) -> None:
        """Change a run's budget."""
        keys = self._connection.keys(namespace)
        await self._connection.run("set_budget", keys, [keys.run(run_uid)], dict(encode_amount(budget)))

    async def cancel_run(self, namespace: str, run_uid: str) -> None:
        """Refuse claims and dispatches of the run from now on."""
        keys = self._connection.keys(namespace)
        await self._connection.run("cancel_run", keys, [keys.run(run_uid)], {})

    async def finish_run(self, namespace: str, run_uid: str, outcome: JsonObject | None, keep_ms: int) -> None:
        """Record the outcome in the tombstone, close the run, release its session, sweep its dead claims."""
        keys = self._connection.keys(namespace)
        with translated_errors():
            name, session = await self._connection.client.hmget(keys.run(run_uid), ["name", "session"])
        if name is None:
            # Its keeping has ended, or the ledger never knew it: nothing is left to wind up.
            await self._connection.run("forget_run", keys, [keys.runs], {"uid": run_uid})
            return
        names = [keys.run(run_uid), keys.tombstone(str(name)), keys.run_nodes(run_uid), keys.audit(run_uid)]
        if session:
            names.append(str(session))
        argument = {"uid": run_uid, "keep": str(keep_ms)}
        recorded = encode_object(outcome) if outcome is not None else ""
        await self._connection.run("finish_run", keys, names, argument, recorded)
        cursor, living = "0", 0
        while True:
            argument = {"cursor": cursor, "batch": str(_SWEEP_BATCH), "keep": str(keep_ms)}
            cursor, alive = await self._connection.run("sweep_run", keys, [keys.run_nodes(run_uid)], argument)
            living += int(alive)
            if str(cursor) == "0":
                break
        if not living:
            await self._connection.run("forget_run", keys, [keys.runs], {"uid": run_uid})

    async def find_namespaces(self) -> Sequence[str]:
        """Return every namespace that a run was ever admitted in."""
        keys = self._connection.keys(INSTALL_NAMESPACE)
        with translated_errors():
            found = await self._connection.client.smembers(keys.namespaces)
        return sorted(str(namespace) for namespace in found)

    async def find_open_runs(self, namespace: str) -> Sequence[OpenRun]:
        """Return the runs that are not wound up."""
        keys = self._connection.keys(namespace)
        found: list[OpenRun] = []
        cursor = "0"
        while True:
            argument = {"cursor": cursor, "batch": str(_SWEEP_BATCH)}
            cursor, *rows = await self._connection.run("find_open_runs", keys, [keys.runs], argument)
            found.extend(OpenRun(uid, name, ended=state == "finished") for uid, name, state in rows)
            if str(cursor) == "0":
                return found

    async def put_pins(self, namespace: str, run_uid: str, pins: JsonObject) -> None:
        """Keep what a run was admitted with."""
        with translated_errors():
            await self._connection.client.set(
                self._connection.keys(namespace).pins(run_uid), encode_object(pins), ex=_TOOL_KEPT_SECONDS
            )

    async def fetch_pins(self, namespace: str, run_uid: str) -> JsonObject | None:
        """Return what a run was admitted with, or None."""
        with translated_errors():
            text = await self._connection.client.getex(
                self._connection.keys(namespace).pins(run_uid), ex=_TOOL_KEPT_SECONDS
            )
        return decode_object(str(text)) if text else None

    async def put_tool(self, namespace: str, digest: str, definition: JsonObject) -> None:
        """Store a tool's definition by its digest."""
        with translated_errors():
            await self._connection.client.set(
                self._connection.keys(namespace).tool(digest), encode_object(definition), ex=_TOOL_KEPT_SECONDS
            )

    # --- orders

    async def dispatch(
        self, order: Order, limits: Sequence[SlotLimit], node_budget: Amount | None, sending: int = 0
    ) -> DispatchAnswer:
        """Set seq-1 to seq by comparison, remove an earlier entry, take slots and hold, append to the stream."""
        keys = self._connection.keys(order.namespace)
        stream = keys.queue(order.pool, order.tool, str(order.priority))
        names = [
            keys.node(order.node_uid),
            keys.run(order.run_uid),
            stream,
            keys.queues(order.pool),
            keys.bell(order.pool),
            keys.run_nodes(order.run_uid),
        ]
        argument = {
            "node": order.node_uid,
            "run": order.run_uid,
            "path": order.node_path,
            "owner": f"{order.namespace}/{order.run_name}/{order.node_path}",
            "attempt": str(order.attempt),
            "seq": str(order.seq),
            "epoch": str(order.epoch),
            "kind": str(order.kind),
            "request": order.request_id,
            "tool": order.tool,
            "pool": order.pool,
            "session": keys.session(order.session) if order.session else "",
            "side": str(order.side_effect),
            "digest": order.params_digest,
            "record": order.record.key,
            "scope": str(order.record.scope),
            "window": str(order.record.window_ms),
            "duplicate": str(order.record.on_duplicate),
            "ownKey": "1" if order.record.own_key else "0",
            "timeout": str(order.timeout_ms),
            "claimWithin": str(order.claim_within_ms),
            "runRemaining": str(order.run_remaining_ms),
            "rate": str(order.rate_per_second or 0),
            "keep": str(order.claim_within_ms + _ORDER_QUEUE_KEPT_MS if serves_one_order(order.pool) else 0),
            "sending": str(sending),
            "hold": encode_amount(order.hold),
            "budget": encode_amount(node_budget),
            "limits": [[limit.name, str(limit.limit)] for limit in limits],
        }
        refusal, limit = await self._connection.run("dispatch", keys, names, argument, encode_model(order))
        return DispatchAnswer(RefusalKind(refusal) if refusal else None, limit)

    async def withdraw(self, namespace: str, run_uid: str, node_uid: str, seq: int) -> WithdrawVerdict:
        """Take an order back, unless it is claimed."""
        more: dict[str, object] = {"seq": str(seq), "run": run_uid}
        return WithdrawVerdict(await self._on_node("withdraw", namespace, node_uid, more))

    async def fence_attempt(self, namespace: str, node_uid: str, seq: int) -> bool:
        """Decide a silent or late attempt lost."""
        return int(await self._on_node("fence_attempt", namespace, node_uid, {"seq": str(seq)})) == 1

    async def abandon_recovery(self, namespace: str, node_uid: str, seq: int) -> bool:
        """End a recovery that nobody carried out in time."""
        return int(await self._on_node("abandon_recovery", namespace, node_uid, {"seq": str(seq)})) == 1

    async def renew_slots(self, namespace: str, holders: Sequence[tuple[str, int]]) -> None:
        """Extend the slots of the (node uid, attempt) pairs."""
        await self._on_holders("renew_slots", namespace, holders)

    async def release_slots(self, namespace: str, holders: Sequence[tuple[str, int]]) -> None:
        """Free what the (node uid, attempt) pairs hold, the global slot included."""
        await self._on_holders("release_slots", namespace, holders)

    # --- records

    async def find_record(self, namespace: str, key: str) -> RecordView | None:
        """Return an idempotency record, or None."""
        keys = self._connection.keys(namespace)
        return decode_record(await self._connection.run("find_record", keys, [keys.record(key)], {"record": key}))

    async def mark_inbox(self, namespace: str, key: str, node_uid: str, open_inbox: bool) -> None:
        """Say that the record's owner waits for a human (or no longer does)."""
        keys = self._connection.keys(namespace)
        argument = {"record": key, "node": node_uid, "open": "1" if open_inbox else "0"}
        await self._connection.run("mark_inbox", keys, [keys.record(key)], argument)

    async def answer_record(
        self, namespace: str, key: str, version: int, effect: Effect, result: JsonValue, has_result: bool
    ) -> AnswerVerdict:
        """Apply a human's answer to the record as it was asked about."""
        keys = self._connection.keys(namespace)
        status, payload = RecordStatus.FAILED, ""
        if effect is Effect.EXECUTED:
            status = RecordStatus.SUCCESS if has_result else RecordStatus.EXECUTED
        if status is RecordStatus.SUCCESS:
            payload = encode_model(AttemptOutcome(effect=Effect.EXECUTED, result=result))
        argument = {
            "record": key,
            "version": str(version),
            "status": str(status),
            "answer": json_digest([str(effect), result, has_result]),
        }
        return AnswerVerdict(await self._connection.run("answer_record", keys, [keys.record(key)], argument, payload))

    async def stop_waiting(self, namespace: str, key: str, node_uid: str) -> None:
        """Take a node out of the record's line of waiters."""
        keys = self._connection.keys(namespace)
        await self._connection.run("stop_waiting", keys, [keys.waiters(key)], {"node": node_uid})

    # --- reports

    async def read_reports(
        self, namespaces: Sequence[str], consumer: str, count: int, block_ms: int
    ) -> Sequence[tuple[str, Report]]:
        """Return unread reports as (id, report) in order; the first calls give all that are still unacknowledged."""
        try:
            for namespace in namespaces:
                if (namespace, consumer) not in self._taken_over:
                    found = await self._take_over(namespace, consumer)
                    self._taken_over.add((namespace, consumer))
                    if found:
                        return found
            return await self._read_new(namespaces, consumer, count, block_ms)
        except (LedgerUnavailableError, asyncio.CancelledError):
            # What that step delivered is taken over from oneself by the next one.
            self._taken_over.clear()
            raise

    async def acknowledge_reports(self, namespace: str, ids: Sequence[str]) -> None:
        """Say that the cluster has what these reports said."""
        if ids:
            keys = self._connection.keys(namespace)
            await self._connection.run("acknowledge_reports", keys, [keys.reports], {"ids": list(ids)})

    async def _take_over(self, namespace: str, consumer: str) -> list[tuple[str, Report]]:
        keys = self._connection.keys(namespace)
        found: list[tuple[str, Report]] = []
        start = "0-0"
        while True:
            argument = {"consumer": consumer, "start": start, "count": str(_SWEEP_BATCH)}
            start, *entries = await self._connection.run("take_over_reports", keys, [keys.reports], argument)
            found.extend(await self._readable_reports(namespace, entries))
            if start == "0-0":
                return found

    async def _read_new(
        self, namespaces: Sequence[str], consumer: str, count: int, block_ms: int
    ) -> list[tuple[str, Report]]:
        streams = {self._connection.keys(namespace).reports: namespace for namespace in namespaces}
        command = ("XREADGROUP", "GROUP", SCHEDULER_GROUP, consumer, "COUNT", count, "BLOCK", max(block_ms, 1))
        with translated_errors():
            try:
                answer = await self._connection.wait_for(
                    block_ms / 1000, *command, "STREAMS", *streams, *(">" for _ in streams)
                )
            except ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
                # The server lost a group, or a stream with it: both are made again.
                self._taken_over.clear()
                return []
        found: list[tuple[str, Report]] = []
        for stream, entries in _by_stream(answer):
            # One field, named `report`; an entry that was deleted meanwhile has none.
            readable = [[entry, fields[1] if fields else ""] for entry, fields in entries]
            found.extend(await self._readable_reports(streams[stream], readable))
        return found

    async def _readable_reports(self, namespace: str, entries: Sequence[Sequence[str]]) -> list[tuple[str, Report]]:
        found: list[tuple[str, Report]] = []
        for entry, text in entries:
            try:
                found.append((entry, decode_report(text)))
            except ValueError:
                await self.acknowledge_reports(namespace, [entry])
        return found

    # --- looking

    async def find_node(self, namespace: str, node_uid: str) -> NodeLedgerState:
        """Return what the ledger knows about a node (zeros when nothing)."""
        seq, attempt, state, silent, worker, report, kind = await self._on_node("find_node", namespace, node_uid, {})
        return NodeLedgerState(
            seq=int(seq),
            attempt=int(attempt),
            queued=state == "queued",
            claimed=state == "claimed",
            claim_silent_ms=int(silent),
            worker=worker,
            last_report=decode_report(report) if report else None,
            recovers=kind == OrderKind.RECOVER,
        )

    async def find_counters(self, namespace: str, run_uid: str) -> RunCounters:
        """Return what the run spent and holds."""
        keys = self._connection.keys(namespace)
        totals, *nodes = await self._connection.run(
            "find_counters", keys, [keys.run(run_uid), keys.run_nodes(run_uid)], {}
        )
        shares = {uid: decode_amount(values) for uid, *values in nodes}
        return RunCounters(settled=decode_amount(totals[:3]), held=decode_amount(totals[3:]), nodes=shares)

    async def find_backlog(self, namespace: str, pool: str, tool: str) -> dict[Priority, int]:
        """Return how many orders stand unclaimed in the tool's streams."""
        keys = self._connection.keys(namespace)
        streams = [keys.queue(pool, tool, str(priority)) for priority in Priority]
        counts = await self._connection.run("find_backlog", keys, streams, {})
        return {priority: int(count) for priority, count in zip(Priority, counts, strict=True)}

    async def find_pool_slots(self, namespace: str, pool: str) -> int:
        """Return the slots that live workers of the pool announce together."""
        keys = self._connection.keys(namespace)
        return int(await self._connection.run("find_pool_slots", keys, [keys.workers(pool)], {"pool": pool}))

    async def find_slots_in_use(self, namespace: str, name: str) -> int:
        """Return the number of live holders of a limit."""
        keys = self._connection.keys(namespace)
        slots = keys.global_slots if name == "global" else keys.slots(name)
        return int(await self._connection.run("find_slots_in_use", keys, [slots], {}))

    async def _on_node(self, name: str, namespace: str, node_uid: str, more: dict[str, object]) -> Any:
        keys = self._connection.keys(namespace)
        return await self._connection.run(name, keys, [keys.node(node_uid)], {"node": node_uid, **more})

    async def _on_holders(self, name: str, namespace: str, holders: Sequence[tuple[str, int]]) -> None:
        argument = {"holders": [[uid, str(attempt)] for uid, attempt in holders]}
        await self._connection.run(name, self._connection.keys(namespace), [], argument)


def _by_stream(answer: Any) -> list[tuple[str, Any]]:
    """Read XREADGROUP's answer, which is a list in RESP 2 and a map in RESP 3."""
    return list(answer.items() if isinstance(answer, dict) else answer or ())
