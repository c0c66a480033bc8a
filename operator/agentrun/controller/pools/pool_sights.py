"""Reads Deployments and pods as the API server has them into what is decided about. Pure; called by the pool keeper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.controller.pools.pool_manifests import DIGEST_ANNOTATION, POOL_LABEL, is_external
from agentrun.controller.pools.worker_pod import CONTAINER
from agentrun.decisions.pools.pod_faults import PodSight, PoolFault
from agentrun.decisions.pools.pool_step import PoolSight, WorkerSight
from agentrun.decisions.pools.pool_wishes import PoolKey

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation by which Kubernetes (1.22 and newer) chooses the pods to end: those of the lowest number."""
KEPT_COST = "100"


def pool_key_of(found: JsonObject) -> PoolKey:
    """Return which pool an object belongs to."""
    return PoolKey(_text(_part(found, "metadata"), "namespace"), _text(labels_of(found), POOL_LABEL))


def labels_of(found: JsonObject) -> JsonObject:
    """Return an object's labels."""
    return _part(_part(found, "metadata"), "labels")


def read_pool(deployment: JsonObject, pods: Iterable[PodSight]) -> PoolSight:
    """Return a pool as its Deployment and its pods show it."""
    notes = _part(_part(deployment, "metadata"), "annotations")
    replicas = _part(deployment, "spec").get("replicas")
    return PoolSight(
        digest=_text(notes, DIGEST_ANNOTATION),
        replicas=replicas if isinstance(replicas, int) else 1,
        external=is_external(notes),
        workers=tuple(WorkerSight(pod.name, pod.kept) for pod in pods if not pod.leaving),
    )


def is_leaving(found: JsonObject) -> bool:
    """Tell whether an object is being deleted."""
    return "deletionTimestamp" in _part(found, "metadata")


def read_pod(pod: JsonObject) -> PodSight:
    """Return what a pod's status says."""
    meta, status = _part(pod, "metadata"), _part(pod, "status")
    container = next((found for found in _list(status, "containerStatuses") if found.get("name") == CONTAINER), {})
    waiting = _part(_part(container, "state"), "waiting")
    # How it ended: just now, or before it was started again.
    ended = _part(_part(container, "state"), "terminated") or _part(_part(container, "lastState"), "terminated")
    code = ended.get("exitCode")
    conditions = {_text(found, "type"): found for found in _list(status, "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    refused = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodSight(
        name=_text(meta, "name"),
        created_at=_time(meta.get("creationTimestamp")),
        phase=_text(status, "phase"),
        reason=_text(status, "reason"),
        message=_text(status, "message"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        leaving="deletionTimestamp" in meta,
        unscheduled=(_text(scheduled, "message") or "no node fits") if refused else "",
        waiting_reason=_text(waiting, "reason"),
        waiting_message=_text(waiting, "message"),
        ended_reason=_text(ended, "reason"),
        exit_code=code if isinstance(code, int) else None,
        kept=_text(_part(meta, "annotations"), DELETION_COST) == KEPT_COST,
    )


def find_refusal(deployment: JsonObject) -> PoolFault | None:
    """Return why no pods can be made for a Deployment: a quota, a policy of the namespace."""
    for condition in _list(_part(deployment, "status"), "conditions"):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            said = _text(condition, "message") or _text(condition, "reason")
            quota = "exceeded quota" in said or "failed quota" in said
            remedy = "raise the ResourceQuota, or delete what fills it" if quota else "it is tried again"
            return PoolFault("Quota" if quota else "Refused", f"its pods are refused: {said}; {remedy}")
    return None


def _time(value: JsonValue) -> datetime:
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _part(found: Mapping[str, JsonValue], field: str) -> JsonObject:
    part = found.get(field)
    return part if isinstance(part, dict) else {}


def _list(found: Mapping[str, JsonValue], field: str) -> list[JsonObject]:
    part = found.get(field)
    return [item for item in part if isinstance(item, dict)] if isinstance(part, list) else []


def _text(found: Mapping[str, JsonValue], field: str) -> str:
    value = found.get(field)
    return value if isinstance(value, str) else ""
