"""What can happen to a run: the closed set of inputs that its queue carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agentrun.contract.approval import AgentApproval
from agentrun.contract.node import AgentNode
from agentrun.contract.orders import Report
from agentrun.contract.run import AgentRun


@dataclass(frozen=True, slots=True)
class RunSeen:
    """The run exists or was changed."""

    run: AgentRun
    fetched: bool = False
    """Read just now: it counts whatever its version. A restored server counts on from an older one."""


@dataclass(frozen=True, slots=True)
class RunGone:
    """The run was deleted."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node object was observed."""

    node: AgentNode


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node object was deleted."""

    node: AgentNode


@dataclass(frozen=True, slots=True)
class ApprovalSeen:
    """An approval object was observed; it may hold a decision."""

    approval: AgentApproval


@dataclass(frozen=True, slots=True)
class ApprovalGone:
    """An approval object was deleted."""

    approval: AgentApproval


@dataclass(frozen=True, slots=True)
class ReportArrived:
    """A report was read."""

    id: str
    report: Report


@dataclass(frozen=True, slots=True)
class Woken:
    """A time has come for a node; an empty path is the run itself."""

    path: str


@dataclass(frozen=True, slots=True)
class Granted:
    """The dispatcher has set slots aside for a node."""

    path: str


@dataclass(frozen=True, slots=True)
class ToolsChanged:
    """A tool of the namespace appeared or changed."""


RunInput: TypeAlias = (
    RunSeen
    | RunGone
    | NodeSeen
    | NodeGone
    | ApprovalSeen
    | ApprovalGone
    | ReportArrived
    | Woken
    | Granted
    | ToolsChanged
)
