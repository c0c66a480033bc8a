"""The order in which ready nodes are dispatched.

Compared in this order, smaller first:

1. effective priority (P0 first; waiting raises it, never to P0);
2. the namespace's slots in use relative to its share, so that no tenant starves another;
3. deadline, the nearest first; none is last;
4. age: who has waited longest;
5. uid, which ends every tie the same way everywhere.

Called by the dispatcher. Whether a node fits the limits is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TypeAlias

from agentrun.contract.run import Priority
from agentrun.decisions.priorities import effective_priority

QueueKey: TypeAlias = tuple[Priority, Fraction, datetime, datetime, str]

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueuedNode:
    """A ready node as the queue sees it."""

    uid: str
    namespace: str
    priority: Priority
    deadline: datetime | None
    queued_since: datetime


@dataclass(frozen=True, slots=True)
class NamespaceUse:
    """How much of its share a namespace uses. Shares are relative weights, 1 where nothing is configured."""

    slots_in_use: int = 0
    share: int = 1


def queue_key(node: QueuedNode, use: NamespaceUse, now: datetime) -> QueueKey:
    """Return the sort key of a node at this moment; it changes with time and with its namespace's use."""
    waited = max(now - node.queued_since, timedelta(0))
    return (
        effective_priority(node.priority, waited),
        Fraction(use.slots_in_use, max(use.share, 1)),
        node.deadline or _NEVER,
        node.queued_since,
        node.uid,
    )
