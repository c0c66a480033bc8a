"""What the reconcile loop needs from a cluster: the only seam between Kubernetes and local mode.

Implemented by ``agentrun.local.memory_cluster`` and by the controller's API adapter. Objects are the contract's models.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from agentrun.contract.approval import AgentApproval
from agentrun.contract.node import AgentNode
from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool

ClusterObject: TypeAlias = AgentTool | AgentRun | AgentNode | AgentApproval


class ChangeKind(StrEnum):
    """What happened to an object."""

    SEEN = "Seen"
    """Exists, was created or modified."""
    GONE = "Gone"
    """Was deleted."""


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One observed object; may be late, repeated or out of order."""

    kind: ChangeKind
    object: ClusterObject


@dataclass(frozen=True, slots=True)
class RunSight:
    """A run as one look at it shows, also where its content cannot be read."""

    uid: str
    ended: bool


@dataclass(frozen=True, slots=True)
class ObjectSight:
    """An object's metadata alone."""

    kind: str
    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class ClusterSurvey:
    """Everything of ours that exists, as metadata. Of a child that is in it, the run was looked for afterwards."""

    runs: Sequence[ObjectMeta]
    children: Sequence[ObjectSight]
    """AgentNodes, AgentApprovals and the Leases of sessions."""


class ConflictError(Exception):
    """The object has changed since it was read (409): read again and decide again."""


class AlreadyExistsError(Exception):
    """An object of that name exists; ``existing`` is what was found."""

    def __init__(self, existing: ClusterObject) -> None:
        super().__init__(f"{existing.kind} {existing.metadata.namespace}/{existing.metadata.name} exists")
        self.existing = existing


class GoneError(Exception):
    """The object does not exist any more (404), or its namespace is being deleted."""


class NamespaceTerminatingError(GoneError):
    """Nothing can be created any more: the namespace is being deleted, and everything in it goes."""


class ClusterUnavailableError(Exception):
    """The API did not answer or refused for a passing cause (5xx, 429, timeout). Retry with backoff."""


class HeldBackError(ClusterUnavailableError):
    """The cluster refuses it until somebody changes something there: a wait that is shown and uses no attempt."""

    def __init__(self, waiting_for: str, said: str) -> None:
        super().__init__(said)
        self.waiting_for = waiting_for
        """What it waits for, as a status shows it."""


class QuotaExceededError(HeldBackError):
    """The namespace's quota admits no more of it now. Wait; ``quota`` names it."""

    def __init__(self, quota: str, said: str = "") -> None:
        super().__init__(f"Quota({quota})", said or f"quota {quota} is exhausted")
        self.quota = quota


class ForbiddenError(HeldBackError):
    """The operator lacks a right, or a policy of the cluster refuses. Wait until it is given; ``right`` names it."""

    def __init__(self, right: str, said: str) -> None:
        super().__init__(f"Rights({right})", said)
        self.right = right


class Cluster(Protocol):
    """Reads and guarded writes. Every write may raise the errors above; each returns the object as stored."""

    def watch(self) -> AsyncIterator[ClusterChange]:
        """Give every existing object once, then every change, until the iterator is closed."""
        ...

    async def create_node(self, node: AgentNode) -> AgentNode:
        """Create the node without its status (the API server drops it)."""
        ...

    async def create_approval(self, approval: AgentApproval) -> AgentApproval:
        """Create the approval without its status."""
        ...

    async def create_run(self, run: AgentRun) -> AgentRun:
        """Create a run (re-driving a dead node of an ended run makes a ``retryOf`` run)."""
        ...

    async def replace_status(self, changed: ClusterObject) -> ClusterObject:
        """Store the object's status if its resourceVersion is still the one it carries, else :class:`ConflictError`."""
        ...

    async def delete(self, target: ClusterObject | ObjectSight, *, unchanged: bool = False) -> None:
        """Delete the object (by uid; with ``unchanged`` by resourceVersion as well); not found is success."""
        ...

    async def find_run(self, namespace: str, name: str) -> RunSight | None:
        """Look at a run of this name."""
        ...

    async def fetch_run(self, namespace: str, name: str) -> AgentRun | None:
        """Read a run of this name; None also where it cannot be read, which whoever observes has told already."""
        ...

    async def survey(self) -> ClusterSurvey:
        """List what exists in all namespaces that are served."""
        ...

    async def list_tools(self) -> Sequence[AgentTool]:
        """Read every tool that can be read, in all namespaces that are served."""
        ...

    async def list_runs(self) -> Sequence[AgentRun]:
        """Read every run that can be read, in all namespaces that are served."""
        ...

    def iterate_nodes(self) -> AsyncIterator[AgentNode]:
        """Read every node that can be read, a page at a time, in all namespaces that are served."""
        ...

    def serves(self, namespace: str) -> bool:
        """Tell whether a namespace is among those that are served."""
        ...

    async def list_nodes(self, namespace: str, run_uid: str) -> Sequence[AgentNode]:
        """Return the nodes that carry this run uid."""
        ...
