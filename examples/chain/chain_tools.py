"""The tools of the chain example."""

from __future__ import annotations

import re

PRICES = {"kettle": 4999, "toaster": 2950}


def extract_order(text: str) -> dict[str, object]:
    """Find a number and an item."""
    found = re.search(r"(\d+) (\w+?)s?\b", text)
    if found is None:
        raise ValueError(f"no order in {text!r}")
    return {"item": found[2], "quantity": int(found[1])}


def price_order(item: str, quantity: int) -> dict[str, int]:
    """Price it in cents."""
    return {"cents": PRICES[item] * quantity}


def book_order(item: str, quantity: int, cents: int) -> dict[str, str]:
    """Pretend to book it; a real one would write to a database."""
    return {"booked": f"{quantity} x {item} for {cents / 100:.2f}"}
