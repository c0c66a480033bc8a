"""The order in which candidates are granted, and what the dispatcher keeps of those that have gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agentrun.contract.run import Priority
from agentrun.decisions.queue_order import QueuedNode
from agentrun.engine.dispatcher import Candidate, Dispatcher
from agentrun.engine.settings import SchedulerSettings

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


class _Line:
    """A dispatcher with one pool in each of two namespaces, and what it has granted."""

    def __init__(self, slots: int, global_limit: int = 1000) -> None:
        self.granted: list[str] = []
        settings = SchedulerSettings(global_limit=global_limit, pool_prefetch=0)
        self.dispatcher = Dispatcher(settings, lambda run, path: self.granted.append(path))
        for namespace in ("a", "b"):
            self.dispatcher.set_pool_slots(namespace, "shared", slots)

    def offer(self, path: str, *, waited: float = 0, priority: Priority = Priority.P2, namespace: str = "a") -> None:
        node = QueuedNode(path, namespace, priority, None, _NOW - timedelta(seconds=waited))
        self.dispatcher.offer(Candidate((namespace, "run"), path, node, "stamp", "shared", None), _NOW)

    def pump(self, later: timedelta = timedelta()) -> list[str]:
        self.granted.clear()
        self.dispatcher.pump(_NOW + later)
        return list(self.granted)


def test_who_comes_later_but_is_more_urgent_goes_first_although_the_line_is_sorted() -> None:
    line = _Line(slots=1)
    line.offer("first", waited=5)
    line.offer("second", waited=4)
    assert line.pump() == ["first"]

    line.offer("urgent", priority=Priority.P0)
    line.offer("oldest", waited=9)
    went = []
    for path in ("first", "urgent", "oldest"):
        line.dispatcher.free(path)
        went += line.pump()

    assert went == ["urgent", "oldest", "second"]


def test_two_namespaces_take_turns_within_one_look() -> None:
    line = _Line(slots=10, global_limit=4)
    for at in range(4):
        line.offer(f"a{at}", waited=10 - at)
    for at in range(4):
        line.offer(f"b{at}", waited=5 - at, namespace="b")

    assert line.pump() == ["a0", "b0", "a1", "b1"]


def test_one_that_left_and_came_back_is_granted_once() -> None:
    line = _Line(slots=1)
    line.offer("holds")
    line.offer("back", waited=3)
    assert line.pump() == ["back"]
    line.dispatcher.drop("back")
    line.offer("back")
    line.dispatcher.drop("holds")

    assert line.pump() == ["back"]
    line.dispatcher.free("back")
    assert line.pump() == []


def test_a_line_that_is_empty_is_forgotten() -> None:
    line = _Line(slots=1)
    line.offer("goes")
    line.offer("dropped")
    line.dispatcher.drop("dropped")
    assert line.pump() == ["goes"]
    line.dispatcher.free("goes")

    assert line.dispatcher.pools() == set()
    assert not line.dispatcher.has_waiting()


def test_slots_that_the_ledger_still_counts_are_missed_only_where_they_are_needed() -> None:
    line = _Line(slots=10, global_limit=5)
    for at in range(3):
        line.offer(f"n{at}")
    line.pump()
    line.offer("next")

    assert not line.dispatcher.is_short_of_slots(1)
    assert line.dispatcher.is_short_of_slots(2)


def test_a_limit_that_the_ledger_refused_is_named_until_somebody_is_granted_anew() -> None:
    line = _Line(slots=2)
    line.offer("refused")
    line.pump()
    line.dispatcher.refuse("refused", "namespace", _NOW)

    later = timedelta(seconds=2)
    assert line.dispatcher.waiting_for("refused", _NOW + later) == "Slots(namespace)"
    assert line.pump(later) == ["refused"]


def test_waiting_raises_a_candidate_above_those_that_came_before_it() -> None:
    line = _Line(slots=1)
    line.offer("holds")
    line.pump()
    line.offer("high", waited=1, priority=Priority.P1)
    line.offer("low", waited=100, priority=Priority.P3)
    assert line.pump() == []
    line.dispatcher.free("holds")

    # From P3 to P2 after 5 minutes, to P1 after 3 more; then who has waited longest is first.
    assert line.pump(timedelta(minutes=8)) == ["low"]


def test_a_clock_that_is_set_back_takes_the_raise_back() -> None:
    line = _Line(slots=1)
    line.offer("holds")
    line.pump()
    line.offer("high", waited=1, priority=Priority.P1)
    line.offer("low", waited=100, priority=Priority.P3)
    assert line.pump(timedelta(minutes=8)) == []
    line.dispatcher.free("holds")

    assert line.pump() == ["high"]


def test_a_long_line_is_granted_in_order_whatever_leaves_and_comes_back() -> None:
    line = _Line(slots=1000)
    for at in range(500):
        line.offer(f"n{at:03}", waited=at)
    for at in range(0, 500, 2):
        line.dispatcher.drop(f"n{at:03}")
    for at in range(0, 500, 4):
        line.offer(f"n{at:03}", waited=1000 + at)

    came_back = [f"n{at:03}" for at in range(496, -1, -4)]
    stayed = [f"n{at:03}" for at in range(499, -1, -2)]
    assert line.pump() == [*came_back, *stayed]
