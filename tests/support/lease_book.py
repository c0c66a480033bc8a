"""Session Leases in memory, for tests: who holds what, how often it was renewed, and an API server that is away."""

from __future__ import annotations

from datetime import timedelta

from agentrun.contract.object_meta import ObjectMeta
from agentrun.engine.cluster_port import ClusterUnavailableError
from agentrun.engine.session_port import SessionHolder


class LeaseBook:
    """Behind the engine's port for session Leases."""

    duration = timedelta(minutes=10)

    def __init__(self) -> None:
        self.holders: dict[str, SessionHolder] = {}
        self.renewals_total = 0
        self.away = False

    async def take(self, run: ObjectMeta, session: str, replacing: str = "") -> SessionHolder | None:
        """Take or renew the session unless another one holds it."""
        self._refuse_if_away()
        holder = self.holders.get(session)
        if holder is not None and holder.uid not in (run.uid, replacing):
            return holder
        self.renewals_total += 1
        self.holders[session] = SessionHolder(run.uid, run.name)
        return None

    async def release(self, run: ObjectMeta, session: str) -> None:
        """Give it back."""
        self._refuse_if_away()
        if session in self.holders and self.holders[session].uid == run.uid:
            del self.holders[session]

    def _refuse_if_away(self) -> None:
        if self.away:
            raise ClusterUnavailableError("the API server is away")
