"""What the engine tells whoever watches it: facts as they arise, and the state it can be asked for.

The engine knows no metric. It notes facts with an :class:`Observer`, by default one that forgets them; the composition
root gives it one that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias

from agentrun.contract.node import AgentNodeStatus, InboxKind, NodePhase
from agentrun.contract.run import AgentRun, Priority, RunPhase, RunWait
from agentrun.decisions.pools.pool_step import PoolDemand
from agentrun.decisions.pools.pool_wishes import PoolKey


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run reached its final phase in this scheduler."""

    namespace: str
    phase: RunPhase
    reason: str


@dataclass(frozen=True, slots=True)
class RunPhaseStored:
    """The cluster has a run's new phase."""

    run: AgentRun
    """With the status as stored."""


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """A human is asked about a node: its approval exists."""

    run: AgentRun
    node: str
    kind: InboxKind
    approval: str
    """Name of the AgentApproval."""
    message: str


@dataclass(frozen=True, slots=True)
class RunWaits:
    """Nodes of a run have waited for something longer than people expect."""

    run: AgentRun
    wait: RunWait


@dataclass(frozen=True, slots=True)
class NodeMoved:
    """A node went from one state to another, in memory."""

    namespace: str
    tool: str
    """Of the call, else of the spec; empty for nodes that call none."""
    before: AgentNodeStatus
    after: AgentNodeStatus
    pause_total: timedelta
    """How long the run's clock had stood still by then."""


class TurnEnding(StrEnum):
    """How a turn ended."""

    DONE = "Done"
    POSTPONED = "Postponed"
    """For a cause that passes by itself."""
    FAILED = "Failed"
    """A bug."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A run took a turn."""

    ending: TurnEnding
    seconds: float


@dataclass(frozen=True, slots=True)
class ReportsRead:
    """The ledger answered a read with so many reports, or with none."""

    count: int


@dataclass(frozen=True, slots=True)
class ReportsAcknowledged:
    """The cluster has what so many reports said."""

    count: int


@dataclass(frozen=True, slots=True)
class LedgerUnavailable:
    """The ledger did not answer a step; it is taken again."""


@dataclass(frozen=True, slots=True)
class LeadTaken:
    """This scheduler decides from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LeadEnded:
    """It decides no more."""


EngineFact: TypeAlias = (
    RunEnded
    | RunPhaseStored
    | QuestionAsked
    | RunWaits
    | NodeMoved
    | TurnEnded
    | ReportsRead
    | ReportsAcknowledged
    | LedgerUnavailable
    | LeadTaken
    | LeadEnded
)


class Observer(Protocol):
    """Is told of facts in the engine's own loop: it must neither wait nor raise."""

    def note(self, happened: EngineFact) -> None:
        """Take a fact in."""
        ...


class Observers:
    """Tells several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def note(self, happened: EngineFact) -> None:
        """Tell each of them."""
        for observer in self._observers:
            observer.note(happened)


class Unobserved:
    """Forgets everything."""

    def note(self, happened: EngineFact) -> None:
        """Forget the fact."""


@dataclass(frozen=True, slots=True)
class QueueSurvey:
    """The dispatcher's queue and slots at one moment."""

    waiting: Mapping[tuple[str, str, str, Priority], int] = field(default_factory=dict)
    """By (namespace, pool, tool, priority)."""
    oldest: Mapping[tuple[str, str], timedelta] = field(default_factory=dict)
    """How long the longest wait has lasted, by (namespace, pool)."""
    in_use: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Slots held, by (namespace, pool)."""
    announced: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Slots of live workers, by (namespace, pool), as last looked at."""


@dataclass(frozen=True, slots=True)
class EngineSurvey:
    """What a scheduler holds at one moment; nobody changes it afterwards."""

    queue: QueueSurvey = field(default_factory=QueueSurvey)
    runs: Mapping[tuple[str, RunPhase], int] = field(default_factory=dict)
    """By (namespace, phase)."""
    nodes: Mapping[tuple[str, NodePhase], int] = field(default_factory=dict)
    """By (namespace, phase)."""


@dataclass(frozen=True, slots=True)
class PoolSurvey:
    """What the workers of all pools have to do at one moment."""

    complete: bool = False
    """Of every run that was seen the nodes have been read: whatever is under way is in here."""
    demand: Mapping[PoolKey, PoolDemand] = field(default_factory=dict)
    busy: Mapping[str, Set[str]] = field(default_factory=dict)
    """By namespace, the names of the workers that have an attempt under way."""
