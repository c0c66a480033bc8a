"""What keeps the operator from making what workers run in, in words for people, and how long to wait then.

Asked by the keepers of pools and of Jobs. Pure.
"""

from __future__ import annotations

from datetime import timedelta

from agentrun.controller.api_errors import ObjectRefusedError
from agentrun.controller.pools.our_objects import ForeignObjectError
from agentrun.decisions.pools.pod_faults import PoolFault
from agentrun.engine.cluster_port import (
    ClusterUnavailableError,
    ConflictError,
    ForbiddenError,
    GoneError,
    HeldBackError,
    QuotaExceededError,
)
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.ledger.worker_users import UsersForbiddenError

AGAIN_SOON = timedelta(seconds=2)
AGAIN_LATER = timedelta(seconds=15)
"""After a refusal that somebody has to do something about."""
BUG = "Bug"


class AccountNotAllowedError(Exception):
    """A tool names an account that the settings do not allow."""

    def __init__(self, account: str) -> None:
        super().__init__(
            f"execution.serviceAccountName {account} is not allowed: whoever runs the operator may add it to"
            " pools.serviceAccounts"
        )


def explain_failure(error: Exception) -> tuple[PoolFault | None, timedelta]:
    """Return what a failed step says to people, None where it passes by itself, and how long to wait."""
    match error:
        case QuotaExceededError():
            return PoolFault("Quota", str(error)), AGAIN_LATER
        case ForbiddenError() | HeldBackError():
            return PoolFault("Forbidden", str(error)), AGAIN_LATER
        case ObjectRefusedError():
            return PoolFault("Refused", str(error)), AGAIN_LATER
        case ForeignObjectError():
            return PoolFault("NameTaken", str(error)), AGAIN_LATER
        case AccountNotAllowedError():
            return PoolFault("Account", str(error)), AGAIN_LATER
        case UsersForbiddenError():
            remedy = "let the operator's user make users (ACL SETUSER), or set pools.isolation to None"
            return PoolFault(
                "Ledger", f"the ledger's server refuses to make a user for workers: {error}; {remedy}"
            ), AGAIN_LATER
        case LedgerUnavailableError() | ClusterUnavailableError() | ConflictError() | GoneError():
            return None, AGAIN_SOON
        case _:
            return PoolFault(BUG, f"{type(error).__name__}: {error}"), AGAIN_LATER
