"""The demo run in local mode, in a process that SIGKILL ends at one step of its scheduler: ``python -m kills.doomed_scheduler``.

Forked by the nursery, like the workers. A step is a call of the scheduler that leaves it: to the cluster, whose objects
are kept in a folder, or to the ledger, whose server outlives the process. The worker is in the same process and dies with
it, as in local mode always.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from agentrun.contract.approval import AgentApproval, Decision, Verdict
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.local import local_run
from agentrun.local.local_run import LocalRun, LocalSetup
from agentrun.local.manifests import load_manifests
from agentrun.local.state_folder import StateFolder
from agentrun.telemetry.log_setup import LogLevel, set_up_logs
from kills.diary import Diary, Fate
from kills.doomed_worker import ledger_settings
from kills.nursery import nurse


@dataclass(frozen=True, slots=True)
class SchedulerPlan:
    """What one process is told."""

    folder: str
    """Holds manifests, tools and state."""
    redis: str
    install: str
    step: int = 0
    """The step at which it dies; 0: it lives."""
    after: bool = False
    """The step is carried out before."""

    @property
    def diary(self) -> Path:
        """The steps that were made, of all lives."""
        return Path(self.folder) / "diary"

    @property
    def outcome(self) -> Path:
        """How the run ended, once it has."""
        return Path(self.folder) / "outcome.json"

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read it back."""
        return cls(**json.loads(text))


class _Steps:
    """Counts the calls that leave the scheduler."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._count = 0

    def counted(self, target: Any) -> Any:
        """Return the target as the scheduler is to reach it."""
        return _Counted(target, self.step)

    async def step(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Make one step; the process may be dead before it or after it."""
        self._count += 1
        number = self._count
        self._diary.note(f"before {number}")
        answer = await work()
        self._diary.note(f"after {number}")
        self._diary.note(f"{number}: {name}")
        return answer


class _Counted:
    def __init__(self, target: Any, step: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
        self._target = target
        self._step = step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def step(*arguments: Any, **named: Any) -> Any:
            return await self._step(name, lambda: found(*arguments, **named))

        return step


async def _agree(approval: AgentApproval) -> Decision | None:
    """Approve calls; leave every other question open."""
    request = approval.status.request if approval.status else None
    if request is None or Verdict.APPROVE not in request.allowed:
        return None
    return Decision(verdict=Verdict.APPROVE, decided_by="Ada")


def run_demo(plan: SchedulerPlan) -> None:
    """Play the folder's run to its end, or until its fate."""
    point = f"{'after' if plan.after else 'before'} {plan.step}" if plan.step else ""
    steps = _Steps(Diary(plan.diary, Fate(point)))

    def build(*, cluster: Any, ledger: Any, **more: Any) -> Scheduler:
        return Scheduler(cluster=steps.counted(cluster), ledger=steps.counted(ledger), **more)

    # Local mode's own composition, but for the scheduler's ways out.
    setattr(local_run, "Scheduler", build)  # noqa: B010 - the module does not export it
    folder = Path(plan.folder)
    manifests = load_manifests([str(folder / "tools.yaml"), str(folder / "run.yaml")], bytes)
    with StateFolder(folder / "state") as state:
        setup = LocalSetup(
            tools=manifests.tools,
            runs=manifests.runs,
            import_paths=[folder],
            answer=_agree,
            state=state,
            ledger=RedisLedger.connect(plan.redis, ledger_settings(plan.install)),
            settings=SchedulerSettings(install=plan.install),
        )
        outcome = asyncio.run(LocalRun(setup).execute())
    ended = {
        "run": [str(run.status.phase) for run in outcome.runs if run.status],
        "nodes": {node.spec.path: str(node.status.phase) for node in outcome.nodes if node.status},
    }
    plan.outcome.write_text(json.dumps(ended))


if __name__ == "__main__":
    set_up_logs(LogLevel.WARNING)
    nurse(lambda line: run_demo(SchedulerPlan.from_json(line)))
