"""Who a worker is: a name that no other live worker has, and an incarnation that no other process has."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping

from agentrun.ledger.port import WorkerIdentity

_LONGEST_NAME = 200
_IN_A_POD = "KUBERNETES_SERVICE_HOST"


def choose_name(given: str | None, environment: Mapping[str, str]) -> str:
    """Return the worker's name.

    A new incarnation of a name proves the earlier one gone, and recoveries build on that proof. A pod's name belongs to
    one worker at a time and stays with it through restarts of its container. Elsewhere nothing is known of the other
    processes on the machine, so the name is new each time, unless one was given.
    """
    if given:
        return given
    host = socket.gethostname()[:_LONGEST_NAME]
    return host if _IN_A_POD in environment else f"{host}-{secrets.token_hex(4)}"


def build_identity(namespace: str, pool: str, name: str, slots: int) -> WorkerIdentity:
    """Return the identity of this process."""
    return WorkerIdentity(namespace, pool, name, secrets.token_hex(16), slots)
