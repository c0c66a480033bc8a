"""The tools of the routing example."""

from __future__ import annotations


def classify(text: str) -> dict[str, str]:
    """Look for a few words; a model would do it better."""
    topic = "refund" if "money back" in text else "question"
    return {"topic": topic, "urgency": "high" if "!" in text else "low"}


def charge_back(text: str) -> dict[str, str]:
    """Pretend to pay money back."""
    return {"paid": "49.99"}


def reply(text: str) -> dict[str, str]:
    """Pretend to write to the customer."""
    return {"sent": text}
