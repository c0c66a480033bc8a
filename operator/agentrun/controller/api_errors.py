"""What the API server's refusals mean to the engine: one table from HTTP answers to the cluster port's errors."""

from __future__ import annotations

import re

from agentrun.contract.exact_json import JsonObject
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError, QuotaExceededError

_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)")


class NameTakenError(Exception):
    """A create found an object of that name (409 AlreadyExists)."""


class ObjectRefusedError(Exception):
    """The API server will never take this object (400, 413, 422): a bug, or a schema older than this operator."""


class NoAnswerError(ClusterUnavailableError):
    """Nothing answered at the API server's address, or not in time."""


class NotServedError(ClusterUnavailableError):
    """The API server answered, and does not serve the kind (404 without an object), or not yet."""


class AccessRefusedError(ClusterUnavailableError):
    """The API server answered, and does not know us (401) or does not let us do this (403)."""

    def __init__(self, said: str, status: int) -> None:
        super().__init__(said)
        self.is_unknown = status == 401


class WatchExpiredError(Exception):
    """The version to watch from is gone (410): list again."""


def api_error(status: int, answer: JsonObject, what: str) -> Exception:
    """Return the error that an answer of 400 and above means; ``what`` names the request in it."""
    reason = str(answer.get("reason") or "")
    message = str(answer.get("message") or f"HTTP {status}")
    said = f"{what}: {message}"
    match status:
        case 404 if reason == "NotFound":
            return GoneError(said)
        case 404:
            # No object is named: the kind is not served. A server that was just started answers so for every custom
            # resource, and nothing of it is gone.
            return NotServedError(f"{said} (not served, or not yet; are the CRDs installed?)")
        case 409 if reason == "AlreadyExists":
            return NameTakenError(said)
        case 409:
            return ConflictError(said)
        case 410:
            return WatchExpiredError(said)
        case 403 if _names_cause(answer, "NamespaceTerminating"):
            return GoneError(said)
        case 403 if quota := _QUOTA.search(message):
            return QuotaExceededError(quota.group(1))
        case 400 | 413 | 422:
            return ObjectRefusedError(said)
        # A token on its way to be renewed; rights that are missing now, and may be given.
        case 401 | 403:
            return AccessRefusedError(said, status)
        # 429, 5xx: load.
        case _:
            return ClusterUnavailableError(said)


def _names_cause(answer: JsonObject, cause: str) -> bool:
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return any(isinstance(found, dict) and found.get("reason") == cause for found in causes or ())
