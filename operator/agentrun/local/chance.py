"""Where the ids and jitter of runs that can be repeated come from."""

from __future__ import annotations

import random
import uuid


class SeededEntropy:
    """The same sequence for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        """Return 32 hex digits."""
        return f"{self._random.getrandbits(128):032x}"

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()


def uid_from(token: str) -> str:
    """Return a UUID made of 32 hex digits, as Kubernetes gives its objects."""
    return str(uuid.UUID(token))
