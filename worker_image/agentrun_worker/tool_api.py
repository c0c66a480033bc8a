"""What the author of a Python tool may import: the ways to fail, and what a call knows about itself.

Kept free of everything else, so that a tool's file stays importable and testable on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
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


class SecretMissing(PermanentError):
    """A secret that was asked for does not exist; the message names it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call has used, beyond what the tool's definition says that a call costs.

    ``cost`` is an amount of money as a decimal text with at most six digits after the point, such as ``"0.0125"``.
    Raises :class:`ValueError` for a negative or unreadable amount.
    """

    cost: str = "0"
    tokens: int = 0
    model_calls: int = 0

    def __post_init__(self) -> None:
        try:
            amount = Decimal(self.cost)
        except InvalidOperation as error:
            raise ValueError(f"cost {self.cost!r} is no decimal number") from error
        if not amount.is_finite() or amount < 0 or amount != amount.quantize(Decimal("0.000001")):
            raise ValueError(f"cost {self.cost} is negative or finer than 0.000001")
        if self.tokens < 0 or self.model_calls < 0:
            raise ValueError("tokens and model_calls are never negative")


def _has_no_secrets(name: str, key: str) -> str:
    raise SecretMissing(f"no secrets are known here: {name} {key}", reason="SecretMissing")


def _reports_nowhere(usage: Usage) -> None:
    return


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a function gets that names a parameter ``context``. The defaults are for a tool's own unit tests."""

    request_id: str = "request"
    """Names this call in every log and header."""
    idempotency_key: str = "key"
    """The same for every attempt of this call: hand it to the provider."""
    seconds_left: Callable[[], float] = lambda: 60.0
    """How long the call may still take."""
    is_cancelled: Callable[[], bool] = lambda: False
    """Whether the run was cancelled: end soon and tell the truth."""
    secret: Callable[[str, str], str] = _has_no_secrets
    """``context.secret(name, key)``: one key of a Secret. Raises :class:`SecretMissing`."""
    report_usage: Callable[[Usage], None] = _reports_nowhere
    """``context.report_usage(Usage(cost="0.02"))``: adds up; it counts instead of the tool's ``cost.perCall``."""
