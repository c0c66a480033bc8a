"""Keeps what the cases came to as a table in test-reports/kills, for people; the documentation shows its short form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "test-reports" / "kills"


def keep_table(name: str, rows: Iterable[object]) -> None:
    """Write a table, a row a line; an earlier one of that name goes."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    (_FOLDER / f"{name}.md").write_text("".join(f"{row}\n" for row in rows))
