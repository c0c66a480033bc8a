"""What is to be done about one Job now: make it, take it away, or leave it alone.

Asked by the operator's job keeper for each Job that is wished for or exists. A Job never decides an outcome: what
became of an order stands in the ledger. So a Job that is made twice, too late or for nothing costs a pod, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from agentrun.contract.model_base import cut_text, format_time
from agentrun.decisions.jobs.job_wishes import JobStage, JobWish
from agentrun.decisions.pools.pod_faults import PodSight, PoolFault, find_pod_fault

_SAID = 500
_ENDED = ("Succeeded", "Failed")
"""Phases of a pod."""
_FIRST_PAUSE = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(minutes=5)
_WAITED_IN_VAIN = timedelta(seconds=10)
"""A Job whose order was not sent is taken away after this: its node may only be on its way to want it again."""
_LEAVES_WITHIN = timedelta(seconds=30)
"""A worker that has done its work ends by itself, and Kubernetes says so: its Job is given so long for that."""
_LOST_AFTER = timedelta(minutes=1)
"""A pod that is still there so long after its time to end had passed is on a machine that nobody hears of."""


@dataclass(frozen=True, slots=True)
class JobSight:
    """A Job as the cluster has it."""

    uid: str
    created_at: datetime
    ended_at: datetime | None = None
    """None: its pod has not ended."""
    leaving: bool = False
    """It is being deleted."""
    pods: tuple[PodSight, ...] = ()
    refusal: PoolFault | None = None
    """Why no pod can be made for it."""


@dataclass(frozen=True, slots=True)
class JobMemory:
    """What is remembered of a Job from one look to the next; lost with the operator, which then begins anew."""

    ended_uid: str = ""
    """The Job that was seen last to have ended without its order."""
    starts: int = 0
    """Jobs that ended so."""
    again_at: datetime | None = None
    """When the next one is made."""
    fault: PoolFault | None = None
    """Why the last one ended."""
    unwished_since: datetime | None = None
    """Since when nobody has wanted it."""
    was_out: bool = False
    """Its order was sent."""


@dataclass(frozen=True, slots=True)
class JobRules:
    """What the operator's settings say about Jobs."""

    keep_ended: timedelta = timedelta(hours=1)
    """How long a Job that has ended is left, with its pod and its logs."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One Job at one moment."""

    now: datetime
    wish: JobWish | None
    """None: no attempt wants it."""
    sight: JobSight | None
    """None: there is none."""
    other_pods: tuple[PodSight, ...] = ()
    """Pods of the same node's other Jobs."""
    memory: JobMemory = field(default_factory=JobMemory)
    rules: JobRules = field(default_factory=JobRules)


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Make the Job."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Take away the Job that was seen, with its pod."""


JobAction: TypeAlias = CreateJob | DeleteJob


@dataclass(frozen=True, slots=True)
class JobStep:
    """What to do, what to remember, and what keeps the Job from its order."""

    action: JobAction | None
    memory: JobMemory
    fault: PoolFault | None = None


def decide_job(facts: JobFacts) -> JobStep:
    """Return the next step of a Job."""
    if facts.wish is None:
        return _decide_unwished(facts)
    memory, sight, now = replace(facts.memory, unwished_since=None), facts.sight, facts.now
    # What is under way is the worker's and the ledger's matter, whatever has become of the Job.
    if facts.wish.stage is JobStage.OUT:
        return JobStep(None, JobMemory(was_out=True))
    # The next one has the same name.
    if sight is not None and sight.leaving:
        return JobStep(None, memory, memory.fault)
    if sight is not None and sight.ended_at is None:
        return JobStep(None, memory, find_job_fault(sight, now))
    # Its pod has ended, and the order was not taken: another one may fare better, and the logs are kept until then.
    if sight is not None:
        memory = _count_end(facts, memory, sight)
        due = memory.again_at is None or memory.again_at <= now
        return JobStep(DeleteJob() if due else None, memory, memory.fault)
    # Two pods of one node are never at work on its call. One that merely asks changes nothing.
    former = _find_former(facts) if facts.wish.stage is JobStage.START else None
    if former is not None:
        said = f"pod {former.name} of this node's former attempt has not ended yet"
        return JobStep(None, memory, PoolFault("FormerPod", said))
    return JobStep(CreateJob(), memory, memory.fault)


def find_job_fault(sight: JobSight, now: datetime) -> PoolFault | None:
    """Return what keeps a Job's pod from starting; None where nothing does, or where it is on its way."""
    faults = (find_pod_fault(pod, now) for pod in sorted(sight.pods, key=lambda pod: pod.name))
    return next((fault for fault in faults if fault is not None), None) or (None if sight.pods else sight.refusal)


def _decide_unwished(facts: JobFacts) -> JobStep:
    sight, now = facts.sight, facts.now
    if sight is None or sight.leaving:
        return JobStep(None, JobMemory())
    # What has ended stays for people to read.
    if sight.ended_at is not None:
        old = now - sight.ended_at >= facts.rules.keep_ended
        return JobStep(DeleteJob() if old else None, JobMemory())
    since, was_out = facts.memory.unwished_since or now, facts.memory.was_out
    if sight.pods and all(pod.phase in _ENDED for pod in sight.pods):
        # Kubernetes has not noted yet that the Job has ended with its pod.
        patience = facts.rules.keep_ended
    else:
        # Its worker may be saying goodbye. One that is at work all the same lets its call end: its pod has the time.
        patience = _LEAVES_WITHIN if was_out else _WAITED_IN_VAIN
    memory = JobMemory(unwished_since=since, was_out=was_out)
    return JobStep(DeleteJob() if now - since >= patience else None, memory)


def _count_end(facts: JobFacts, memory: JobMemory, sight: JobSight) -> JobMemory:
    if memory.ended_uid == sight.uid:
        return memory
    pause = min(_FIRST_PAUSE * 2 ** min(memory.starts, 10), _LONGEST_PAUSE)
    again_at = facts.now + pause
    found = find_job_fault(sight, facts.now)
    reason, said = (found.reason, found.message) if found else ("Crash", "its pod ended before it took its order")
    told = cut_text(f"{said}; the next is started at {format_time(again_at)}", _SAID)
    return replace(
        memory, ended_uid=sight.uid, starts=memory.starts + 1, again_at=again_at, fault=PoolFault(reason, told)
    )


def _find_former(facts: JobFacts) -> PodSight | None:
    alive = (
        pod
        for pod in sorted(facts.other_pods, key=lambda pod: pod.name)
        if pod.phase not in _ENDED and not (pod.leaves_by is not None and facts.now - pod.leaves_by >= _LOST_AFTER)
    )
    return next(alive, None)
