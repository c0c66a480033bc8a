"""What a check of admission finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentrun.contract.failures import Reason


class ViolationKind(StrEnum):
    """What a violation does to the run (or the tool) it is found in."""

    REFUSE = "Refuse"
    """It can never run as written."""
    PENDING = "Pending"
    """It waits: a tool is missing or invalid, and may be mended without touching the run."""
    GATED = "Gated"
    """It is admitted, and the params gate will stop the node; shown to whoever writes the manifest."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong: where, what stands there, what is wrong with it, and how to mend it."""

    field: str
    """Full path in the manifest, such as ``spec.nodes[2].dependsOn[0]``."""
    value: str
    message: str
    remedy: str
    reason: Reason
    kind: ViolationKind = ViolationKind.REFUSE

    def __str__(self) -> str:
        return f"{self.field}: {self.message}; {self.remedy}"
