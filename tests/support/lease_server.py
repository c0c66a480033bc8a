"""An API server's Lease in memory, behind the requests that leader election makes."""

from __future__ import annotations

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_errors import NameTakenError
from agentrun.engine.cluster_port import ConflictError, GoneError


class LeaseServer:
    """One Lease, with optimistic concurrency; it is created, replaced and read by whoever wants to lead."""

    def __init__(self) -> None:
        self.lease: JsonObject | None = None
        self._version = 0

    async def request(self, verb: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """Answer a request as an API server does."""
        if verb == "POST":
            if self.lease is not None:
                raise NameTakenError(path)
            return self._store(body)
        if self.lease is None:
            raise GoneError(path)
        if verb == "PUT":
            if _version(body) != str(self._version):
                raise ConflictError(path)
            return self._store(body)
        return self.lease

    @property
    def holder(self) -> str:
        """Who holds it; empty: nobody."""
        spec = self.lease.get("spec") if self.lease else None
        return str(spec.get("holderIdentity") or "") if isinstance(spec, dict) else ""

    @property
    def epoch(self) -> int:
        """The epoch that it tells of."""
        notes = _metadata(self.lease).get("annotations")
        return int(str(notes["agentrun.dev/epoch"])) if isinstance(notes, dict) else 0

    def run_out(self) -> None:
        """Let anybody take it: its time has passed, or it was given back."""
        if self.lease is not None:
            spec = self.lease["spec"]
            self._store({**self.lease, "spec": {**(spec if isinstance(spec, dict) else {}), "holderIdentity": ""}})

    def _store(self, body: JsonObject | None) -> JsonObject:
        self._version += 1
        metadata: JsonObject = {**_metadata(body), "resourceVersion": str(self._version)}
        self.lease = {**(body or {}), "metadata": metadata}
        return self.lease


def _metadata(lease: JsonObject | None) -> JsonObject:
    found = lease.get("metadata") if lease else None
    return found if isinstance(found, dict) else {}


def _version(lease: JsonObject | None) -> str:
    return str(_metadata(lease).get("resourceVersion") or "")
