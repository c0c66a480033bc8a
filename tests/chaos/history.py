"""What happened in a round, in order, for people."""

from __future__ import annotations

import time


class History:
    """Lines with the seconds since the round's runs were applied."""

    def __init__(self) -> None:
        self._zero = time.monotonic()
        self._lines: list[tuple[float, str]] = []

    def begin(self) -> None:
        """Count the seconds from now on."""
        self._zero = time.monotonic()

    @property
    def now(self) -> float:
        """Return the seconds that have passed."""
        return time.monotonic() - self._zero

    def note(self, text: str) -> None:
        """Add a line."""
        self._lines.append((time.monotonic(), text))

    def __str__(self) -> str:
        return "\n".join(f"  {at - self._zero:7.2f}  {text}" for at, text in self._lines)
