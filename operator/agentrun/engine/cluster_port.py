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


class ConflictError(Exception):
    """The object has changed since it was read (409): read again and decide again."""


class AlreadyExistsError(Exception):
    """An object of that name exists; ``existing`` is what was found."""

    def __init__(self, existing: ClusterObject) -> None:
        super().__init__(f"{existing.kind} {existing.metadata.namespace}/{existing.metadata.name} exists")
        self.existing = existing


class GoneError(Exception):
    """The object does not exist any more (404), or its namespace is being deleted."""


class ClusterUnavailableError(Exception):
    """The API did not answer or refused for a passing cause (5xx, 429, timeout). Retry with backoff."""


class QuotaExceededError(Exception):
    """The namespace's quota admits no more of it now. Wait; ``quota`` names it."""

    def __init__(self, quota: str) -> None:
        super().__init__(f"quota {quota} is exhausted")
        self.quota = quota


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

    async def delete(self, target: ClusterObject) -> None:
        """Delete the object (by uid); not found is success."""
        ...

    async def list_nodes(self, namespace: str, run_uid: str) -> Sequence[AgentNode]:
        """Return the nodes that carry this run uid."""
        ...
