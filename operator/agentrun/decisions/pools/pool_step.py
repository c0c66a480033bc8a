"""What is to be done about one pool now: make it, change it, scale it, or take it away.

Asked by the operator's pool keeper for each pool that is wished for or exists. A worker that is told to end lets its
calls end first, so a decision that comes a moment too late interrupts nothing; it is only not made on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from agentrun.contract.execution import ScalingMode
from agentrun.decisions.pools.pool_wishes import PoolWish


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """The calls that want a pool's workers at this moment."""

    waiting: Mapping[str, int] = field(default_factory=dict)
    """Nodes in line for a slot, by tool."""
    in_use: int = 0
    """Orders that are out and attempts under way."""


@dataclass(frozen=True, slots=True)
class WorkerSight:
    """One pod of a pool."""

    name: str
    kept: bool = False
    """It bears the mark that has Kubernetes end others first."""


@dataclass(frozen=True, slots=True)
class PoolSight:
    """A pool as the cluster has it."""

    digest: str
    """Of what it was made from last."""
    replicas: int
    """As wished there, not as they run."""
    external: bool = False
    """Somebody else writes the number."""
    workers: tuple[WorkerSight, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """What is remembered of a pool from one look to the next; lost with the operator, which then waits anew."""

    digest: str = ""
    """The wish that was seen last."""
    wished_since: datetime | None = None
    """Since when it has been this one."""
    low_since: datetime | None = None
    """Since when fewer workers would do."""
    peak: int = 0
    """The most workers that would have been needed since then."""
    unwished_since: datetime | None = None
    """Since when no tool has needed the pool."""


@dataclass(frozen=True, slots=True)
class PoolRules:
    """What the operator's settings say about pools."""

    slots: int = 4
    """Calls that one worker makes at once."""
    scale_down_after: timedelta = timedelta(minutes=1)
    delete_after: timedelta = timedelta(minutes=10)
    settle: timedelta = timedelta(seconds=5)
    """How long a changed wish must stand before pods are replaced for it: manifests come one after the other."""
    can_mark: bool = True
    """The cluster heeds which of its pods should be ended last (1.22 and newer)."""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One pool at one moment."""

    now: datetime
    wish: PoolWish | None
    """None: no tool needs it any more."""
    digest: str
    """Of what would be made of the wish."""
    sight: PoolSight | None
    """None: there is none."""
    demand: PoolDemand
    busy: Set[str]
    """Names of workers that have calls under way."""
    memory: PoolMemory
    rules: PoolRules


@dataclass(frozen=True, slots=True)
class CreatePool:
    """Make the pool with this many workers; None: somebody else will say how many."""

    replicas: int | None


@dataclass(frozen=True, slots=True)
class ReplacePods:
    """Make what exists what is wished now; its number of workers stays."""


@dataclass(frozen=True, slots=True)
class MarkWorker:
    """Have Kubernetes end other pods first, or take that mark away."""

    name: str
    keep: bool


@dataclass(frozen=True, slots=True)
class ScalePool:
    """Have this many workers."""

    replicas: int


@dataclass(frozen=True, slots=True)
class DeletePool:
    """Take the pool away with everything beside it."""


PoolAction: TypeAlias = CreatePool | ReplacePods | MarkWorker | ScalePool | DeletePool


@dataclass(frozen=True, slots=True)
class PoolStep:
    """What to do, in this order, and what to remember."""

    actions: tuple[PoolAction, ...]
    memory: PoolMemory


def count_needed_workers(wish: PoolWish, demand: PoolDemand, slots: int) -> int:
    """Return how many workers the demand would keep busy, between the pool's least and most.

    What a tool's own limit lets through at once counts at most: more workers would not make its calls any sooner.
    """
    limits = wish.concurrency
    able = sum(
        count if (limit := limits.get(tool)) is None else min(count, limit) for tool, count in demand.waiting.items()
    )
    calls = demand.in_use + able
    if limits and all(limit is not None for limit in limits.values()):
        calls = min(calls, sum(limit or 0 for limit in limits.values()))
    return min(max(-(-calls // slots), wish.least), wish.most)


def decide_pool(facts: PoolFacts) -> PoolStep:
    """Return the next step of a pool."""
    # A pool that no tool needs goes, once nobody has anything to do there.
    if facts.wish is None:
        return _decide_unwished(facts)
    memory = replace(facts.memory, unwished_since=None)
    if facts.digest != memory.digest:
        memory = replace(memory, digest=facts.digest, wished_since=facts.now)
    external = facts.wish.scaling is ScalingMode.EXTERNAL
    # What does not exist keeps calls waiting: it is made at once.
    if facts.sight is None:
        needed = count_needed_workers(facts.wish, facts.demand, facts.rules.slots)
        return PoolStep((CreatePool(None if external else needed),), replace(memory, low_since=None, peak=0))
    actions: list[PoolAction] = []
    # What exists works: a change waits until no further one follows.
    settled = memory.wished_since is not None and facts.now - memory.wished_since >= facts.rules.settle
    if facts.digest != facts.sight.digest and settled:
        actions.append(ReplacePods())
    # Somebody else's number is never written.
    if external:
        return PoolStep(tuple(actions), replace(memory, low_since=None, peak=0))
    needed = count_needed_workers(facts.wish, facts.demand, facts.rules.slots)
    scaling, memory = _decide_scale(facts, facts.sight, needed, memory, facts.rules.scale_down_after)
    return PoolStep((*actions, *scaling), memory)


def _decide_unwished(facts: PoolFacts) -> PoolStep:
    since = facts.memory.unwished_since or facts.now
    memory = replace(facts.memory, unwished_since=since, digest="", wished_since=None)
    sight = facts.sight
    if sight is None:
        return PoolStep((), PoolMemory())
    wanted = facts.demand.in_use or facts.demand.waiting or _busy_of(sight, facts.busy)
    if wanted:
        return PoolStep((), replace(memory, unwished_since=facts.now))
    if facts.now - since >= facts.rules.delete_after:
        return PoolStep((DeletePool(),), PoolMemory())
    # Its definitions may only be on their way here, after a restart.
    if sight.external or sight.replicas == 0 or facts.now - since < facts.rules.scale_down_after:
        return PoolStep((), memory)
    return PoolStep((ScalePool(0),), memory)


def _decide_scale(
    facts: PoolFacts, sight: PoolSight, needed: int, memory: PoolMemory, patience: timedelta
) -> tuple[tuple[PoolAction, ...], PoolMemory]:
    steady = replace(memory, low_since=None, peak=0)
    if needed > sight.replicas:
        return (ScalePool(needed),), steady
    if needed == sight.replicas:
        return (), steady
    # What was needed at times under another wish may be more than there may be now.
    most = facts.wish.most if facts.wish is not None else needed
    low_since, peak = memory.low_since or facts.now, min(max(memory.peak, needed), most)
    waiting = replace(memory, low_since=low_since, peak=peak)
    if facts.now - low_since < patience:
        return (), waiting
    busy = _busy_of(sight, facts.busy)
    # Without marks nobody can say which pods end: only when none has anything to do.
    if not facts.rules.can_mark and busy:
        return (), waiting
    target = max(peak, len(busy))
    if target >= sight.replicas:
        # All are needed now and then: a new time begins, or a single peak would count for ever.
        return (), replace(memory, low_since=facts.now, peak=needed)
    marks = (
        tuple(
            MarkWorker(worker.name, worker.name in busy)
            for worker in sight.workers
            if worker.kept is not (worker.name in busy)
        )
        if facts.rules.can_mark
        else ()
    )
    return (*marks, ScalePool(target)), replace(memory, low_since=facts.now, peak=needed)


def _busy_of(sight: PoolSight, busy: Set[str]) -> frozenset[str]:
    return frozenset(worker.name for worker in sight.workers) & busy
