"""Time and chance as the engine receives them, so that a test can own both."""

from __future__ import annotations

import random
import secrets
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time. Waiting is done with asyncio alone, whose loop a test may run on virtual time."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        ...


class Entropy(Protocol):
    """Where ids and jitter come from."""

    def token(self) -> str:
        """Return 32 fresh hex digits."""
        ...

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        return datetime.now(UTC)


class SystemEntropy:
    """The system's randomness."""

    def token(self) -> str:
        """Return 32 fresh hex digits."""
        return secrets.token_hex(16)

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return random.random()
