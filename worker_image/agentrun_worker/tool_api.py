"""What the author of a Python tool may import: the ways to fail, and what a call knows about itself.

Kept free of everything else, so that a tool's file stays importable and testable on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

EffectName = Literal["NotExecuted", "Executed", "Unknown"]


class ToolError(Exception):
    """Raise it (or one of its three kinds) to say who acts next, and whether the effect happened.

    ``effect`` is the truth about the outside world: ``NotExecuted`` only if you know that nothing was changed. Any
    other exception counts as a passing failure of unknown effect.
    """

    failure_class: ClassVar[str] = "Retryable"

    def __init__(
        self,
        message: str,
        *,
        effect: EffectName = "Unknown",
        reason: str = "ToolFailed",
        retry_after_seconds: float = 0,
    ) -> None:
        super().__init__(message)
        if effect not in ("NotExecuted", "Executed", "Unknown"):
            raise ValueError(f"effect {effect!r} is none of NotExecuted, Executed, Unknown")
        self.effect: EffectName = effect
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class RetryableError(ToolError):
    """It may work later: the network, an overloaded provider."""


class PermanentError(ToolError):
    """It will never work like this: bad input, missing rights."""

    failure_class = "Permanent"


class NeedsHumanError(ToolError):
    """A rule of the business says no: a person must look."""

    failure_class = "NeedsHuman"


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a function gets that names a parameter ``context``."""

    request_id: str
    """Names this call in every log and header."""
    idempotency_key: str
    """The same for every attempt of this call: hand it to the provider."""
    seconds_left: Callable[[], float]
    """How long the call may still take."""
    is_cancelled: Callable[[], bool]
    """Whether the run was cancelled: end soon and tell the truth."""
