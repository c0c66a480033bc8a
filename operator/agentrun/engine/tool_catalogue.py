"""The tools the scheduler knows: by name as they stand now, and by digest as runs have pinned them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentrun.contract.exact_json import json_digest
from agentrun.contract.node import ToolRef
from agentrun.contract.tool import AgentTool, AgentToolSpec


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """A definition with the digest that orders carry."""

    ref: ToolRef
    spec: AgentToolSpec


class ToolCatalogue:
    """Definitions by namespace; written by watch events, read by admission."""

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str], PinnedTool] = {}

    def put(self, tool: AgentTool) -> None:
        """Take in a definition as it stands now; runs that pinned an older one keep it."""
        meta = tool.metadata
        digest = json_digest(tool.spec.to_wire())
        ref = ToolRef(name=meta.name, uid=meta.uid, generation=meta.generation, digest=digest)
        self._tools[meta.namespace, meta.name] = PinnedTool(ref, tool.spec)

    def drop(self, tool: AgentTool) -> None:
        """Forget a deleted definition."""
        self._tools.pop((tool.metadata.namespace, tool.metadata.name), None)

    def find(self, namespace: str, name: str) -> PinnedTool | None:
        """Return the definition of that name, or None."""
        return self._tools.get((namespace, name))

    def all(self) -> Iterator[tuple[str, PinnedTool]]:
        """Give every definition as it stands now, with its namespace."""
        return ((namespace, pinned) for (namespace, _), pinned in self._tools.items())

    def specs(self, namespace: str) -> dict[str, AgentToolSpec]:
        """Return the namespace's definitions by name."""
        return {name: pinned.spec for (space, name), pinned in self._tools.items() if space == namespace}
