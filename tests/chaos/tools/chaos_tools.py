"""Tools of the chaos rounds: each call that does something appends one line to a file that no strike reaches."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from agentrun_worker.tool_api import PermanentError, RetryableError, ToolContext

_AT_WORK_SECONDS = 1.5


def read(word: str, ms: int = 0, how: str = "well", number: int = 0, seen: Any = None) -> dict[str, Any]:
    time.sleep(ms / 1000)
    if how == "refuse":
        raise PermanentError("refused", effect="NotExecuted")
    if how == "stumble" and _is_first(word):
        raise RetryableError("busy", effect="NotExecuted")
    return {"did": word, "number": number}


def act(
    context: ToolContext, tool: str, word: str, ms: int = 0, how: str = "well", number: int = 0, seen: Any = None
) -> dict[str, Any]:
    _begin(word)
    time.sleep(ms / 1000)
    if how == "refuse":
        raise PermanentError("refused", effect="NotExecuted")
    if how == "stumble" and _is_first(word):
        raise RetryableError("busy", effect="NotExecuted")
    _leave_effect(context, tool, word)
    time.sleep(ms / 1000)
    if how == "unknown" and _is_first(word):
        raise RetryableError("no answer came", effect="Unknown")
    if how == "crash" and _is_first(word):
        os._exit(3)
    if how == "useless":
        return {"wrong": word}
    return {"did": word, "number": number}


def find(key: str, word: str, number: int = 0) -> dict[str, Any]:
    """Look up what became of a call; whoever has begun just now is taken to be still at work."""
    if any(effect["key"] == key for effect in read_effects(_folder())):
        return {"state": "done", "result": {"did": word, "number": number}}
    with contextlib.suppress(FileNotFoundError):
        if time.time() - (_folder() / f"begun-{word}").stat().st_mtime < _AT_WORK_SECONDS:
            return {"state": "running"}
    return {"state": "none"}


def read_effects(folder: Path) -> list[dict[str, Any]]:
    path = folder / "effects"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _folder() -> Path:
    return Path(os.environ["CHAOS_EFFECTS"])


def _begin(word: str) -> None:
    (_folder() / f"begun-{word}").touch()


def _leave_effect(context: ToolContext, tool: str, word: str) -> None:
    made = {"tool": tool, "word": word, "key": context.idempotency_key, "request": context.request_id}
    line = json.dumps({**made, "at": round(time.time(), 3)})
    # One write to a file opened for appending: a process that is killed leaves a whole line or none.
    file = os.open(_folder() / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def _is_first(word: str) -> bool:
    try:
        os.close(os.open(_folder() / f"first-{word}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
