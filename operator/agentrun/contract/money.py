"""Money as integer micro-units: decimal strings on the wire, ``int`` inside, never a float."""

from __future__ import annotations

import re

MICROS_PER_UNIT = 1_000_000
MAX_MICROS = 10**15
"""A thousand million units. Larger amounts are taken for a mistake (a price per million entered per token)."""
MONEY_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$"
_MONEY = re.compile(MONEY_PATTERN)


def parse_micros(text: str) -> int:
    """Return the micro-units that a decimal string such as ``"100.00"`` says.

    Raises :class:`ValueError` for anything else: signs, exponents, more than six decimals or nine digits before the
    point, and for values that are not strings.
    """
    if not isinstance(text, str) or not _MONEY.fullmatch(text):
        shown = repr(text)[:40]
        raise ValueError(f'{shown} is no amount of money: write a decimal string such as "12.50", at most 6 decimals')
    whole, _, fraction = text.partition(".")
    return int(whole) * MICROS_PER_UNIT + int(fraction.ljust(6, "0") or 0)


def format_micros(micros: int) -> str:
    """Write micro-units as the shortest decimal string with at least two decimals: ``1500000`` is ``"1.50"``."""
    sign = "-" if micros < 0 else ""
    whole, fraction = divmod(abs(micros), MICROS_PER_UNIT)
    decimals = f"{fraction:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"
