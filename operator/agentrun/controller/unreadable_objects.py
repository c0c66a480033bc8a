"""What happens to objects that the models refuse: an older API server may let through what the schema forbids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import ValidationError

from agentrun.contract.failures import Reason
from agentrun.contract.model_base import cut_text
from agentrun.contract.run import AgentRunStatus, RunPhase
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_objects import collection_path, to_api
from agentrun.decisions.run_conditions import build_run_conditions
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError

_log = structlog.get_logger("agentrun.controller")


class UnreadableObjects:
    """Answers an unreadable run with Rejected and the fault; the others are logged and left as they were known."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def refuse(self, kind: str, raw: Mapping[str, Any], error: ValidationError) -> None:
        """Say what is wrong where its author looks for it."""
        meta = raw.get("metadata") or {}
        said = _explain(error)
        _log.warning("object_unreadable", kind=kind, namespace=meta.get("namespace"), name=meta.get("name"), cause=said)
        status = raw.get("status") or {}
        # One that was admitted goes on as it was admitted: an illegal edit changes nothing.
        if kind != "AgentRun" or status.get("phase") not in (None, RunPhase.PENDING):
            return
        await self._reject(meta, said)

    async def _reject(self, meta: Mapping[str, Any], said: str) -> None:
        now = self._clock.now()
        generation = meta.get("generation") or 1
        rejected = AgentRunStatus(
            phase=RunPhase.REJECTED,
            reason=Reason.INVALID_SPEC,
            message=said,
            finished_at=now,
            observed_generation=generation,
        )
        rejected = rejected.model_copy(update={"conditions": build_run_conditions(rejected, now, generation)})
        path = f"{collection_path('AgentRun', meta['namespace'])}/{meta['name']}/status"
        body = {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
            "status": to_api(rejected),
        }
        try:
            await self._client.request("PUT", path, body)
        except (ClusterUnavailableError, ConflictError, GoneError) as error:
            # Its next event brings it back here.
            _log.warning("rejection_not_stored", name=meta["name"], cause=str(error))


def _explain(error: ValidationError) -> str:
    faults = [
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)[:10]
    ]
    return cut_text("; ".join(faults), 4000)
