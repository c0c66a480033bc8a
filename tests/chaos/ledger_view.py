"""What is left in the ledger when everything has ended."""

from __future__ import annotations

from collections.abc import Iterable

from agentrun.contract.ledger_keys import LedgerKeys
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger


async def find_remains(url: str, namespace: str, run_uids: Iterable[str]) -> list[str]:
    """Return what ought not to be there any more: claims, slots in use, money that is held, runs that are open.

    The install bears the namespace's name. Raises what the client raises while the server is away.
    """
    ledger = RedisLedger.connect(url, LedgerSettings(install=namespace))
    client = ledger.connection.client
    keys = LedgerKeys(namespace, namespace)
    found = []
    try:
        claims = await client.zrange(keys.claims, 0, -1)
        found += [f"the ledger holds a claim of node {uid!s}" for uid in claims]
        seconds, micros = await client.time()
        now_ms = seconds * 1000 + micros // 1000
        for name in [keys.global_slots, *await client.keys(keys.slots("*"))]:
            holders = await client.zrangebyscore(name, f"({now_ms}", "+inf")
            found += [f"slot {name!s} is held by {holder!s}" for holder in holders]
        for uid in run_uids:
            counters = await ledger.find_counters(namespace, uid)
            if counters.held.micros:
                found.append(f"{counters.held.micros} micros are held for run {uid}")
            settled = sum(amount.micros for amount in counters.nodes.values())
            if settled != counters.settled.micros:
                found.append(f"run {uid} has settled {counters.settled.micros} micros, its nodes {settled}")
        found += [f"run {run.name} ({run.uid}) is not wound up" for run in await ledger.find_open_runs(namespace)]
    finally:
        await ledger.close()
    return found
