"""Jobs in a world on virtual time: a cluster of Jobs in memory, kept by the product's own decisions, with mortal pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta

from agentrun.contract.tool import ToolType
from agentrun.decisions.jobs.job_step import CreateJob, DeleteJob, JobFacts, JobMemory, JobRules, JobSight, decide_job
from agentrun.decisions.jobs.job_wishes import JobKey, JobStage, JobWish
from agentrun.decisions.pools.pod_faults import PodSight, PoolFault, find_pod_fault
from agentrun.ledger.port import WorkerIdentity
from agentrun.local.script_executor import ScriptExecutor
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.worker import Worker, WorkerSettings
from support.world import World


@dataclass(slots=True, eq=False)
class Job:
    """One Job with its pod."""

    wish: JobWish
    sight: JobSight
    worker: Worker | None = None
    task: asyncio.Task[bool] | None = None


@dataclass(slots=True)
class JobWorld:
    """The Jobs of a world."""

    world: World
    starts_after: timedelta = timedelta(seconds=3)
    broken: dict[str, PoolFault] = field(default_factory=dict)
    """By tool: why its pods do not start."""
    made: list[str] = field(default_factory=list)
    """Names of the Jobs that were made, in order."""
    refused: dict[str, PoolFault] = field(default_factory=dict)
    """By tool: why its Jobs are not made."""
    jobs: dict[JobKey, Job] = field(default_factory=dict)
    memories: dict[JobKey, JobMemory] = field(default_factory=dict)
    rules: JobRules = field(default_factory=JobRules)
    most_at_once: int = 0
    keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep Jobs as the operator does, from now on: no longer than its scheduler lives, and then as a new one."""
        self.keeping = asyncio.create_task(self._keep())

    def stop(self) -> None:
        """End the keeper, and leave the Jobs."""
        if self.keeping is not None:
            self.keeping.cancel()

    def at_work(self, tool: str = "") -> list[Job]:
        """Return the Jobs whose pods have not ended."""
        return [job for job in self.jobs.values() if job.sight.ended_at is None and tool in ("", job.wish.tool)]

    def kill(self, job: Job) -> None:
        """End a pod as a machine that dies does."""
        if job.task is not None:
            job.task.cancel()

    def delete(self, job: Job) -> None:
        """Take a Job away as people do: its pod is told to end."""
        if job.worker is not None:
            job.worker.request_drain()
        elif job.task is not None:
            job.task.cancel()
        self.jobs.pop(job.wish.key, None)

    async def _keep(self) -> None:
        leads = None
        while True:
            if self.world.scheduler is not leads:
                leads, self.memories = self.world.scheduler, {}
            busy = leads is not None and not self.world.mortality.dead and self._look()
            # Hours in which nobody wants a Job pass in fewer steps.
            await asyncio.sleep(0.5 if busy else 5)

    def _look(self) -> bool:
        """Take each Job's next step; return whether any is wanted."""
        assert self.world.scheduler is not None
        survey = self.world.scheduler.survey_jobs()
        if not survey.complete:
            return True
        now = self.world.clock.now()
        notes = {}
        for key in survey.wishes.keys() | self.jobs.keys():
            wish, job = survey.wishes.get(key), self.jobs.get(key)
            uid = wish.node_uid if wish else ""
            others = [other for other in self.at_work() if other.wish.node_uid == uid and other is not job]
            facts = JobFacts(
                now,
                wish,
                job.sight if job else None,
                tuple(pod for other in others for pod in other.sight.pods),
                self.memories.get(key, JobMemory()),
                self.rules,
            )
            step = decide_job(facts)
            self.memories[key] = step.memory
            if step.fault is not None:
                notes[key] = step.fault.message
            if wish is not None and job is not None and wish.stage is JobStage.OUT:
                fault = next((found for pod in job.sight.pods if (found := find_pod_fault(pod, now))), None)
                notes |= {key: fault.message} if fault is not None else {}
            if step.action == CreateJob():
                assert wish is not None
                if wish.tool in self.refused:
                    notes[key] = self.refused[wish.tool].message
                else:
                    self._create(wish)
            elif step.action == DeleteJob():
                assert job is not None
                self.delete(job)
        self.world.scheduler.note_jobs(notes)
        at_work: dict[str, int] = {}
        for job in self.at_work():
            at_work[job.wish.node_uid] = at_work.get(job.wish.node_uid, 0) + (job.wish.stage is not JobStage.RECOVER)
        self.most_at_once = max(self.most_at_once, *at_work.values(), 0)
        return bool(survey.wishes)

    def _create(self, wish: JobWish) -> None:
        now = self.world.clock.now()
        pod = PodSight(f"{wish.key.name}-pod", now, phase="Pending")
        job = Job(wish, JobSight(f"uid-{len(self.made)}", now, pods=(pod,)))
        self.made.append(wish.key.name)
        self.jobs[wish.key] = job
        job.task = asyncio.create_task(self._live(job))

    async def _live(self, job: Job) -> bool:
        wish, failed = job.wish, True
        try:
            await asyncio.sleep(self.starts_after.total_seconds())
            while wish.tool in self.broken:
                _say(job, waiting_reason="ImagePullBackOff", waiting_message=self.broken[wish.tool].message)
                await asyncio.sleep(1)
            _say(job, phase="Running", waiting_reason="")
            executor = ScriptExecutor(self.world.script.tools, self.world.counts, lambda: self.kill(job))
            job.worker = Worker(
                self.world.ledger,
                WorkerIdentity(wish.key.namespace, wish.queue, job.sight.pods[0].name, self.world.entropy.token(), 1),
                dict.fromkeys(ToolType, executor),
                SchemaValidator(),
                WorkerSettings(take_block=timedelta(seconds=30)),
                self.world.entropy.token,
            )
            came = await job.worker.run_one_order(within=wish.patience)
            failed = not came and job.worker.state != "draining"
            return came
        finally:
            job.sight = replace(job.sight, ended_at=self.world.clock.now())
            _say(job, phase="Failed" if failed else "Succeeded", ended_reason="Error" if failed else "Completed",
                 exit_code=7 if failed else 0)  # fmt: skip


def _say(job: Job, **changes: object) -> None:
    pods = tuple(replace(pod, **changes) for pod in job.sight.pods)  # type: ignore[arg-type]
    job.sight = replace(job.sight, pods=pods)
