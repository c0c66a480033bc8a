"""Reads Deployments and pods as the API server has them into what is decided about. Pure; called by the keepers."""

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
    return PoolKey(text_of(part_of(found, "metadata"), "namespace"), text_of(labels_of(found), POOL_LABEL))


def labels_of(found: JsonObject) -> JsonObject:
    """Return an object's labels."""
    return part_of(part_of(found, "metadata"), "labels")


def read_pool(deployment: JsonObject, pods: Iterable[PodSight]) -> PoolSight:
    """Return a pool as its Deployment and its pods show it."""
    notes = part_of(part_of(deployment, "metadata"), "annotations")
    replicas = part_of(deployment, "spec").get("replicas")
    return PoolSight(
        digest=text_of(notes, DIGEST_ANNOTATION),
        replicas=replicas if isinstance(replicas, int) else 1,
        external=is_external(notes),
        workers=tuple(WorkerSight(pod.name, pod.kept) for pod in pods if not pod.leaving),
    )


def is_leaving(found: JsonObject) -> bool:
    """Tell whether an object is being deleted."""
    return "deletionTimestamp" in part_of(found, "metadata")


def read_pod(pod: JsonObject) -> PodSight:
    """Return what a pod's status says."""
    meta, status = part_of(pod, "metadata"), part_of(pod, "status")
    container, waiting = _find_telling(status)
    # How it ended: just now, or before it was started again.
    ended = part_of(part_of(container, "state"), "terminated") or part_of(part_of(container, "lastState"), "terminated")
    code = ended.get("exitCode")
    conditions = {text_of(found, "type"): found for found in list_of(status, "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    refused = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodSight(
        name=text_of(meta, "name"),
        created_at=read_time(meta.get("creationTimestamp")),
        phase=text_of(status, "phase"),
        reason=text_of(status, "reason"),
        message=text_of(status, "message"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        leaving="deletionTimestamp" in meta,
        leaves_by=read_time(meta.get("deletionTimestamp")) if "deletionTimestamp" in meta else None,
        unscheduled=(text_of(scheduled, "message") or "no node fits") if refused else "",
        waiting_reason=text_of(waiting, "reason"),
        waiting_message=text_of(waiting, "message"),
        ended_reason=text_of(ended, "reason"),
        ended_message=text_of(ended, "message"),
        exit_code=code if isinstance(code, int) else None,
        kept=text_of(part_of(meta, "annotations"), DELETION_COST) == KEPT_COST,
    )


def _find_telling(status: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the container whose end tells most, and why the first one that does not run has to wait.

    Beside the worker there may be a tool's container, and one that goes before both: only what is theirs can fail.
    """
    before, beside = list_of(status, "initContainerStatuses"), list_of(status, "containerStatuses")
    waiting = [part_of(part_of(found, "state"), "waiting") for found in (*before, *beside)]
    # That others are not there yet is no reason of its own.
    own = [found for found in waiting if found and text_of(found, "reason") != "PodInitializing"]
    ended = [found for found in (*before, *beside) if _has_failed(found)]
    worker = next((found for found in beside if found.get("name") == CONTAINER), {})
    others = [found for found in ended if found.get("name") != CONTAINER]
    return next(iter(others), worker), next(iter(own), next((found for found in waiting if found), {}))


def _has_failed(container: JsonObject) -> bool:
    ended = part_of(part_of(container, "state"), "terminated")
    return bool(ended) and ended.get("exitCode") != 0


def find_refusal(deployment: JsonObject) -> PoolFault | None:
    """Return why no pods can be made for a Deployment: a quota, a policy of the namespace."""
    for condition in list_of(part_of(deployment, "status"), "conditions"):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return explain_refusal(text_of(condition, "message") or text_of(condition, "reason"))
    return None


def explain_refusal(said: str) -> PoolFault:
    """Return what the API server's refusal of a pod is, as one of Kubernetes' own controllers has passed it on."""
    quota = "exceeded quota" in said or "failed quota" in said
    remedy = "raise the ResourceQuota, or delete what fills it" if quota else "it is tried again"
    return PoolFault("Quota" if quota else "Refused", f"its pods are refused: {said}; {remedy}")


def read_time(value: JsonValue) -> datetime:
    """Return a moment as the API server writes it; the beginning of time where it is none."""
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def part_of(found: Mapping[str, JsonValue], field: str) -> JsonObject:
    """Return an object inside an object; an empty one where there is none."""
    part = found.get(field)
    return part if isinstance(part, dict) else {}


def list_of(found: Mapping[str, JsonValue], field: str) -> list[JsonObject]:
    """Return the objects of a list inside an object."""
    part = found.get(field)
    return [item for item in part if isinstance(item, dict)] if isinstance(part, list) else []


def text_of(found: Mapping[str, JsonValue], field: str) -> str:
    """Return a text inside an object; an empty one where there is none."""
    value = found.get(field)
    return value if isinstance(value, str) else ""
