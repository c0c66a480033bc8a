"""Real worker processes, killed with SIGKILL after the claim and after the effect; then the lookup answers."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentrun.engine.clock import SystemClock, SystemEntropy
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.local.chance import uid_from
from agentrun.local.memory_cluster import MemoryCluster
from agentrun.schemas.validator import SchemaValidator
from support.manifest_texts import build_run, build_tools

HERE = Path(__file__).parent
# case: how it ends, and how often its effect happened
CASES = {
    "before-none": ("Succeeded", "Completed", 1),
    "after-completed": ("Succeeded", "RecoveredCompleted", 1),
    "after-running": ("Succeeded", "Completed", 1),
    "after-unknown": ("Quarantined", "OutcomeUnknown", 1),
    "after-nonsense": ("Quarantined", "OutcomeUnknown", 1),
    "after-fails": ("Quarantined", "OutcomeUnknown", 1),
    "after-hangs": ("Quarantined", "OutcomeUnknown", 1),
}
TOOLS = """
act:
  python: {entryPoint: "killed_worker_tools:act"}
  timeout: 2s
  recovery:
    lookup: {tool: look, params: {folder: "${params.folder}", case: "${params.case}"}}
    outcome:
      completed: {when: {path: result.state, op: eq, value: done}, result: result.payment}
      running: {when: {path: result.state, op: eq, value: running}}
      notExecuted: {when: {path: result.state, op: eq, value: none}}
    pollInterval: 100ms
look: {python: {entryPoint: "killed_worker_tools:look"}, sideEffect: None, timeout: 1s}
"""


def start_worker(url: str) -> subprocess.Popen[bytes]:
    """Start a worker process; the same name each time, so that a later one proves the earlier gone."""
    options = ["--redis", url, "--name", "w", "--slots", "16", "--import-path", str(HERE)]
    return subprocess.Popen(
        [sys.executable, "-c", "from agentrun_worker.main import main; main()", "run", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def until(holds: object, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # type: ignore[operator]
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_once_call_of_a_killed_worker_ends_as_its_lookup_says_and_never_happens_twice(
    tmp_path: Path, empty_ledger_url: str
) -> None:
    entropy = SystemEntropy()
    cluster = MemoryCluster(lambda: datetime.now(UTC), lambda: uid_from(entropy.token()))
    ledger = RedisLedger.connect(empty_ledger_url)
    scheduler = Scheduler(
        cluster=cluster,
        ledger=ledger,
        clock=SystemClock(),
        entropy=entropy,
        validator=SchemaValidator(),
        settings=SchedulerSettings(coalesce=timedelta(0)),
    )
    engine = asyncio.create_task(scheduler.run())
    workers = [start_worker(empty_ledger_url)]
    try:
        for tool in build_tools(TOOLS):
            cluster.apply(tool)
        nodes = ", ".join(
            f"{{name: {case}, tool: act, params: {{folder: '{tmp_path}', case: {case}}}}}" for case in CASES
        )
        run = cluster.apply(build_run(f"{{onNodeFailure: Continue, nodes: [{nodes}]}}"))
        await until(lambda: all((tmp_path / f"{case}.waiting").exists() for case in CASES), 30)
        workers[0].kill()
        workers[0].wait()
        workers.append(start_worker(empty_ledger_url))

        def ends() -> dict[str, tuple[str, str]]:
            return {
                node.spec.path: (str(node.status.phase), str(node.status.reason))
                for node in cluster.nodes_of("default", run.metadata.uid)
                if node.status
            }

        settled = ("Succeeded", "Quarantined", "Dead")
        await until(lambda: all(phase in settled for phase, _ in ends().values()), 60)
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()
        scheduler.stop()
        await engine
        await ledger.close()
    assert ends() == {case: (phase, reason) for case, (phase, reason, _) in CASES.items()}
    effects = {case: len((tmp_path / f"{case}.effects").read_text().splitlines()) for case in CASES}
    assert effects == {case: count for case, (_, _, count) in CASES.items()}
