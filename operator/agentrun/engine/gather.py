"""Gathering: from what is in memory to the facts that decisions are made from. No decision stands here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

from agentrun.contract.model_base import cut_text
from agentrun.contract.node import INBOX_PHASES, NodePhase
from agentrun.contract.run import RunPhase
from agentrun.decisions.deadlines import run_deadline
from agentrun.decisions.facts import NodeFacts, RunFacts, SchemaJudge
from agentrun.decisions.join_rules import JoinCounter, judge_choosers
from agentrun.decisions.run_step import RunView
from agentrun.engine.run_memory import NodeMemory, RunMemory
from agentrun.engine.value_scope import RunScope

_NO_CHILDREN = JoinCounter()
_CAUSE_SHOWN = 512
_LATEST = datetime.max.replace(tzinfo=UTC)


def gather_run(run: RunMemory, now: datetime, ledger_since: datetime | None = None) -> RunFacts:
    """Return the facts about a run that its nodes' decisions need."""
    return RunFacts(
        now=now,
        spec=run.run.spec,
        waits=run.waits,
        admitted=run.admitted,
        suspended=run.status.phase is RunPhase.SUSPENDED,
        pause_total=run.pause_total(now),
        deadline=find_deadline(run, now),
        ending=run.ending,
        lives=not run.closed,
        held_by=run.held_by,
        ledger_since=ledger_since,
    )


def gather_node(run: RunMemory, node: NodeMemory, facts: RunFacts, judge: SchemaJudge, jitter: float) -> NodeFacts:
    """Return the facts about one node."""
    fan_out = node.spec.node.fan_out
    children = node.children_counter or _NO_CHILDREN
    parent = run.nodes.get(node.spec.parent) if node.spec.parent else None
    index = node.spec.index
    pinned = run.tools.get(node.spec.node.tool or "")
    return NodeFacts(
        run=facts,
        spec=node.spec,
        status=node.status,
        tool=run.definition(node),
        join=node.counter.verdict(node.spec.node.join),
        chooser=judge_choosers(tuple(node.choices.values())),
        children=children.verdict(fan_out.join if fan_out else None),
        upstream_in_inbox=_waited_long(node, facts) and _has_upstream_in_inbox(run, node),
        scope=RunScope(run, node),
        judge=judge,
        sight=node.sight,
        parent_ended=parent is not None and parent.ended,
        inbox_pause=node.inbox_pause,
        held_by_fan_out=parent is not None and index is not None and index >= parent.released,
        owner_lives=node.owner_lives,
        jitter=jitter,
        degrade_tools=tuple(name for name in pinned.spec.degrade_to if name in run.tools) if pinned else (),
    )


def gather_view(run: RunMemory, now: datetime) -> RunView:
    """Return what the run's own decision is made from."""
    return RunView(
        spec=run.run.spec,
        status=run.status,
        waits=run.waits,
        now=now,
        counts={phase: len(paths) for phase, paths in run.by_phase.items()},
        deadline=find_deadline(run, now),
        deleted=run.deleted,
        ending=run.ending,
        limit_breaker=run.limit_breaker,
        aborting=run.aborting,
        cause=find_cause(run, run.limit_breaker or run.aborting),
        suspending=run.suspending,
        record_waiters=run.record_waiters,
        held=bool(run.held_by),
    )


def find_cause(run: RunMemory, path: str) -> str:
    """Return why a node is Dead, as the failure that came first says it; empty where nothing is known of it.

    Of a fan-out that is its earliest dead instance.
    """
    node = run.nodes.get(path)
    if node is None:
        return ""
    while dead := [child for child in map(run.nodes.get, node.children) if _is_dead(child)]:
        node = min(dead, key=lambda child: (child.status.finished_at or _LATEST, child.path))
    status, failure = node.status, node.status.failure
    reason, message = (failure.reason, failure.message) if failure is not None else (status.reason, status.message)
    said = f"{reason}: {message}" if message else reason
    return cut_text(said if node.path == path else f"node {node.path}: {said}", _CAUSE_SHOWN)


def _is_dead(node: NodeMemory | None) -> TypeGuard[NodeMemory]:
    return node is not None and node.status.phase is NodePhase.DEAD


def find_deadline(run: RunMemory, now: datetime) -> datetime | None:
    """Return when the run's time is over, counting only the time in which its clock ran; None before it started."""
    if run.status.started_at is None:
        return None
    return run_deadline(run.status.started_at, run.run.spec.timeout, run.pause_total(now))


def walk_downstream(run: RunMemory, path: str) -> Iterator[NodeMemory]:
    """Give every node that depends on ``path``, directly or not, each once."""
    seen: set[str] = set()
    todo = [path]
    while todo:
        current = todo.pop()
        for name in (*run.dependants.get(current, ()), *run.targets.get(current, ())):
            if name not in seen:
                seen.add(name)
                todo.append(name)
                yield run.nodes[name]


def _waited_long(node: NodeMemory, facts: RunFacts) -> bool:
    # The search upstream is only worth its cost when the wait would end otherwise.
    waited = facts.now - node.status.entered_at - node.inbox_pause
    return node.status.phase is NodePhase.PENDING and waited >= facts.waits.dependencies - timedelta(seconds=1)


def _has_upstream_in_inbox(run: RunMemory, node: NodeMemory) -> bool:
    seen: set[str] = set()
    todo = [*node.spec.upstreams, *node.spec.choosers]
    while todo:
        path = todo.pop()
        upstream = run.nodes.get(path)
        if path in seen or upstream is None:
            continue
        seen.add(path)
        if upstream.status.phase in INBOX_PHASES:
            return True
        todo.extend((*upstream.spec.upstreams, *upstream.spec.choosers, *upstream.children))
    return False
