"""What is done about a pool: one table of its factors, and what holds whatever happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.execution import ScalingMode
from agentrun.decisions.pools.pool_step import (
    CreatePool,
    DeletePool,
    MarkWorker,
    PoolAction,
    PoolDemand,
    PoolFacts,
    PoolMemory,
    PoolRules,
    PoolSight,
    ReplacePods,
    ScalePool,
    WorkerSight,
    count_needed_workers,
    decide_pool,
)
from agentrun.decisions.pools.pool_wishes import PoolWish

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
RULES = PoolRules(slots=4)
WISH = PoolWish("shared", least=0, most=10)
EXTERNAL = replace(WISH, scaling=ScalingMode.EXTERNAL)
KNOWN = PoolMemory(digest="d", wished_since=LONG_AGO)
LOW = replace(KNOWN, low_since=LONG_AGO)


def workers(*names: str, kept: tuple[str, ...] = ()) -> tuple[WorkerSight, ...]:
    return tuple(WorkerSight(name, name in kept) for name in names)


def sight(replicas: int, *names: str, digest: str = "d", external: bool = False) -> PoolSight:
    return PoolSight(digest, replicas, external, workers(*names))


def waiting(count: int, in_use: int = 0) -> PoolDemand:
    return PoolDemand({"t": count} if count else {}, in_use)


def build_facts(
    found: PoolSight | None,
    demand: PoolDemand | None = None,
    *,
    wish: PoolWish | None = WISH,
    busy: tuple[str, ...] = (),
    memory: PoolMemory = KNOWN,
    rules: PoolRules = RULES,
) -> PoolFacts:
    return PoolFacts(NOW, wish, "d" if wish else "", found, demand or PoolDemand(), frozenset(busy), memory, rules)


@pytest.mark.parametrize(
    "facts, want",
    [
        pytest.param(build_facts(None), (CreatePool(0),), id="nothing waits: it exists, with nobody in it"),
        pytest.param(build_facts(None, waiting(5)), (CreatePool(2),), id="what waits has workers at once"),
        pytest.param(build_facts(None, waiting(500)), (CreatePool(10),), id="never more than the most"),
        pytest.param(build_facts(None, wish=replace(WISH, least=3)), (CreatePool(3),), id="never less than the least"),
        pytest.param(build_facts(None, waiting(5), wish=EXTERNAL), (CreatePool(None),), id="another says how many"),
        pytest.param(build_facts(sight(0), waiting(1)), (ScalePool(1),), id="the first call starts a worker"),
        pytest.param(build_facts(sight(1), waiting(9, in_use=4)), (ScalePool(4),), id="what is under way counts"),
        pytest.param(build_facts(sight(2), waiting(4, in_use=4)), (), id="as many as are needed"),
        pytest.param(build_facts(sight(3), memory=replace(KNOWN, low_since=NOW)), (), id="fewer only after a time"),
        pytest.param(build_facts(sight(3, "a", "b", "c"), memory=LOW), (ScalePool(0),), id="fewer after that time"),
        pytest.param(
            build_facts(sight(3, "a", "b", "c"), memory=replace(LOW, peak=2)),
            (ScalePool(2),),
            id="the most of that time counts",
        ),
        pytest.param(
            build_facts(sight(3, "a", "b", "c"), memory=replace(LOW, peak=2), wish=replace(WISH, most=1)),
            (ScalePool(1),),
            id="but not beyond a most that was lowered since",
        ),
        pytest.param(
            build_facts(sight(3, "a", "b", "c"), waiting(0, 1), busy=("b", "c"), memory=LOW),
            (MarkWorker("b", keep=True), MarkWorker("c", keep=True), ScalePool(2)),
            id="busy ones stay, and are marked first",
        ),
        pytest.param(
            build_facts(
                PoolSight("d", 3, workers=workers("a", "b", "c", kept=("a", "b"))),
                waiting(0, 1),
                busy=("b",),
                memory=LOW,
            ),
            (MarkWorker("a", keep=False), ScalePool(1)),
            id="a mark of former work goes",
        ),
        pytest.param(
            build_facts(sight(2, "a", "b"), waiting(0, 2), busy=("a", "b"), memory=LOW), (), id="all are busy"
        ),
        pytest.param(
            build_facts(sight(2, "a", "b"), busy=("elsewhere",), memory=LOW),
            (ScalePool(0),),
            id="others' work is no matter",
        ),
        pytest.param(
            build_facts(sight(3, "a"), waiting(0, 1), busy=("a",), memory=LOW, rules=replace(RULES, can_mark=False)),
            (),
            id="nobody can be spared without marks",
        ),
        pytest.param(
            build_facts(sight(3, "a"), memory=LOW, rules=replace(RULES, can_mark=False)),
            (ScalePool(0),),
            id="without marks all may go when all are idle",
        ),
        pytest.param(build_facts(sight(7), waiting(99), wish=EXTERNAL), (), id="another's number is not written"),
        pytest.param(build_facts(sight(1, digest="old"), waiting(1)), (ReplacePods(),), id="a change that stands"),
        pytest.param(
            build_facts(sight(0, digest="old"), waiting(1), memory=PoolMemory()),
            (ScalePool(1),),
            id="a change that may not be the last waits, work does not",
        ),
        pytest.param(
            build_facts(sight(0, digest="old"), waiting(1)), (ReplacePods(), ScalePool(1)), id="a change, then more"
        ),
        pytest.param(build_facts(None, wish=None), (), id="gone"),
        pytest.param(build_facts(sight(2), wish=None), (), id="unwished just now"),
        pytest.param(
            build_facts(sight(2), wish=None, memory=PoolMemory(unwished_since=NOW - timedelta(minutes=1))),
            (ScalePool(0),),
            id="unwished for a time",
        ),
        pytest.param(
            build_facts(sight(2), waiting(0, 1), wish=None, memory=PoolMemory(unwished_since=LONG_AGO)),
            (),
            id="unwished, and a call is under way",
        ),
        pytest.param(
            build_facts(sight(2, "a"), wish=None, busy=("a",), memory=PoolMemory(unwished_since=LONG_AGO)),
            (),
            id="unwished, and a worker is busy",
        ),
        pytest.param(
            build_facts(sight(0), wish=None, memory=PoolMemory(unwished_since=LONG_AGO)),
            (DeletePool(),),
            id="unwished for long",
        ),
        pytest.param(
            build_facts(
                sight(2, external=True), wish=None, memory=PoolMemory(unwished_since=NOW - timedelta(minutes=5))
            ),
            (),
            id="unwished, and another says how many",
        ),
    ],
)
def test_a_pool_takes_the_step_that_its_facts_ask_for(facts: PoolFacts, want: tuple[PoolAction, ...]) -> None:
    assert decide_pool(facts).actions == want


@pytest.mark.parametrize(
    "demand, concurrency, want",
    [
        pytest.param(PoolDemand({"t": 40}), {"t": None}, 10, id="unlimited"),
        pytest.param(PoolDemand({"t": 40}), {"t": 8}, 2, id="its own limit lets no more through"),
        pytest.param(PoolDemand({"t": 40}, in_use=8), {"t": 8}, 2, id="what is under way is of that limit"),
        pytest.param(PoolDemand({"t": 40, "u": 4}), {"t": 4, "u": None}, 2, id="each tool for itself"),
        pytest.param(PoolDemand({"former": 4}), {"t": 4}, 1, id="an unknown tool of the queue"),
    ],
)
def test_a_tools_own_limit_bounds_the_workers(
    demand: PoolDemand, concurrency: dict[str, int | None], want: int
) -> None:
    assert count_needed_workers(replace(WISH, concurrency=concurrency), demand, slots=4) == want


def test_a_peak_within_the_time_of_patience_is_remembered_once() -> None:
    first = decide_pool(build_facts(sight(4, "a", "b", "c", "d"), waiting(12)))
    assert first.actions == ()
    assert (first.memory.low_since, first.memory.peak) == (NOW, 3)
    later = replace(build_facts(sight(4, "a", "b", "c", "d"), memory=first.memory), now=NOW + timedelta(minutes=1))
    second = decide_pool(later)
    assert second.actions == (ScalePool(3),)
    third = decide_pool(
        replace(build_facts(sight(3, "a", "b", "c"), memory=second.memory), now=NOW + timedelta(minutes=2))
    )
    assert third.actions == (ScalePool(0),)


DEMANDS = st.builds(
    PoolDemand, st.dictionaries(st.sampled_from(["t", "u"]), st.integers(1, 200), max_size=2), st.integers(0, 60)
)
NAMES = ("a", "b", "c", "d")
MOMENTS = st.none() | st.integers(0, 900).map(lambda ago: NOW - timedelta(seconds=ago))
MEMORIES = st.builds(PoolMemory, st.sampled_from(["", "d", "e"]), MOMENTS, MOMENTS, st.integers(0, 12), MOMENTS)
SIGHTS = st.builds(
    PoolSight,
    st.sampled_from(["d", "old"]),
    st.integers(0, 12),
    st.booleans(),
    st.lists(st.sampled_from(NAMES), unique=True).map(lambda names: workers(*names)),
)
WISHES = st.builds(
    lambda least, more, mode: replace(WISH, least=least, most=max(1, least + more), scaling=mode),
    st.integers(0, 4),
    st.integers(0, 8),
    st.sampled_from(ScalingMode),
)
FACTS = st.builds(
    PoolFacts,
    now=st.just(NOW),
    wish=st.none() | WISHES,
    digest=st.just("d"),
    sight=st.none() | SIGHTS,
    demand=DEMANDS,
    busy=st.frozensets(st.sampled_from(NAMES)),
    memory=MEMORIES,
    rules=st.builds(PoolRules, slots=st.integers(1, 8), can_mark=st.booleans()),
)


@given(FACTS)
def test_what_holds_of_every_step(facts: PoolFacts) -> None:
    step = decide_pool(facts)
    scales = [action for action in step.actions if isinstance(action, ScalePool)]
    external = facts.wish is not None and facts.wish.scaling is ScalingMode.EXTERNAL
    assert not (external and scales), "a number that is another's is written"
    busy = {worker.name for worker in facts.sight.workers} & facts.busy if facts.sight else set()
    for scale in scales:
        assert facts.sight is not None
        assert scale.replicas != facts.sight.replicas, "a write that changes nothing"
        if facts.wish is not None:
            assert scale.replicas >= facts.wish.least
            assert scale.replicas <= max(facts.wish.most, len(busy))
        if scale.replicas < facts.sight.replicas:
            assert scale.replicas >= len(busy), "a busy worker has to go"
            marked = {worker.name for worker in facts.sight.workers if worker.kept}
            for action in step.actions:
                if isinstance(action, MarkWorker):
                    marked = marked | {action.name} if action.keep else marked - {action.name}
            assert not busy or (facts.rules.can_mark and marked == busy)
    if any(isinstance(action, DeletePool) for action in step.actions):
        assert facts.wish is None
        assert not busy
        assert not facts.demand.in_use
        assert not facts.demand.waiting
    if facts.wish is not None and facts.sight is not None and not external:
        needed = count_needed_workers(facts.wish, facts.demand, facts.rules.slots)
        if needed > facts.sight.replicas:
            assert scales == [ScalePool(needed)], "what waits for workers waits for nothing else"


@given(FACTS)
def test_a_step_taken_is_not_taken_again(facts: PoolFacts) -> None:
    step = decide_pool(facts)
    found = facts.sight
    for action in step.actions:
        match action:
            case CreatePool(replicas):
                found = PoolSight(facts.digest, 1 if replicas is None else replicas)
            case ReplacePods():
                found = replace(found or sight(0), digest=facts.digest)
            case ScalePool(replicas):
                found = replace(found or sight(0), replicas=replicas)
            case MarkWorker(name, keep):
                kept = found or sight(0)
                changed = tuple(replace(one, kept=keep) if one.name == name else one for one in kept.workers)
                found = replace(kept, workers=changed)
            case DeletePool():
                found = None
    assert decide_pool(replace(facts, sight=found, memory=step.memory)).actions == ()
