"""The connection to the server: one place that sends, waits and translates foreign errors. Knows no operation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from agentrun.contract.defaults import HEARTBEAT_SILENCE, MAX_DELIVERIES, RECOVERY_WAIT, SLOT_LEASE
from agentrun.contract.ledger_keys import LedgerKeys
from agentrun.contract.orders import CONTRACT_VERSION
from agentrun.ledger.lua_scripts import LuaScripts
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.ledger.wire import encode_argument


class Durability(StrEnum):
    """What is asked of the server before a call that may happen only once is made."""

    REQUIRE = "Require"
    """Its claim must be on disk first (``appendonly yes``, ``appendfsync always``); else it is not made."""
    ACCEPT = "Accept"
    """The operator accepts that a server's crash may lose the last second, and with it the proof of a call."""


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """What an installation may set about its ledger."""

    install: str = "agentrun"
    durability: Durability = Durability.REQUIRE
    claim_lease: timedelta = HEARTBEAT_SILENCE
    slot_lease: timedelta = SLOT_LEASE
    reservation: timedelta = RECOVERY_WAIT * 2
    """How long an open record stays reserved for its owner's recovery."""
    reclaim_every: timedelta = timedelta(seconds=5)
    reclaim_batch: int = 200
    """Entries that one step of taking over from dead workers looks at."""
    max_deliveries: int = MAX_DELIVERIES
    audit_length: int = 10_000
    audit_keep: timedelta = timedelta(days=30)
    least_keep: timedelta = timedelta(hours=1)
    """Finished runs and their nodes are kept for this long at least, so that late commits find them."""
    bell_length: int = 1000
    connections: int = 64
    answer_within: timedelta = timedelta(seconds=5)
    """Longest wait for the answer to a step that does not block."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Lua libraries put in place of the shipped ones (tests: the clock)."""


class RedisConnection:
    """Runs operations on one server for all namespaces of an install."""

    def __init__(self, url: str, settings: LedgerSettings) -> None:
        self.settings = settings
        # One retry layer only, and it is not this one: a step that may have happened is repeated by whoever knows it.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=settings.connections,
            timeout=settings.answer_within.total_seconds(),
            decode_responses=True,
            encoding_errors="surrogateescape",
            socket_connect_timeout=settings.answer_within.total_seconds(),
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
        self.client = Redis(connection_pool=pool)
        """For plain commands; operations go a shorter way."""
        self._pool = pool
        # Taken from the pool and kept: borrowing one for each step costs as much as the step.
        self._lanes: list[AbstractConnection] = []
        self._room = asyncio.Semaphore(max(1, settings.connections * 3 // 4))
        self._scripts = LuaScripts(settings.libraries)
        self._keys: dict[str, LedgerKeys] = {}
        self._confs: dict[str, str] = {}

    def keys(self, namespace: str) -> LedgerKeys:
        """Return the key names of a namespace."""
        known = self._keys.get(namespace)
        if known is None:
            known = self._keys[namespace] = LedgerKeys(self.settings.install, namespace)
        return known

    async def run(
        self, name: str, keys: LedgerKeys, names: Sequence[str], argument: Mapping[str, object], payload: str = ""
    ) -> Any:
        """Run one operation. Raises :class:`LedgerUnavailableError`."""
        with translated_errors():
            async with asyncio.timeout(self.settings.answer_within.total_seconds()), self._room:
                return await self._scripts.run(
                    self._exchange, name, names, (self._conf(keys), encode_argument(argument), payload)
                )

    async def wait_for(self, seconds: float, *command: str | int) -> Any:
        """Run a command that waits on the server for up to so long; its answer as the server gave it.

        Raises what the client's library raises: see :func:`translated_errors`.
        """
        async with asyncio.timeout(seconds + self.settings.answer_within.total_seconds()):
            return await self._exchange(*command)

    async def is_durable(self) -> bool | None:
        """Tell whether what the server has answered is on its disk; None: it does not let us ask.

        Raises :class:`LedgerUnavailableError`.
        """
        with translated_errors():
            try:
                found = await self.client.config_get("appendonly", "appendfsync")
            except ResponseError:
                # No right to ask, or a server on which nobody may.
                return None
        return found.get("appendonly") == "yes" and found.get("appendfsync") == "always"

    async def _exchange(self, *command: str | int) -> Any:
        """Send one command and return its answer as the server gave it."""
        lane = self._lanes.pop() if self._lanes else await self._pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            # One that the server has closed meanwhile is opened anew.
            await self._pool.ensure_connection(lane)
            await lane.send_command(*command)
            # One that was given up on half way is closed by this, and opened anew when it is used again.
            return await lane.read_response()
        finally:
            self._lanes.append(lane)

    async def close(self) -> None:
        """Give all connections back."""
        for lane in self._lanes:
            await self._pool.release(lane)
        self._lanes = []
        await self.client.aclose()
        await self.client.connection_pool.disconnect()

    def _conf(self, keys: LedgerKeys) -> str:
        known = self._confs.get(keys.namespace)
        if known is None:
            known = self._confs[keys.namespace] = self._build_conf(keys)
        return known

    def _build_conf(self, keys: LedgerKeys) -> str:
        settings = self.settings
        return encode_argument(
            {
                "prefix": keys.prefix,
                "namespace": keys.namespace,
                "meta": keys.meta,
                "globalSlots": keys.global_slots,
                "leaseMs": milliseconds(settings.claim_lease),
                "slotLeaseMs": milliseconds(settings.slot_lease),
                "reserveMs": milliseconds(settings.reservation),
                "auditLength": settings.audit_length,
                "auditKeepMs": milliseconds(settings.audit_keep),
                "minKeepMs": milliseconds(settings.least_keep),
                "bellLength": settings.bell_length,
                "contractVersion": CONTRACT_VERSION,
            }
        )


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what the client raises into :class:`LedgerUnavailableError`."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise LedgerUnavailableError(f"{type(error).__name__}: {error}") from error


def milliseconds(duration: timedelta) -> int:
    """Return whole milliseconds."""
    return round(duration / timedelta(milliseconds=1))
