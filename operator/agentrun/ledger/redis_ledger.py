"""The ledger on Redis 7 or Valkey 8 and later, standalone or under Sentinel: both halves over one connection pool."""

from __future__ import annotations

from collections.abc import Sequence

from agentrun.contract.ledger_keys import INSTALL_NAMESPACE, INSTALLS_KEY
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.ledger.redis_connection import LedgerSettings, RedisConnection
from agentrun.ledger.redis_scheduler_side import RedisSchedulerSide
from agentrun.ledger.redis_worker_side import RedisWorkerSide
from agentrun.ledger.worker_users import WorkerUsers


class RedisLedger(RedisWorkerSide, RedisSchedulerSide):
    """What both planes may do, as Lua steps on one server."""

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        RedisWorkerSide.__init__(self, connection)
        RedisSchedulerSide.__init__(self, connection)

    @classmethod
    def connect(cls, url: str, settings: LedgerSettings | None = None) -> RedisLedger:
        """Return the ledger at ``redis://`` or ``rediss://`` or ``unix://``; nothing is sent yet."""
        return cls(RedisConnection(url, settings or LedgerSettings()))

    async def find_faults(self) -> tuple[str, ...]:
        """Return what about the server's configuration endangers the ledger, each with its remedy."""
        client = self._connection.client
        try:
            found = await client.config_get("maxmemory-policy", "appendonly", "appendfsync")
        except Exception as error:
            raise LedgerUnavailableError(f"CONFIG GET failed: {error}") from error
        faults: list[str] = []
        policy = found.get("maxmemory-policy", "noeviction")
        if policy != "noeviction":
            faults.append(f"maxmemory-policy is {policy}, so records may vanish: set it to noeviction")
        if found.get("appendonly") != "yes" or found.get("appendfsync") != "always":
            faults.append("claims are not on disk when they are answered: set appendonly yes and appendfsync always")
        return tuple(faults)

    def worker_users(self) -> WorkerUsers:
        """Return who makes users for workers, with this connection's own rights."""
        return WorkerUsers(self._connection.client, self._connection.settings.install)

    async def bind_install(self, cluster: str, namespaces: Sequence[str]) -> tuple[str, str] | None:
        """Bind these namespaces of a cluster (none: all of them) to this install; repeating it does no harm.

        Returns None, or another install and which of them it holds: nothing is bound then. Atomic. Raises
        :class:`LedgerUnavailableError`.
        """
        connection = self._connection
        argument = {"cluster": cluster, "namespaces": list(namespaces), "install": connection.settings.install}
        found = await connection.run("bind_install", connection.keys(INSTALL_NAMESPACE), [INSTALLS_KEY], argument)
        return (str(found[0]), str(found[1])) if found else None

    async def close(self) -> None:
        """Give connections back."""
        await self._connection.close()
