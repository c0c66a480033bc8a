"""The tools of the own-worker-image example: they stand in the image, and nowhere else."""

from __future__ import annotations


def greet(name: str) -> dict[str, str]:
    """Say hello; a real one would send it."""
    return {"text": f"Hello {name}!"}
