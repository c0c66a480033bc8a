"""Why pods of pools and of Jobs do not start, in words that say what to do about it.

Asked by the operator's keepers of both; what it finds is what waiting nodes show. Reads what the cluster says of pods,
and nothing else: a pod that is merely slow is no fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from agentrun.contract.model_base import cut_text

_SAID = 400
STARTS_WITHIN = timedelta(minutes=1)
"""A container that is being created for longer waits for something: a volume, most often."""
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_CREATION = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True, slots=True)
class PodSight:
    """What the cluster says about one pod."""

    name: str
    created_at: datetime
    phase: str = ""
    reason: str = ""
    """Why the pod as a whole failed: ``Evicted`` for example."""
    message: str = ""
    ready: bool = False
    leaving: bool = False
    """It was told to end."""
    leaves_by: datetime | None = None
    """When its time to do so is over."""
    unscheduled: str = ""
    """Why no node takes it."""
    waiting_reason: str = ""
    """Why its container does not run."""
    waiting_message: str = ""
    ended_reason: str = ""
    """How its container ended last: ``OOMKilled``, ``Error``."""
    ended_message: str = ""
    """What it left as its last words."""
    exit_code: int | None = None
    kept: bool = False
    """It bears the mark that has others ended first."""


@dataclass(frozen=True, slots=True)
class PoolFault:
    """What keeps a pool, or a Job, from having the workers that it should have."""

    reason: str
    """One word of a closed set."""
    message: str


FAULT_REASONS = frozenset(
    {"Image", "Container", "Crash", "OutOfMemory", "Unschedulable", "Volume", "Evicted", "Quota", "Forbidden",
     "Refused", "Account", "Ledger", "NameTaken", "FormerPod", "Bug"}
)  # fmt: skip
"""Every reason that a fault may have."""


def find_pod_fault(pod: PodSight, now: datetime) -> PoolFault | None:
    """Return what keeps a pod from working; None where nothing does, or where it is on its way."""
    if pod.leaving or pod.ready:
        return None
    if pod.unscheduled:
        return _fault("Unschedulable", pod, f"no node takes it: {pod.unscheduled}")
    # A pod that is never restarted fails with its container, and bears no reason of its own then.
    if pod.phase == "Failed" and (pod.reason or not pod.ended_reason):
        reason = pod.reason or "Failed"
        return _fault("Evicted", pod, f"{reason}: {pod.message or 'it is replaced'}")
    if pod.waiting_reason in _IMAGE:
        said = pod.waiting_message or "the image cannot be pulled"
        # A runtime may say a lot: what to do stands before what is cut off.
        return _fault("Image", pod, f"check execution.image and the registry's Secret; {pod.waiting_reason}: {said}")
    if pod.waiting_reason in _CREATION:
        return _fault("Container", pod, f"{pod.waiting_reason}: {pod.waiting_message or 'it cannot be created'}")
    if pod.ended_reason == "OOMKilled":
        return _fault("OutOfMemory", pod, "it used more memory than its limit: raise execution.resources.limits.memory")
    if pod.waiting_reason == "CrashLoopBackOff" or (pod.ended_reason and pod.exit_code):
        code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
        words = f": {pod.ended_message}" if pod.ended_message else ""
        which = "" if pod.phase == "Failed" else "--previous "
        return _fault("Crash", pod, f"its container ended{code}{words}; see: kubectl logs {which}{pod.name}")
    if pod.waiting_reason in ("ContainerCreating", "PodInitializing") and now - pod.created_at >= STARTS_WITHIN:
        return _fault(
            "Volume", pod, f"its container is not created: a volume perhaps; see: kubectl describe pod {pod.name}"
        )
    return None


def find_pool_fault(pods: Iterable[PodSight], now: datetime) -> PoolFault | None:
    """Return the fault of the pod that comes first by name among those that have one; None while any pod is ready.

    One ready worker takes the orders of all: nobody waits for the others' sake.
    """
    found = sorted(pods, key=lambda pod: pod.name)
    if any(pod.ready and not pod.leaving for pod in found):
        return None
    return next((fault for pod in found if (fault := find_pod_fault(pod, now)) is not None), None)


def _fault(reason: str, pod: PodSight, said: str) -> PoolFault:
    return PoolFault(reason, cut_text(f"pod {pod.name}: {' '.join(said.split())}", _SAID))
