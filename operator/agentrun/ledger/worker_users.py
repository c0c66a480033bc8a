"""Users of the ledger's server for workers: one for each namespace, who reaches that namespace's keys alone.

Called by the operator, with the rights of its own user. What such a user may do is what the worker's half of the
ledger sends, scripts included: whatever a script touches is held against the same rules. Keeps no password.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from agentrun.contract.ledger_keys import LedgerKeys
from agentrun.ledger.redis_connection import translated_errors

_SENT = ("ping", "evalsha", "script|load", "getex", "blpop", "hget", "client|setinfo", "hello", "select")
"""What a worker sends itself."""
_IN_SCRIPTS = (
    *("time", "info", "get", "set", "del", "exists", "pexpire", "persist"),
    *("hget", "hmget", "hgetall", "hkeys", "hset", "hdel", "hincrby", "sadd", "smembers"),
    *("zadd", "zrem", "zscore", "zcount", "zrangebyscore", "zremrangebyscore"),
    *("lpush", "lpop", "rpush", "lpos", "lrem", "llen", "lrange", "ltrim"),
    *("xadd", "xack", "xdel", "xlen", "xrange", "xreadgroup", "xclaim", "xautoclaim", "xpending"),
    *("xgroup|create", "xgroup|delconsumer", "xinfo|consumers"),
)
"""What the scripts of the worker's half do."""


class UsersForbiddenError(Exception):
    """The server lets nobody make users, as many managed ones do: workers have to share the operator's."""


class WorkerUsers:
    """Makes and keeps the users of one install."""

    def __init__(self, client: Redis, install: str) -> None:
        self._client = client
        self._install = install
        self._made: dict[str, tuple[str, ...]] = {}

    async def ensure(self, namespace: str, passwords: Sequence[str]) -> None:
        """Have the namespace's user, who is known by any of these passwords; repeating it changes nothing.

        A server that was started anew has forgotten it. Raises :class:`UsersForbiddenError` and
        :class:`LedgerUnavailableError`.
        """
        name = worker_user_name(self._install, namespace)
        rules = build_user_rules(self._install, namespace, passwords)
        with translated_errors():
            try:
                if self._made.get(name) == rules and await self._ask("GETUSER", name):
                    return
                await self._ask("SETUSER", name, *rules)
            except NoPermissionError as error:
                raise UsersForbiddenError(str(error)) from error
            except ResponseError as error:
                # "unknown command" of a server without users, "unsupported" of a managed one.
                raise UsersForbiddenError(str(error)) from error
        self._made[name] = rules

    async def _ask(self, *words: str) -> Any:
        return await self._client.execute_command("ACL", *words)  # type: ignore[no-untyped-call]


def worker_user_name(install: str, namespace: str) -> str:
    """Return the name of a namespace's user; neither part holds a dot."""
    return f"{install}.{namespace}"


def build_user_rules(install: str, namespace: str, passwords: Sequence[str]) -> tuple[str, ...]:
    """Return the rules of a namespace's user, as the server takes them; passwords as digests."""
    keys = LedgerKeys(install, namespace)
    return (
        "reset",
        "on",
        *(f"#{hashlib.sha256(password.encode()).hexdigest()}" for password in passwords),
        f"~{keys.prefix}*",
        # Whether the gate is open.
        f"%R~{keys.meta}",
        "resetchannels",
        "-@all",
        *(f"+{command}" for command in dict.fromkeys((*_SENT, *_IN_SCRIPTS))),
    )
