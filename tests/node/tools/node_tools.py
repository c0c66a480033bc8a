"""Tools of the node's tests. What they did is counted by the provider that runs beside them (node_provider)."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request
from typing import Any

_PROVIDER = "http://provider:8000"


def _ask(path: str, timeout: float = 20) -> dict[str, Any]:
    with urllib.request.urlopen(f"{_PROVIDER}{path}", timeout=timeout) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def act(word: str) -> dict[str, str]:
    """Do something that a repetition would do twice."""
    _ask(f"/did/{word}")
    return {"did": word, "by": os.environ.get("HOSTNAME", "")}


def hold(word: str) -> dict[str, str]:
    """Do something that lasts until the provider lets it go."""
    _ask(f"/hold/{word}", timeout=300)
    return {"did": word, "by": os.environ.get("HOSTNAME", "")}


def swell(word: str, mebibytes: int) -> dict[str, int]:
    """Do something, then use memory."""
    _ask(f"/did/{word}")
    block = bytearray(mebibytes * 1024 * 1024)
    block[::4096] = b"x" * len(block[::4096])
    return {"mebibytes": len(block) >> 20}


def look(word: str) -> dict[str, Any]:
    """Tell whether the provider did something under a word."""
    return {"state": "done" if _ask("/counts")["did"].get(word) else "unknown"}


def tell(context: Any, name: str, key: str) -> dict[str, Any]:
    """Tell what a secret is by a digest of it, who reads it, and whether this file system can be written to."""
    value = context.secret(name, key)
    try:
        open("/opt/agentrun/written", "w").close()
        root = "writable"
    except OSError:
        root = "read-only"
    return {"digest": hashlib.sha256(value.encode()).hexdigest(), "user": os.getuid(), "root": root}
