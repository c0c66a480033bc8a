"""What the runs of a namespace may ask for at most, and how large its share of the slots is. Pure.

Set by whoever runs the installation, never by a manifest. Asked at a run's admission, by the webhook and by the
operator itself, and again whenever priority or budget of an admitted run are changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrun.contract.defaults import DEFAULT_PRIORITY
from agentrun.contract.run import AgentRunSpec, Budget, Priority

EVERYWHERE = "*"
"""Stands for every namespace that has no policy of its own."""


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """The bounds of one namespace; what is not said is not bounded."""

    highest_priority: Priority | None = None
    budget_micros: int | None = None
    """The most that one run may have as its budget."""
    share: int = 1
    """Relative weight in the queue for slots."""

    def allows_priority(self, priority: Priority | None) -> bool:
        """Tell whether a node or run may have this priority; None is the default one."""
        return self.highest_priority is None or str(priority or DEFAULT_PRIORITY) >= str(self.highest_priority)

    def allows_budget(self, budget: Budget | None) -> bool:
        """Tell whether a run may have this budget: where there is a bound, none at all is beyond it."""
        if self.budget_micros is None:
            return True
        return budget is not None and budget.limit is not None and budget.limit <= self.budget_micros

    def bound(self, spec: AgentRunSpec) -> AgentRunSpec:
        """Return the spec with no more than a run may have: what is beyond is lowered to the bound."""
        changes: dict[str, object] = {}
        if not self.allows_priority(spec.priority):
            changes["priority"] = self.highest_priority
        if not self.allows_budget(spec.budget):
            changes["budget"] = (spec.budget or Budget()).model_copy(update={"limit": self.budget_micros})
        return spec.model_copy(update=changes) if changes else spec


UNBOUNDED = NamespacePolicy()


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """The policies of an installation."""

    by_namespace: Mapping[str, NamespacePolicy]
    """:data:`EVERYWHERE` is for those that are not named; the two are not merged."""

    def find(self, namespace: str) -> NamespacePolicy:
        """Return the policy that a namespace is under."""
        return self.by_namespace.get(namespace) or self.by_namespace.get(EVERYWHERE) or UNBOUNDED


NO_POLICIES = NamespacePolicies({})
