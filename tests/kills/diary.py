"""What a doomed process has come past, line by line in a file; at one of the lines it strikes itself down.

Written by the wrappers of doomed_worker and doomed_scheduler, read by the test. It changes nothing but the process's life.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a process ends. The fields are texts so that they travel as JSON."""

    point: str = ""
    """Empty: it is not doomed."""
    armed: str = ""
    """The point counts only after this one has been passed; empty: at once."""
    drains: str = ""
    """At this point it is told to end in order, as SIGTERM does."""
    stops: bool = False
    """SIGSTOP in place of SIGKILL."""


class Diary:
    """Notes points and carries the fate out."""

    def __init__(self, path: Path, fate: Fate) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._fate = fate
        self._armed = not fate.armed
        self._struck = False
        self.on_drain: Callable[[], None] = lambda: None

    def note(self, point: str) -> None:
        """Write the point down; at the fatal one the process is dead (or stopped) before this returns."""
        os.write(self._file, point.encode() + b"\n")
        if point == self._fate.drains:
            self.on_drain()
        if point == self._fate.point and self._armed and not self._struck:
            self._struck = True
            os.kill(os.getpid(), signal.SIGSTOP if self._fate.stops else signal.SIGKILL)
        if point == self._fate.armed:
            self._armed = True


def read_diary(path: Path) -> list[str]:
    """Return the points passed so far."""
    return path.read_text().splitlines() if path.exists() else []
