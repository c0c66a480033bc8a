"""Whether there is a terminal, and consoles that are plain where there is none."""

from __future__ import annotations

import os
import sys

from rich.console import Console


def is_terminal() -> bool:
    """Tell whether a person watches and can answer."""
    return sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM") != "dumb"


def output() -> Console:
    """Return the console for results; plain text without a terminal."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def errors() -> Console:
    """Return the console for messages to the user."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)
