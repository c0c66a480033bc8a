"""The order of the queue: each comparison in its place, and no ties."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.run import Priority
from agentrun.decisions.queue_order import NamespaceUse, QueuedNode, queue_key

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
MIDDLE = QueuedNode("m", "shop", Priority.P2, NOW + timedelta(minutes=10), NOW - timedelta(seconds=60))
HALF = NamespaceUse(5, 10)


@pytest.mark.parametrize(
    "first,use,want_reason",
    [
        pytest.param(
            replace(MIDDLE, priority=Priority.P1, deadline=None, queued_since=NOW, uid="z"),
            NamespaceUse(10, 10),
            "priority before everything",
            id="priority",
        ),
        pytest.param(
            replace(MIDDLE, priority=Priority.P3, queued_since=NOW - timedelta(minutes=9)),
            HALF,
            "aged to P1",
            id="ageing",
        ),
        pytest.param(
            replace(MIDDLE, deadline=None, queued_since=NOW, uid="z"),
            NamespaceUse(1, 3),
            "share before deadline",
            id="share",
        ),
        pytest.param(
            replace(MIDDLE, deadline=NOW + timedelta(minutes=9), queued_since=NOW, uid="z"),
            HALF,
            "deadline before age",
            id="deadline",
        ),
        pytest.param(
            replace(MIDDLE, queued_since=NOW - timedelta(seconds=61), uid="z"), HALF, "age before uid", id="age"
        ),
        pytest.param(replace(MIDDLE, uid="a"), HALF, "uid ends the tie", id="uid"),
    ],
)
def test_comparison_comes_in_its_place(first: QueuedNode, use: NamespaceUse, want_reason: str) -> None:
    assert queue_key(first, use, NOW) < queue_key(MIDDLE, HALF, NOW), want_reason


def test_no_deadline_is_last() -> None:
    assert queue_key(MIDDLE, HALF, NOW) < queue_key(replace(MIDDLE, deadline=None, uid="a"), HALF, NOW)


def test_use_is_measured_against_the_share() -> None:
    small, large = NamespaceUse(2, 1), NamespaceUse(10, 10)

    assert queue_key(MIDDLE, large, NOW) < queue_key(MIDDLE, small, NOW)


NODES = st.builds(
    QueuedNode,
    uid=st.uuids().map(str),
    namespace=st.sampled_from(["a", "b"]),
    priority=st.sampled_from(Priority),
    deadline=st.none() | st.integers(0, 3).map(lambda minutes: NOW + timedelta(minutes=minutes)),
    queued_since=st.integers(0, 3).map(lambda minutes: NOW - timedelta(minutes=minutes)),
)


@given(st.lists(NODES, max_size=8, unique_by=lambda node: node.uid), st.randoms(use_true_random=False))
def test_order_does_not_depend_on_arrival(nodes: list[QueuedNode], random: object) -> None:
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    def key(node: QueuedNode) -> object:
        return queue_key(node, NamespaceUse(), NOW)

    assert sorted(nodes, key=key) == sorted(shuffled, key=key)  # type: ignore[arg-type]


def test_endless_urgent_arrivals_do_not_starve_an_old_node() -> None:
    old = QueuedNode("old", "shop", Priority.P3, None, NOW)
    later = NOW + timedelta(minutes=9)
    arrivals = [QueuedNode(f"new-{n}", "shop", Priority.P1, None, later) for n in range(5)]

    assert min([*arrivals, old], key=lambda node: queue_key(node, NamespaceUse(), later)) is old
