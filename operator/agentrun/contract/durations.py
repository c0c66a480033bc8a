"""Durations as Go writes them (``1h30m``, ``15s``, ``500ms``) on the wire, ``timedelta`` inside."""

from __future__ import annotations

import re
from datetime import timedelta

DURATION_PATTERN = r"^([0-9]{1,9}(\.[0-9]{1,3})?(h|m|s|ms))+$"
_WHOLE = re.compile(DURATION_PATTERN)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
MAX_DURATION = timedelta(days=3660)


def parse_duration(text: str) -> timedelta:
    """Return the ``timedelta`` of a Go-style duration.

    Units are ``h``, ``m``, ``s`` and ``ms``; the result has whole milliseconds. Raises :class:`ValueError` for other
    texts, signs, and durations over ten years.
    """
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise ValueError(f'{text!r} is no duration: write it like "15s", "1h30m" or "500ms"')
    milliseconds = sum(float(amount) * _MILLISECONDS[unit] for amount, unit in _PART.findall(text))
    if milliseconds > MAX_DURATION / timedelta(milliseconds=1):
        raise ValueError(f"{text!r} is longer than ten years")
    return timedelta(milliseconds=round(milliseconds))


def format_duration(duration: timedelta) -> str:
    """Write a duration the shortest way that :func:`parse_duration` reads back; zero is ``0s``."""
    rest = round(duration / timedelta(milliseconds=1))
    parts = []
    for unit, size in _MILLISECONDS.items():
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"
