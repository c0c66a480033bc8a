"""The tool of the human-in-the-loop example."""

from __future__ import annotations


def refund(order: str, cents: int) -> dict[str, object]:
    """Pretend to refund an order."""
    return {"order": order, "refunded": cents}
