"""Lookups that answer as a test has written down, and a call that leaves a trace when it is made."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def answer_next(answers: list[Any], counter: str) -> Any:
    """Give the next of the answers, the last one again and again."""
    path = Path(counter)
    asked = path.stat().st_size if path.exists() else 0
    # A byte for each time: whoever looks meanwhile never finds it half written.
    with path.open("a") as file:
        file.write("x")
    return answers[min(asked, len(answers) - 1)]


def refuse(answers: list[Any], counter: str) -> Any:
    raise RuntimeError("the lookup is broken")


def transfer(ledger: str, began: str, go: str) -> dict[str, Any]:
    """Say that it has begun, wait for leave, write one line."""
    Path(began).write_text("x")
    while not Path(go).exists():
        time.sleep(0.01)
    with Path(ledger).open("a") as lines:
        lines.write("transferred\n")
    return {"id": 1}


def transfer_and_hang(ledger: str, began: str, go: str) -> dict[str, Any]:
    """Write one line, say so, and never come back."""
    with Path(ledger).open("a") as lines:
        lines.write("transferred\n")
    Path(began).write_text("x")
    time.sleep(600)
    return {"id": 1}


def find_transfer(ledger: str) -> dict[str, Any]:
    path = Path(ledger)
    return {"state": "done", "transfer": {"id": 1}} if path.exists() and path.read_text() else {"state": "unknown"}
