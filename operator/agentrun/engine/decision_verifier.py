"""What the engine asks of whoever can tell whether a decision really came from the person it names.

Implemented by the controller, beside the admission webhook that seals decisions. Whether an unverified decision is
refused, or may say less, is a setting of the scheduler.
"""

from __future__ import annotations

from typing import Protocol

from agentrun.contract.approval import AgentApproval


class DecisionVerifier(Protocol):
    """Judges the authorship of decisions. May raise what the cluster port raises."""

    def can_verify(self) -> bool:
        """Tell whether there is anybody who seals decisions, so that one could be verified at all."""
        ...

    async def is_verified(self, approval: AgentApproval, params_digest: str) -> bool:
        """Tell whether the approval's decision was sealed as it stands, on the params of this digest."""
        ...


class NoVerifier:
    """Where nobody seals decisions, none is verified."""

    def can_verify(self) -> bool:
        """Vouch for nobody, ever."""
        return False

    async def is_verified(self, approval: AgentApproval, params_digest: str) -> bool:
        """Vouch for nobody."""
        return False
