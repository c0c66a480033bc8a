"""Rebuilds a ledger that lost its data from the resources: what they prove is put back, and nothing else.

Called by the scheduler under the lead, while the gate is closed. Every step sets only what is absent, so that it may be
interrupted and repeated, and may run over a ledger that has lost nothing (its server was restarted). What may have
happened only once and has no outcome on record is marked as unknown: the gate sends it to recovery, never again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import structlog

from agentrun.contract.defaults import IDEMPOTENCY_WINDOW
from agentrun.contract.failures import Effect
from agentrun.contract.node import AgentNode, AgentNodeStatus, NodePhase
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, AgentRunStatus, RunPhase
from agentrun.contract.tool import AgentToolSpec, SideEffect
from agentrun.decisions.idempotency_keys import build_record_ref
from agentrun.engine.run_outcome import build_outcome, build_registration
from agentrun.engine.services import EngineServices
from agentrun.ledger.port import RecordStatus, RestoredNode, RestoredRecord

_AT_ONCE = 64
_IN_FLIGHT = frozenset({NodePhase.QUEUED, NodePhase.RUNNING, NodePhase.TIMED_OUT})
_log = structlog.get_logger("agentrun.engine")


class LedgerRebuild:
    """One rebuild."""

    def __init__(self, services: EngineServices) -> None:
        self._services = services
        self.epoch_seen = 0
        """The highest epoch that any resource was written under."""

    async def run(self) -> None:
        """Put everything back. Raises what cluster and ledger raise; then it is begun again."""
        cluster = self._services.cluster
        tools = {(tool.metadata.namespace, tool.metadata.name): tool.spec for tool in await cluster.list_tools()}
        runs = {run.metadata.uid: run for run in await cluster.list_runs() if _was_admitted(run)}
        for run in runs.values():
            self.epoch_seen = max(self.epoch_seen, run.status.epoch if run.status else 0)
            # What it was admitted with is lost with the ledger: as far as it may, what stands in the cluster has to do.
            policy = self._services.settings.policies.find(run.metadata.namespace)
            counted = run.model_copy(update={"spec": policy.bound(run.spec)})
            await self._services.ledger.admit_run(build_registration(counted, run.status or AgentRunStatus()))
        replays: list[RestoredNode] = []
        waiting: list[RestoredNode] = []
        total = 0
        async for node in cluster.iterate_nodes():
            owner = runs.get(node.spec.run.uid)
            if owner is None or node.status is None or not (node.status.seq or node.status.call):
                continue
            self.epoch_seen = max(self.epoch_seen, node.status.epoch)
            total += 1
            restored = restore_node(node, node.status, tools.get((node.metadata.namespace, _tool(node.status))))
            # Whoever made the call owns its record: those that were given its result come after it.
            if node.status.replay_of:
                replays.append(restored)
                continue
            waiting.append(restored)
            if len(waiting) >= _AT_ONCE:
                await self._put(waiting)
                waiting = []
        await self._put([*waiting, *replays])
        await self._close_ended(runs)
        _log.info("ledger_rebuilt", runs=len(runs), nodes=total)

    async def _put(self, nodes: list[RestoredNode]) -> None:
        for start in range(0, len(nodes), _AT_ONCE):
            batch = nodes[start : start + _AT_ONCE]
            await asyncio.gather(*(self._services.ledger.restore_node(node) for node in batch))

    async def _close_ended(self, runs: Mapping[str, AgentRun]) -> None:
        keep = self._services.settings.finished_keep_ms
        for run in runs.values():
            if _has_ended(run) and run.status is not None:
                outcome = build_outcome(run.status, run.status.counts)
                await self._services.ledger.finish_run(run.metadata.namespace, run.metadata.uid, outcome, keep)


def restore_node(node: AgentNode, status: AgentNodeStatus, tool: AgentToolSpec | None) -> RestoredNode:
    """Return what a node's object proves. A tool without a definition is taken for one whose effect counts once."""
    meta = node.metadata
    running = status.phase is NodePhase.RUNNING and not status.recovering
    return RestoredNode(
        namespace=meta.namespace,
        run_uid=node.spec.run.uid,
        node_uid=meta.uid,
        path=node.spec.path,
        owner=f"{meta.namespace}/{node.spec.run.name}/{node.spec.path}",
        seq=status.seq,
        attempt=status.attempt + (1 if status.phase is NodePhase.QUEUED and not status.recovering else 0),
        tool=_tool(status),
        in_flight=status.phase in _IN_FLIGHT,
        settled=Amount(micros=status.cost, tokens=status.tokens, model_calls=status.model_calls),
        record=_restore_record(status, tool),
        estimates=tuple((one.attempt, one.cost) for one in status.estimates),
        stake_micros=status.call.hold_micros if running and status.call is not None else 0,
    )


def _restore_record(status: AgentNodeStatus, tool: AgentToolSpec | None) -> RestoredRecord | None:
    call = status.call
    side_effect = tool.side_effect if tool is not None else SideEffect.ONCE
    found = _record_status(status, side_effect)
    if call is None or found is None:
        return None
    window = IDEMPOTENCY_WINDOW
    if tool is not None:
        ref = build_record_ref(tool, call.scope, call.key, own_key=bool(status.own_key))
        window = timedelta(milliseconds=ref.window_ms)
    outcome = None
    if found is RecordStatus.SUCCESS:
        outcome = AttemptOutcome(effect=Effect.EXECUTED, result=status.result)
    elif status.failure is not None and found is RecordStatus.EXECUTED:
        outcome = AttemptOutcome(effect=Effect.EXECUTED, failure=status.failure, raw_output=status.raw_output)
    asked = status.inbox
    return RestoredRecord(
        key=call.key,
        status=found,
        params_digest=call.params_digest,
        side_effect=side_effect,
        scope=call.scope,
        window_ms=window // timedelta(milliseconds=1),
        outcome=outcome,
        version=asked.record_version if asked is not None and asked.record_key == call.key else 1,
        in_inbox=asked is not None and bool(asked.record_key),
    )


def _record_status(status: AgentNodeStatus, side_effect: SideEffect) -> RecordStatus | None:
    # A read is never answered from the past.
    if side_effect is SideEffect.NONE:
        return None
    if status.phase is NodePhase.SUCCEEDED:
        return RecordStatus.SUCCESS
    if side_effect is SideEffect.ONCE and status.phase in _IN_FLIGHT:
        return RecordStatus.UNKNOWN
    if status.effect is Effect.EXECUTED:
        return RecordStatus.EXECUTED
    # What may be repeated is: nothing needs to be known about it.
    if status.effect is Effect.UNKNOWN and side_effect is SideEffect.ONCE:
        return RecordStatus.UNKNOWN
    return None


def _tool(status: AgentNodeStatus) -> str:
    return status.call.tool.name if status.call is not None else ""


def _was_admitted(run: AgentRun) -> bool:
    status = run.status
    return status is not None and (status.admitted_at is not None or bool(status.copy_of))


def _has_ended(run: AgentRun) -> bool:
    status = run.status
    return status is not None and status.phase in TERMINAL_RUN_PHASES and status.phase is not RunPhase.REJECTED
