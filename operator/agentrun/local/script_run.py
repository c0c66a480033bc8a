"""Running manifests by a script: virtual time, ledger in memory, scripted tools and people; repeatable by its seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from agentrun.contract.approval import AgentApproval, Decision
from agentrun.contract.node import AgentNode, AgentNodeStatus
from agentrun.contract.run import AgentRun, AgentRunSpec
from agentrun.contract.tool import ToolType
from agentrun.engine.cluster_port import GoneError
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.memory_ledger import MemoryLedger
from agentrun.local.chance import SeededEntropy
from agentrun.local.local_run import LocalOutcome, LocalRun, LocalSetup
from agentrun.local.script_executor import CallCounts, ScriptExecutor
from agentrun.local.script_file import Expectation, ExpectedNode, Script, ScriptedDecision, ScriptedEvent
from agentrun.local.virtual_time import START, VirtualClock, VirtualTimeLoop, run_on_virtual_time
from agentrun_worker.executor import Executor
from agentrun_worker.worker import WorkerSettings

# In memory whoever waits is told: looking often would only cost turns of a loop that hurries through hours.
_PATIENT = SchedulerSettings(coalesce=timedelta(0), report_block=timedelta(minutes=10), pool_poll=timedelta(seconds=10))
_PATIENT_WORKER = WorkerSettings(take_block=timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """How a scripted run ended, and what was not as expected."""

    outcome: LocalOutcome
    counts: CallCounts
    took: timedelta
    """Virtual time from start to end."""
    misses: tuple[str, ...]


def run_script(setup: LocalSetup, script: Script, seed: int | None = None) -> ScriptOutcome:
    """Run the setup's runs by the script. Blocks; must not be called from a running loop."""
    loop = VirtualTimeLoop()
    return run_on_virtual_time(_execute(setup, script, loop, script.seed if seed is None else seed), loop)


async def _execute(setup: LocalSetup, script: Script, loop: VirtualTimeLoop, seed: int) -> ScriptOutcome:
    clock = VirtualClock(loop)
    counts = CallCounts()
    people = _People(script)

    def executors(kill: Callable[[], None]) -> Mapping[ToolType, Executor]:
        scripted = ScriptExecutor(script.tools, counts, kill)
        return dict.fromkeys(ToolType, scripted)

    local = LocalRun(
        replace(
            setup,
            clock=clock,
            entropy=SeededEntropy(seed),
            ledger=MemoryLedger(clock.now_ms),
            executors=executors,
            answer=people.answer,
            settings=_PATIENT,
            worker_settings=_PATIENT_WORKER,
        )
    )
    events = [asyncio.create_task(_happen(local, setup, event)) for event in script.events]
    began = loop.time()
    try:
        outcome = await local.execute()
    finally:
        for event in events:
            event.cancel()
        await asyncio.gather(*events, return_exceptions=True)
    took = timedelta(seconds=loop.time() - began)
    misses = tuple(_find_misses(script.expect, outcome, counts)) if script.expect else ()
    return ScriptOutcome(outcome, counts, took, misses)


class _People:
    """Answers questions in the order the script gives."""

    def __init__(self, script: Script) -> None:
        self._left: list[ScriptedDecision] = list(script.humans)

    async def answer(self, approval: AgentApproval) -> Decision | None:
        """Answer a question after its time, or never."""
        request = approval.status.request if approval.status else None
        if request is None:
            return None
        found = next((decision for decision in self._left if decision.node == request.node), None)
        if found is None:
            return None
        self._left.remove(found)
        await asyncio.sleep(found.after.total_seconds())
        fields: dict[str, object] = {
            "verdict": found.verdict,
            "reason": found.reason,
            "params": found.params,
            "effect": found.effect,
            "params_digest": found.params_digest,
            "decided_by": found.by,
        }
        if found.answers_with_result():
            fields["result"] = found.result
        return Decision.model_validate(fields)


async def _happen(local: LocalRun, setup: LocalSetup, event: ScriptedEvent) -> None:
    await asyncio.sleep(event.at.total_seconds())
    if event.kill_workers:
        local.kill_workers()
    for run in setup.runs:
        namespace, name = run.metadata.namespace, run.metadata.name
        try:
            if event.cancel:
                local.cluster.patch_run_spec(namespace, name, lambda spec: spec.model_copy(update={"cancel": True}))
            if event.suspend is not None:
                change = partial(_suspend, suspend=event.suspend)
                local.cluster.patch_run_spec(namespace, name, change)
            if event.delete:
                local.cluster.delete_run(namespace, name)
        except GoneError:
            continue


def _suspend(spec: AgentRunSpec, *, suspend: bool) -> AgentRunSpec:
    return spec.model_copy(update={"suspend": suspend})


def _find_misses(expect: Expectation, outcome: LocalOutcome, counts: CallCounts) -> Iterator[str]:
    for run in outcome.runs[:1]:
        yield from _run_misses(expect, run)
    nodes = {node.spec.path: node for node in outcome.nodes}
    for path, wanted in expect.nodes.items():
        if path not in nodes:
            yield f"node {path}: expected, and there is none"
        else:
            yield from _node_misses(path, wanted, nodes[path])
    for what, wanted_counts, found in (
        ("calls", expect.calls, counts.calls),
        ("effects", expect.effects, counts.effects),
    ):
        for tool, number in wanted_counts.items():
            if found[tool] != number:
                yield f"{what} of {tool}: expected {number}, got {found[tool]}"


def _run_misses(expect: Expectation, run: AgentRun) -> Iterator[str]:
    status = run.status
    phase, reason = (status.phase, status.reason) if status else ("", "")
    if expect.phase is not None and phase != expect.phase:
        said = f" ({reason}: {status.message})" if status else ""
        yield f"run {run.metadata.name}: expected {expect.phase}, got {phase}{said}"
    if expect.reason is not None and reason != expect.reason:
        yield f"run {run.metadata.name}: expected reason {expect.reason}, got {reason}"
    if expect.within is not None and status and status.started_at and status.finished_at:
        took = status.finished_at - status.started_at
        if took > expect.within:
            yield f"run {run.metadata.name}: expected to end within {expect.within}, took {took}"


def _node_misses(path: str, wanted: ExpectedNode, node: AgentNode) -> Iterator[str]:
    found = node.status or AgentNodeStatus(entered_at=node.metadata.creation_timestamp or START)
    pairs = (
        ("phase", wanted.phase, found.phase),
        ("reason", wanted.reason, found.reason),
        ("attempts", wanted.attempts, found.attempt),
        ("effect", wanted.effect, found.effect),
        ("cost", wanted.cost, found.cost),
    )
    for name, expected, got in pairs:
        if expected is not None and expected != got:
            detail = f" ({found.reason}: {found.message})" if name == "phase" else ""
            yield f"node {path}: expected {name} {expected}, got {got}{detail}"
    if wanted.expects_result() and wanted.result != found.result:
        yield f"node {path}: expected result {wanted.result!r}, got {found.result!r}"
