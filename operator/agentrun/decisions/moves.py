"""Moves: how a node's status changes from state to state, and the closed set of what a node's decision may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias

from agentrun.contract.exact_json import JsonValue
from agentrun.contract.failures import Effect
from agentrun.contract.model_base import cut_text
from agentrun.contract.node import (
    TERMINAL_NODE_PHASES,
    TIMELINE_LENGTH,
    AgentNodeStatus,
    CallStatus,
    NodePhase,
    Transition,
)
from agentrun.contract.object_meta import Actor
from agentrun.decisions.node_states import TransitionRow, find_row

NO_CHANGES: Mapping[str, object] = MappingProxyType({})
MESSAGE_LIMIT = 1024

_WORKING = frozenset({NodePhase.RUNNING, NodePhase.TIMED_OUT, NodePhase.RETRY_WAIT})
"""States whose time counts against the priority's timeout."""
_IN_LINE = frozenset({(NodePhase.READY, NodePhase.QUEUED), (NodePhase.QUEUED, NodePhase.READY)})


@dataclass(frozen=True, slots=True)
class Move:
    """Go to another state; ``changes`` are further fields of the status."""

    to: NodePhase
    reason: str
    message: str = ""
    changes: Mapping[str, object] = field(default_factory=lambda: NO_CHANGES)
    actor: Actor = field(default_factory=Actor)


@dataclass(frozen=True, slots=True)
class Send:
    """The node is ready to be dispatched with this call; the dispatcher picks its moment."""

    call: CallStatus


@dataclass(frozen=True, slots=True)
class Recover:
    """Send a recovery order for the attempt in question."""


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Withdraw the order; if nobody claimed it, go on with ``then``."""

    then: Move


@dataclass(frozen=True, slots=True)
class Fence:
    """Decide the silent or late attempt lost, then go on with ``then``."""

    then: Move


@dataclass(frozen=True, slots=True)
class GiveUpRecovery:
    """End a recovery that brought no answer in time, then go on with ``then``."""

    then: Move


@dataclass(frozen=True, slots=True)
class Expand:
    """Create the instances of a fan-out for these items, then go on with ``then``."""

    items: tuple[JsonValue, ...]
    then: Move


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing to do before ``until`` (None: until something happens)."""

    until: datetime | None = None
    waiting_for: str = ""


@dataclass(frozen=True, slots=True)
class Touch:
    """Change fields of the status within the same state."""

    changes: Mapping[str, object]


NodeDecision: TypeAlias = Move | Send | Recover | TakeBack | Fence | GiveUpRecovery | Expand | Touch | Stay


def apply_move(
    status: AgentNodeStatus, move: Move, now: datetime, pause_total: timedelta
) -> tuple[AgentNodeStatus, TransitionRow]:
    """Return the status after a move, with its line in the timeline, and the row that permits it.

    Raises :class:`~agentrun.decisions.node_states.IllegalTransitionError` for a move that the table does not hold.
    """
    row = find_row(status.phase, move.to, move.reason)
    message = cut_text(move.message, MESSAGE_LIMIT)
    changes: dict[str, object] = {
        "phase": move.to,
        "reason": move.reason,
        "message": message,
        "entered_at": now,
        "pause_at_entry": pause_total,
        "deadline": None,
        "due_at": None,
        "waiting_for": "",
        "inbox": None,
        "recovering": False,
    }
    if (status.phase, move.to) in _IN_LINE:
        # The wait in line goes on, and so does the reckoning of how long the clock stood still in it.
        changes["pause_at_entry"] = status.pause_at_entry
    if status.phase in _WORKING:
        changes["active"] = (status.active or timedelta()) + (now - status.entered_at)
    if move.to is NodePhase.READY and status.phase is not NodePhase.QUEUED:
        changes["queued_since"] = now
    if move.to is NodePhase.RUNNING and status.started_at is None:
        changes["started_at"] = now
    if move.to in TERMINAL_NODE_PHASES:
        changes["finished_at"] = now
    if move.to is NodePhase.SUCCEEDED:
        changes["failure"] = None
        changes["effect"] = Effect.EXECUTED
    changes.update(move.changes)
    line = Transition(
        at=now,
        from_phase=status.phase,
        to_phase=move.to,
        reason=move.reason,
        message=message,
        actor=move.actor,
        attempt=int(changes.get("attempt", status.attempt)),  # type: ignore[call-overload]
    )
    changes["timeline"] = (*status.timeline, line)[-TIMELINE_LENGTH:]
    return status.model_copy(update=changes), row
