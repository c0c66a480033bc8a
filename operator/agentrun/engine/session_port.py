"""What the engine needs of whoever keeps sessions visible in the cluster; the ledger holds them as well.

A Lease shows who holds a session and outlives a ledger that lost its data; the ledger knows which calls are under way
and outlives a Lease that somebody deleted. A session is taken only where both agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from agentrun.contract.object_meta import ObjectMeta


@dataclass(frozen=True, slots=True)
class SessionHolder:
    """The run that a session is held by."""

    uid: str
    name: str


class SessionLeases(Protocol):
    """Takes, renews and gives back the Leases of sessions. Each may raise what the cluster port raises."""

    @property
    def duration(self) -> timedelta:
        """How long a Lease lasts without renewal."""
        ...

    async def take(self, run: ObjectMeta, session: str, replacing: str = "") -> SessionHolder | None:
        """Take the session for a run, or renew it; return who else holds it, or None when it is the run's.

        ``replacing``: the uid of a holder that is known to be gone; only its Lease is taken over.
        """
        ...

    async def release(self, run: ObjectMeta, session: str) -> None:
        """Give the session back if the run holds it."""
        ...


class NoSessionLeases:
    """Where there is no cluster the ledger alone holds sessions."""

    @property
    def duration(self) -> timedelta:
        """They last for ever."""
        return timedelta.max

    async def take(self, run: ObjectMeta, session: str, replacing: str = "") -> SessionHolder | None:
        """Leave it to the ledger."""
        return None

    async def release(self, run: ObjectMeta, session: str) -> None:
        """Leave it to the ledger."""
