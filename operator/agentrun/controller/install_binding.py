"""Binds what this install serves to it in the ledger, so that no two installs decide about the same runs.

Asked by the scheduler before it takes the lead, and again after the ledger has lost its data. It knows the cluster by
the uid of its namespace kube-system; where that cannot be read nothing is bound, and the log says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from agentrun.contract.ledger_keys import INSTALLS_KEY
from agentrun.controller.api_client import ApiClient
from agentrun.engine.cluster_port import ForbiddenError, GoneError

_CLUSTER_NAMESPACE = "/api/v1/namespaces/kube-system"
_log = structlog.get_logger("agentrun.controller")


class ForeignInstallError(Exception):
    """Another install serves this already: this one must not start. Fix the settings, or remove the other one."""


class InstallBook(Protocol):
    """Where it is written down which install serves what."""

    async def bind_install(self, cluster: str, namespaces: Sequence[str]) -> tuple[str, str] | None:
        """Bind namespaces of a cluster, or return another install and which of them it holds."""
        ...


class InstallBinding:
    """The binding of one operator process."""

    def __init__(self, client: ApiClient, book: InstallBook, install: str, namespaces: Sequence[str]) -> None:
        """``namespaces``: those that are served; empty: all."""
        self._client = client
        self._book = book
        self._install = install
        self._namespaces = tuple(namespaces)
        self._cluster = ""
        self._told = False

    async def bind(self) -> None:
        """Bind what is served. Raises :class:`ForeignInstallError`, and what API server and ledger raise."""
        # It does not change; asked again only while the right is missing. The lead is tried for again and again.
        self._cluster = self._cluster or await self._find_cluster()
        if not self._cluster:
            return
        other = await self._book.bind_install(self._cluster, self._namespaces)
        if other is not None:
            raise ForeignInstallError(self._describe(*other))

    async def _find_cluster(self) -> str:
        try:
            found = await self._client.request("GET", _CLUSTER_NAMESPACE)
        except (ForbiddenError, GoneError) as error:
            if not self._told:
                self._told = True
                remedy = (
                    "grant get on the namespace kube-system, so that no second install serves the same runs unnoticed"
                )
                _log.warning("install_not_bound", cause=str(error), remedy=remedy)
            return ""
        meta = found.get("metadata")
        return str(meta.get("uid") or "") if isinstance(meta, dict) else ""

    def _describe(self, other: str, namespace: str) -> str:
        held = "all namespaces" if namespace == "*" else f"namespace {namespace}"
        return (
            f"install {other} serves {held} of this cluster with this ledger already, and {self._install} would decide "
            f"about the same runs: start it with --install {other}, or with other namespaces, or, once {other} is gone "
            f"for good, free its place with: redis-cli HDEL {INSTALLS_KEY} '{self._cluster} {namespace}'"
        )
