"""Keeps the Jobs: looks again and again at what attempts want and what exists, and writes what is decided to follow.

One per operator, at work while it leads. What keeps a Job from its pod is told to the scheduler, so that waiting nodes
show it, and to the metrics. It asks the API server for no run and no node, and for Events of Jobs without a pod alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol, assert_never

import structlog

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_client import ApiClient
from agentrun.controller.jobs.job_manifests import JobSettings, build_job, job_selector
from agentrun.controller.jobs.job_report import JobReport
from agentrun.controller.jobs.job_sights import job_key_of, node_uid_of, read_job
from agentrun.controller.jobs.job_writer import JobWriter, jobs_path
from agentrun.controller.pools.held_back import AccountNotAllowedError
from agentrun.controller.pools.hindrance import Hindrance
from agentrun.controller.pools.labelled_objects import LabelledObjects, find_uid, find_watch
from agentrun.controller.pools.pool_keeper import AccessKeeper
from agentrun.controller.pools.pool_sights import explain_refusal, read_pod
from agentrun.controller.pools.pool_writer import pods_path
from agentrun.decisions.jobs.job_step import (
    CreateJob,
    DeleteJob,
    JobAction,
    JobFacts,
    JobMemory,
    JobSight,
    decide_job,
)
from agentrun.decisions.jobs.job_wishes import JobKey, JobStage, JobWish
from agentrun.decisions.pools.pod_faults import PodSight, PoolFault, find_pod_fault
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterUnavailableError, GoneError
from agentrun.engine.job_desk import JobSurvey

_log = structlog.get_logger("agentrun.controller")
_LOOK_EVERY = timedelta(seconds=1)
_BETWEEN_LOOKS = timedelta(milliseconds=200)
"""However much is told: a look costs something for each Job that exists."""
_ASK_EVENTS_EVERY = timedelta(seconds=10)
_POD_COMES_WITHIN = timedelta(seconds=5)
"""A Job without a pod for longer has one refused."""
_POLICY_EVERY = timedelta(minutes=10)
"""How often the NetworkPolicy beside Jobs is written again, should somebody have taken it away."""


class JobBoard(Protocol):
    """What the scheduler wants of Jobs, and is told of them."""

    def survey_jobs(self) -> JobSurvey:
        """Return the Jobs that attempts want."""
        ...

    async def still_leads(self) -> bool:
        """Tell whether nobody else has taken the lead."""
        ...

    def note_jobs(self, notes: Mapping[JobKey, str]) -> None:
        """Take in what keeps Jobs from their pods, and how the pods of calls under way have ended."""
        ...


@dataclass(slots=True)
class _Job:
    """What is remembered of one Job."""

    memory: JobMemory = field(default_factory=JobMemory)
    hindrance: Hindrance = field(default_factory=Hindrance)
    refusal: PoolFault | None = None
    asked_events_at: datetime | None = None
    told_of: str = ""
    """The pod of a call under way that was logged to have ended."""
    read: tuple[JsonObject, JobSight] | None = None
    """The Job as it was read last, and what that says without its pods."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What the cluster has of one Job."""

    raw: JsonObject | None
    pods: list[PodSight]
    others: list[PodSight]
    """Pods of the same node's other Jobs."""


class JobKeeper:
    """The Jobs of one install."""

    def __init__(
        self,
        client: ApiClient,
        board: JobBoard,
        access: AccessKeeper,
        settings: JobSettings,
        clock: Clock,
        namespaces: Sequence[str | None],
        show: Callable[[Mapping[JobKey, JobReport]], None] = lambda reports: None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        """``namespaces``: those that are served, None for all; ``may_begin``: everything that exists has been seen."""
        self._board = board
        self._access = access
        self._settings = settings
        self._clock = clock
        self._namespaces = tuple(namespaces)
        self._show = show
        self._may_begin = may_begin
        self._writer = JobWriter(client)
        self._woken = asyncio.Event()
        selector = job_selector(settings.pods.install)
        self._job_watches = [
            LabelledObjects(client, jobs_path(space), selector, self._woken.set) for space in self._namespaces
        ]
        self._pod_watches = [
            LabelledObjects(client, pods_path(space), selector, self._note_pods) for space in self._namespaces
        ]
        self._pods_changed = True
        self._pods: dict[JobKey, list[PodSight]] = {}
        self._pods_of_node: dict[str, list[tuple[JobKey, PodSight]]] = {}
        self._jobs: dict[JobKey, _Job] = {}
        self._policies_at: dict[str, datetime] = {}

    async def run(self) -> None:
        """Keep the Jobs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in (*self._job_watches, *self._pod_watches):
                group.create_task(watch.run(), name="job watch")
            group.create_task(self._keep_looking(), name="job look")

    async def _keep_looking(self) -> None:
        while True:
            self._woken.clear()
            if self._may_begin():
                await self._look()
            await asyncio.sleep(_BETWEEN_LOOKS.total_seconds())
            try:
                async with asyncio.timeout(_LOOK_EVERY.total_seconds()):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _note_pods(self) -> None:
        self._pods_changed = True
        self._woken.set()

    # --- one look

    async def _look(self) -> None:
        now, survey = self._clock.now(), self._board.survey_jobs()
        watches = (*self._job_watches, *self._pod_watches)
        refused = next((watch.refused for watch in watches if watch.refused), None)
        if refused is not None:
            right = PoolFault("Forbidden", str(refused))
            self._tell({wish.key: JobReport(wish.tool, right) for wish in survey.wishes.values() if _waits(wish)})
            return
        if not survey.complete or not all(watch.complete for watch in watches):
            return
        existing = {job_key_of(raw): raw for watch in self._job_watches for raw in watch.found.values()}
        self._sort_pods()
        reports: dict[JobKey, JobReport] = {}
        ends: dict[JobKey, str] = {}
        for key in self._in_order(survey.wishes, existing):
            wish, raw = survey.wishes.get(key), existing.get(key)
            job = self._jobs.setdefault(key, _Job())
            if wish is None and self._is_left_to_be_read(job, raw, now):
                continue
            siblings = self._pods_of_node.get(wish.node_uid, ()) if wish is not None else ()
            found = _Found(raw, self._pods.get(key, []), [pod for other, pod in siblings if other != key])
            fault: PoolFault | None = None
            if job.hindrance.is_over(now):
                fault = await self._step(key, job, wish, found, now)
            if wish is not None and _waits(wish):
                reports[key] = JobReport(wish.tool, job.hindrance.fault or fault)
            if wish is not None and not _waits(wish):
                ends |= self._note_end(wish, job, found.pods, now)
        for key in self._jobs.keys() - survey.wishes.keys() - existing.keys():
            del self._jobs[key]
        self._tell(reports, ends)

    @staticmethod
    def _in_order(wishes: Mapping[JobKey, JobWish], existing: Mapping[JobKey, JsonObject]) -> list[JobKey]:
        """Return all Jobs: first those that only exist, which make room; then by priority, and by name."""
        return [
            *sorted(existing.keys() - wishes.keys()),
            *sorted(wishes, key=lambda key: (str(wishes[key].priority), key)),
        ]

    def _sort_pods(self) -> None:
        if not self._pods_changed:
            return
        self._pods_changed, self._pods, self._pods_of_node = False, {}, {}
        for watch in self._pod_watches:
            for raw in watch.found.values():
                key, pod = job_key_of(raw), read_pod(raw)
                self._pods.setdefault(key, []).append(pod)
                self._pods_of_node.setdefault(node_uid_of(raw), []).append((key, pod))

    def _is_left_to_be_read(self, job: _Job, raw: JsonObject | None, now: datetime) -> bool:
        """Tell whether a Job is among the many that have ended, and nothing about it is new."""
        if raw is None or job.read is None or job.read[0] is not raw:
            return False
        ended_at = job.read[1].ended_at
        return ended_at is not None and now - ended_at < self._settings.rules.keep_ended

    async def _step(
        self, key: JobKey, job: _Job, wish: JobWish | None, found: _Found, now: datetime
    ) -> PoolFault | None:
        """Take a Job's next step; return what keeps it from its pod."""
        try:
            sight = None
            if found.raw is not None:
                if job.read is None or job.read[0] is not found.raw:
                    job.read = found.raw, read_job(found.raw)
                sight = job.read[1]
                if wish is not None and _waits(wish):
                    await self._ask_events(key, job, sight, found, now)
                sight = replace(sight, pods=tuple(found.pods), refusal=job.refusal)
            step = decide_job(JobFacts(now, wish, sight, tuple(found.others), job.memory, self._settings.rules))
            job.memory = step.memory
            # A leader that stood still and wakes up knows of nothing that its successor's attempts want.
            if step.action is not None and await self._board.still_leads():
                await self._apply(key, step.action, wish, found.raw, now)
        except Exception as error:  # noqa: BLE001 - one Job's trouble keeps no other waiting; a bug is logged as one
            job.hindrance.note(error, now, "job", namespace=key.namespace, job=key.name)
            return job.hindrance.fault
        job.hindrance.end("job", namespace=key.namespace, job=key.name)
        return step.fault

    async def _apply(
        self, key: JobKey, action: JobAction, wish: JobWish | None, found: JsonObject | None, now: datetime
    ) -> None:
        watch = find_watch(self._job_watches, self._namespaces, key.namespace)
        match action:
            case CreateJob() if wish is not None:
                watch.note(await self._create(wish, now))
                _log.info("job_created", namespace=key.namespace, job=key.name, tool=wish.tool, node=wish.node)
            case DeleteJob() if found is not None:
                await self._writer.delete(key, find_uid(found))
                watch.forget((key.namespace, key.name))
                _log.info("job_deleted", namespace=key.namespace, job=key.name)
            case CreateJob() | DeleteJob():
                raise AssertionError(f"{action} without what it is about")
            case _:
                assert_never(action)

    async def _create(self, wish: JobWish, now: datetime) -> JsonObject:
        namespace, pods = wish.key.namespace, self._settings.pods
        account = wish.spec.execution.service_account_name if wish.spec.execution else None
        if account is not None and account not in pods.accounts:
            raise AccountNotAllowedError(account)
        access = await self._access.ensure(namespace)
        written = self._policies_at.get(namespace)
        if pods.network_policy and (written is None or now - written >= _POLICY_EVERY):
            await self._writer.write_policy(namespace, pods.install)
            self._policies_at[namespace] = now
        return await self._writer.create(build_job(wish, self._settings, access))

    async def _ask_events(self, key: JobKey, job: _Job, sight: JobSight, found: _Found, now: datetime) -> None:
        """Learn why a Job has no pod: Kubernetes tells it by Events alone."""
        if found.pods:
            job.refusal = None
        elif now - sight.created_at >= _POD_COMES_WITHIN and (
            job.asked_events_at is None or now - job.asked_events_at >= _ASK_EVENTS_EVERY
        ):
            job.asked_events_at = now
            try:
                said = await self._writer.find_refusal(key, sight.uid)
            except (ClusterUnavailableError, GoneError) as error:
                said = str(error)
            job.refusal = explain_refusal(said) if said else None

    # --- what is said

    @staticmethod
    def _note_end(wish: JobWish, job: _Job, pods: list[PodSight], now: datetime) -> dict[JobKey, str]:
        """Return, and log once, how the pod of a call under way has failed: else its node shows a silent worker."""
        failed = next((pod for pod in pods if pod.phase == "Failed"), None)
        fault = find_pod_fault(failed, now) if failed is not None else None
        if failed is None or fault is None:
            return {}
        if job.told_of != failed.name:
            job.told_of = failed.name
            _log.warning("pod_of_call_ended", namespace=wish.key.namespace, job=wish.key.name, node=wish.node,
                         cause=fault.message)  # fmt: skip
        return {wish.key: fault.message}

    def _tell(self, reports: Mapping[JobKey, JobReport], ends: Mapping[JobKey, str] = MappingProxyType({})) -> None:
        self._show(reports)
        held_up = {key: report.fault.message for key, report in reports.items() if report.fault}
        self._board.note_jobs({**held_up, **ends})


def _waits(wish: JobWish) -> bool:
    return wish.stage is not JobStage.OUT
