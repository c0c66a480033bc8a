"""What the lines of a watch mean: one event each, or an error of the API server.

Used by whoever follows a watch of the API server by itself. Keeps nothing; what an event changes is its reader's.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from agentrun.contract.exact_json import JsonObject, JsonRefusedError, parse_json
from agentrun.controller.api_errors import api_error

_log = structlog.get_logger("agentrun.controller")
_SERVER_TIMEOUT = "300"


class WatchEvent(NamedTuple):
    """One event of a watch."""

    kind: str
    """``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK``."""
    found: JsonObject
    """The object; of a bookmark its version alone."""
    version: str
    """The version that a watch may go on from; empty where the line names none."""


def watch_params(version: str) -> dict[str, str]:
    """Return what to ask of a watch that goes on from a version."""
    return {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": _SERVER_TIMEOUT}


def read_watch_line(line: bytes, path: str) -> WatchEvent | None:
    """Return the event of a line; None where it is none. ``path``: of the watch.

    Raises what :func:`~agentrun.controller.api_errors.api_error` makes of an error that the server sends as a line.
    """
    try:
        event = parse_json(line)
    except JsonRefusedError as error:
        _log.warning("watch_line_unreadable", cause=str(error))
        return None
    found = event.get("object") if isinstance(event, dict) else None
    if not isinstance(event, dict) or not isinstance(found, dict):
        return None
    if event.get("type") == "ERROR":
        code = found.get("code")
        raise api_error(code if isinstance(code, int) else 500, found, f"WATCH {path}")
    meta = found.get("metadata")
    version = str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""
    return WatchEvent(str(event.get("type") or ""), found, version)
