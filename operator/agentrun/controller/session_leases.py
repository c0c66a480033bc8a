"""Session Leases on the API server: one for each session that a run holds, owned by that run.

``kubectl get leases`` shows who holds what. A Lease that has run out frees nothing by itself: the engine asks whether
its holder lives, and the ledger whether a call of that session is under way.
"""

from __future__ import annotations

from datetime import timedelta

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.model_base import format_time
from agentrun.contract.names import RUN_UID_LABEL, session_holder, session_lease_name
from agentrun.contract.object_meta import API_VERSION, ObjectMeta
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import NameTakenError
from agentrun.controller.api_objects import LEASE_API, lease_collection
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterUnavailableError, GoneError
from agentrun.engine.session_port import SessionHolder

RUN_ANNOTATION = "agentrun.dev/run"
SESSION_ANNOTATION = "agentrun.dev/session"
SESSION_LEASE = timedelta(minutes=10)


class ApiSessionLeases:
    """Behind the engine's port for session Leases."""

    def __init__(self, client: ApiClient, clock: Clock, duration: timedelta = SESSION_LEASE) -> None:
        self._client = client
        self._clock = clock
        self._duration = duration

    @property
    def duration(self) -> timedelta:
        """How long a Lease lasts without renewal."""
        return self._duration

    async def take(self, run: ObjectMeta, session: str, replacing: str = "") -> SessionHolder | None:
        """Create, renew or take over the session's Lease; return who else holds it."""
        path = _path(run.namespace, session)
        try:
            found = await self._client.request("GET", path)
        except GoneError:
            try:
                await self._client.request("POST", lease_collection(run.namespace), self._body(run, session, None))
            except NameTakenError as error:
                raise ClusterUnavailableError(f"another run took session {session} just now") from error
            return None
        holder = _holder(found)
        if holder.uid not in ("", run.uid, replacing):
            return holder
        # Conditional on what was read: of two that want it one gets it.
        await self._client.request("PUT", path, self._body(run, session, found))
        return None

    async def release(self, run: ObjectMeta, session: str) -> None:
        """Delete the Lease if the run holds it."""
        path = _path(run.namespace, session)
        try:
            found = await self._client.request("GET", path)
            if _holder(found).uid != run.uid:
                return
            meta = found.get("metadata")
            version = meta.get("resourceVersion") if isinstance(meta, dict) else None
            await self._client.request(
                "DELETE",
                path,
                {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}},
            )
        except GoneError:
            return

    def _body(self, run: ObjectMeta, session: str, found: JsonObject | None) -> JsonObject:
        now = format_time(self._clock.now())
        metadata: JsonObject = {
            "name": session_lease_name(session),
            "namespace": run.namespace,
            "labels": {RUN_UID_LABEL: run.uid},
            "annotations": {RUN_ANNOTATION: run.name, SESSION_ANNOTATION: session},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "AgentRun",
                    "name": run.name,
                    "uid": run.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        }
        acquired, transitions = now, 0
        if found is not None:
            before, meta = found.get("spec"), found.get("metadata")
            before = before if isinstance(before, dict) else {}
            if isinstance(meta, dict):
                metadata["uid"] = meta.get("uid")
                metadata["resourceVersion"] = meta.get("resourceVersion")
            count = before.get("leaseTransitions")
            transitions = count if isinstance(count, int) else 0
            if _holder(found).uid == run.uid:
                acquired = str(before.get("acquireTime") or now)
            else:
                transitions += 1
        return {
            "apiVersion": LEASE_API,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": session_holder(run.uid),
                "leaseDurationSeconds": round(self._duration.total_seconds()),
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }


def _path(namespace: str, session: str) -> str:
    return f"{lease_collection(namespace)}/{session_lease_name(session)}"


def _holder(lease: JsonObject) -> SessionHolder:
    spec, meta = lease.get("spec"), lease.get("metadata")
    identity = str(spec.get("holderIdentity") or "") if isinstance(spec, dict) else ""
    notes = meta.get("annotations") if isinstance(meta, dict) else None
    name = str(notes.get(RUN_ANNOTATION) or "") if isinstance(notes, dict) else ""
    return SessionHolder(identity.partition("/")[0], name)
