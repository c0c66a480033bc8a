"""Watches for deleted AgentNodes: of all their events the only one that the engine has to hear of.

The engine wrote everything else about them itself. A line that tells of a change is put aside unread, so that the
echo of a status write costs next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import structlog
from pydantic import ValidationError

from agentrun.contract.node import AgentNode
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import WatchExpiredError
from agentrun.controller.api_objects import PLURALS, collection_path, read_object
from agentrun.controller.watch_events import read_watch_line, watch_params
from agentrun.engine.cluster_port import ChangeKind, ClusterChange, ClusterUnavailableError, GoneError

_log = structlog.get_logger("agentrun.controller")
_PAUSE = timedelta(seconds=1)
_SKIPPED = (b'{"type":"ADDED"', b'{"type":"MODIFIED"')


class NodeDeletions:
    """One watch over the AgentNodes of one namespace, or of all (None)."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str | None,
        tell: Callable[[ClusterChange], None],
        heard: Callable[[str], None] = lambda resource: None,
    ) -> None:
        """``heard`` is told the kind's plural with each line, bookmarks included."""
        self._heard = heard
        self._client = client
        self._path = collection_path("AgentNode", namespace)
        self._tell = tell
        self._version = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._begin()
                await self._follow()
            except WatchExpiredError:
                self._version = ""
            except (ClusterUnavailableError, GoneError) as error:
                # A server that was restored from a copy counts on from an older version: the known one may be of a
                # future that never comes.
                self._version = ""
                _log.warning("node_watch_interrupted", cause=str(error))
                await asyncio.sleep(_PAUSE.total_seconds())

    async def _begin(self) -> None:
        # One object is enough: the list's version is what is wanted.
        answer = await self._client.request("GET", self._path, params={"limit": "1"})
        meta = answer.get("metadata")
        self._version = str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""

    async def _follow(self) -> None:
        async for line in self._client.watch_lines(self._path, watch_params(self._version)):
            self._heard(PLURALS["AgentNode"])
            if not line.startswith(_SKIPPED):
                self._read(line)

    def _read(self, line: bytes) -> None:
        event = read_watch_line(line, self._path)
        if event is None:
            return
        self._version = event.version or self._version
        if event.kind == "DELETED":
            try:
                self._tell(ClusterChange(ChangeKind.GONE, read_object(AgentNode, event.found)))
            except ValidationError as error:
                _log.warning("node_unreadable", cause=str(error))
