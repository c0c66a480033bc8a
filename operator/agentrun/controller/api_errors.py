"""What the API server's refusals mean to the engine: one table from HTTP answers to the cluster port's errors."""

from __future__ import annotations

import re

from agentrun.contract.exact_json import JsonObject
from agentrun.engine.cluster_port import (
    ClusterUnavailableError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NamespaceTerminatingError,
    QuotaExceededError,
)

_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)")
_RIGHT = re.compile(r"cannot (\w+) resource \"([^\"]+)\"(?:.*? in the namespace \"([^\"]+)\")?")
"""How the authorizer words a right that is missing, since Kubernetes 1.12."""


class NameTakenError(Exception):
    """A create found an object of that name (409 AlreadyExists)."""


class ObjectRefusedError(Exception):
    """The API server will never take this object (400, 413, 422): a bug, or a schema older than this operator."""


class NoAnswerError(ClusterUnavailableError):
    """Nothing answered at the API server's address, or not in time."""


class NotServedError(ClusterUnavailableError):
    """The API server answered, and does not serve the kind (404 without an object), or not yet."""


class UnauthorizedError(ClusterUnavailableError):
    """The API server answered, and does not know us (401)."""


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
            return NamespaceTerminatingError(said)
        case 403 if quota := _QUOTA.search(message):
            remedy = "raise the ResourceQuota, or delete what fills it; it goes on by itself"
            return QuotaExceededError(quota.group(1), f"{message} ({remedy})")
        case 403:
            return _forbidden(message, what)
        case 400 | 413 | 422:
            return ObjectRefusedError(said)
        case 401:
            # A token on its way to be renewed, or a wrong one.
            return UnauthorizedError(said)
        # 429, 5xx: load.
        case _:
            return ClusterUnavailableError(said)


def _forbidden(message: str, what: str) -> ForbiddenError:
    missing = _RIGHT.search(message)
    if missing is None:
        # A policy or another webhook refuses: nobody but its author can say what it asks for.
        verb, _, path = what.partition(" ")
        return ForbiddenError(f"{verb.lower()} {path.rsplit('/', 1)[-1]}", f"{what}: {message}")
    verb, resource, namespace = missing.groups()
    place = f" in namespace {namespace}" if namespace else ""
    remedy = f"grant the operator's account the verb {verb} on {resource}{place}; it goes on by itself"
    return ForbiddenError(f"{verb} {resource}", f"the operator may not {verb} {resource}{place}: {remedy}")


def _names_cause(answer: JsonObject, cause: str) -> bool:
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return any(isinstance(found, dict) and found.get("reason") == cause for found in causes or ())
