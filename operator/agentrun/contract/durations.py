"""Durations as Go writes them (``1h30m``, ``15s``, ``500ms``) on the wire, ``timedelta`` inside."""

from __future__ import annotations

import re
from datetime import timedelta

DURATION_PATTERN = r"^([0-9]{1,9}(\.[0-9]{1,3})?(h|m|s|ms))+$"
_WHOLE = re.compile(DURATION_PATTERN)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
MAX_DURATION = timedelta(days=3660)
MAX_LENGTH = 32


def parse_duration(text: str) -> timedelta:
    """Return the ``timedelta`` of a Go-style duration.

    Units are ``h``, ``m``, ``s`` and ``ms``. Raises :class:`ValueError` for other texts, signs, durations finer than
    a millisecond (they would be rounded, a timeout perhaps to zero) and durations over ten years.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH or not _WHOLE.fullmatch(text):
        raise ValueError(f'{repr(text)[:40]} is no duration: write it like "15s", "1h30m" or "500ms"')
    microseconds = 0
    for amount, unit in _PART.findall(text):
        whole, _, fraction = amount.partition(".")
        thousandths = int(whole) * 1000 + int(fraction.ljust(3, "0") or 0)
        microseconds += thousandths * _MILLISECONDS[unit]
    if microseconds % 1000:
        raise ValueError(f"{text!r} is finer than a millisecond")
    if microseconds > MAX_DURATION // timedelta(microseconds=1):
        raise ValueError(f"{text!r} is longer than ten years")
    return timedelta(microseconds=microseconds)


def format_duration(duration: timedelta) -> str:
    """Write a duration the shortest way that :func:`parse_duration` reads back; zero is ``0s``.

    Rounds to milliseconds. Raises :class:`ValueError` for a negative duration, which has no text.
    """
    rest = round(duration / timedelta(milliseconds=1))
    if rest < 0:
        raise ValueError(f"{duration} is negative")
    parts = []
    for unit, size in _MILLISECONDS.items():
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"
