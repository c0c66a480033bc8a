"""What the decisions are made from: facts about a run and about one node, gathered by the engine.

All frozen; all time is an argument. Whoever gathers them answers for their being current enough: a decision with an
effect outside is guarded by the ledger, never by these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from agentrun.contract.defaults import DEPENDENCY_WAIT, INBOX_WAIT, MAX_SUSPENDED, QUEUE_WAIT, RECOVERY_WAIT
from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.node import AgentNodeSpec, AgentNodeStatus
from agentrun.contract.run import AgentRunSpec, RunPhase, Waits
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.conditions import TestScope
from agentrun.decisions.join_rules import ChooserVerdict, JoinVerdict
from agentrun.decisions.references import ReferenceScope


class ValueScope(ReferenceScope, TestScope, Protocol):
    """Reads values for references and for typed tests."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Where and how a value misses its schema."""

    path: str
    message: str


SchemaJudge = Callable[[JsonObject, JsonValue], tuple[Problem, ...]]
"""Judges a value against a JSON Schema; empty means that it fits."""


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """How long a node may stand in states where nothing runs."""

    dependencies: timedelta = DEPENDENCY_WAIT
    queue: timedelta = QUEUE_WAIT
    recovery: timedelta = RECOVERY_WAIT
    inbox: timedelta = INBOX_WAIT
    suspended: timedelta = MAX_SUSPENDED

    @classmethod
    def of(cls, waits: Waits | None) -> WaitLimits:
        """Return the run's own limits over the defaults."""
        default = cls()
        if waits is None:
            return default
        return cls(
            dependencies=waits.dependencies or default.dependencies,
            queue=waits.queue or default.queue,
            recovery=waits.recovery or default.recovery,
            inbox=waits.inbox or default.inbox,
            suspended=waits.suspended or default.suspended,
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """The run's outcome is decided; what is left is to end its nodes."""

    phase: RunPhase
    reason: str
    message: str = ""
    cancels_running: bool = False
    """True: running attempts are told to stop. False: they end by themselves first."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a node's decision needs to know about its run."""

    now: datetime
    spec: AgentRunSpec
    waits: WaitLimits
    admitted: bool
    suspended: bool
    """The clocks of Pending, Ready and RetryWait stand still, and nothing is queued."""
    pause_total: timedelta
    """How long they have stood still so far, the suspension under way included."""
    deadline: datetime | None
    ending: Ending | None = None
    lives: bool = True
    """The run has no terminal phase yet."""
    held_by: str = ""
    """The node whose open approval pauses the whole run."""
    ledger_since: datetime | None = None
    """Since when the ledger has answered without a break; None: nothing is known of a break."""


class OrderSight(StrEnum):
    """What a look into the ledger said about the node's current order."""

    NOT_ASKED = "NotAsked"
    STANDING = "Standing"
    """In its stream, unclaimed."""
    CLAIMED = "Claimed"
    """Its claim is alive."""
    SILENT = "Silent"
    """Its claim has not been heard of for too long."""
    GONE = "Gone"
    """The ledger knows no such order and has no report about it."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node's decision is made from."""

    run: RunFacts
    spec: AgentNodeSpec
    status: AgentNodeStatus
    tool: AgentToolSpec | None
    """The definition now in use (a Task's only)."""
    join: JoinVerdict
    """Over the upstream nodes."""
    chooser: ChooserVerdict
    """Of the conditions that may choose it; Chosen where there are none."""
    children: JoinVerdict
    """Over the children of an expanded node."""
    upstream_in_inbox: bool
    scope: ValueScope
    judge: SchemaJudge
    sight: OrderSight = OrderSight.NOT_ASKED
    parent_ended: bool = False
    """The fan-out this node belongs to has its outcome already."""
    inbox_pause: timedelta = timedelta()
    """How long its wait for upstream nodes stood still because a human had one of them in hand."""
    held_by_fan_out: bool = False
    """Its instance has to wait: the fan-out's maxParallel instances are at work."""
    owner_lives: bool = False
    """Of the idempotency record this node waits for: its claim, recovery or inbox is open."""
    jitter: float = 0.5
    """A fresh random fraction in [0, 1) for backoff."""
    degrade_tools: tuple[str, ...] = field(default=())
    """Names of the tools on the ladder that exist, in order."""
