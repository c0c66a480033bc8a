"""A list and a watch of one kind by label: what exists of it, as it was seen last.

Used by the keepers of pools and Jobs for these and their pods. Keeps the objects in memory without what nobody reads;
decides nothing, and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import WatchExpiredError
from agentrun.controller.watch_events import read_watch_line, watch_params
from agentrun.engine.cluster_port import ClusterUnavailableError, GoneError, HeldBackError

_log = structlog.get_logger("agentrun.controller")
_PAUSE = timedelta(seconds=1)
_REFUSED_PAUSE = timedelta(seconds=15)
"""A right that is missing is not given within a second."""
ObjectName = tuple[str, str]
"""(namespace, name)."""


class LabelledObjects:
    """The objects of one kind that bear certain labels, in one namespace or in all."""

    def __init__(self, client: ApiClient, path: str, selector: str, changed: Callable[[], None]) -> None:
        """``path``: of the collection; ``changed`` is told of each change."""
        self._client = client
        self._path = path
        self._selector = selector
        self._changed = changed
        self._version = ""
        self._found: dict[ObjectName, JsonObject] = {}
        self.complete = False
        """Whether a whole list has been read."""
        self.refused: HeldBackError | None = None
        """Why the API server does not let it look."""

    @property
    def found(self) -> dict[ObjectName, JsonObject]:
        """Return what exists. Not to be changed."""
        return self._found

    def note(self, stored: JsonObject) -> None:
        """Take in what the API server has answered to a write: the watch tells of it later."""
        self._put(stored)

    def forget(self, name: ObjectName) -> None:
        """Take in that an object was deleted."""
        self._found.pop(name, None)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except WatchExpiredError:
                self._version = ""
            except HeldBackError as error:
                self._version = ""
                if self.refused is None:
                    _log.warning("objects_not_observed", path=self._path, cause=str(error))
                self.refused = error
                self._changed()
                await asyncio.sleep(_REFUSED_PAUSE.total_seconds())
            except (ClusterUnavailableError, GoneError) as error:
                self._version = ""
                _log.info("object_watch_interrupted", path=self._path, cause=str(error))
                await asyncio.sleep(_PAUSE.total_seconds())

    async def _list(self) -> None:
        items, version = await self._client.list_all(self._path, {"labelSelector": self._selector})
        self._found = {}
        for item in items:
            self._put(item)
        self._version, self.complete, self.refused = version, True, None
        self._changed()

    async def _follow(self) -> None:
        asked = {"labelSelector": self._selector, **watch_params(self._version)}
        async for line in self._client.watch_lines(self._path, asked):
            self._read(line)

    def _read(self, line: bytes) -> None:
        event = read_watch_line(line, self._path)
        if event is None:
            return
        self._version = event.version or self._version
        match event.kind:
            case "ADDED" | "MODIFIED":
                self._put(event.found)
            case "DELETED":
                self.forget(find_name(event.found))
            case _:
                return
        self._changed()

    def _put(self, found: JsonObject) -> None:
        name = find_name(found)
        known = self._found.get(name)
        if known is not None and _is_older(found, known):
            return
        meta = found.get("metadata")
        if isinstance(meta, dict):
            meta.pop("managedFields", None)
        self._found[name] = found


def find_watch(watches: Sequence[LabelledObjects], served: Sequence[str | None], namespace: str) -> LabelledObjects:
    """Return, of watches that stand in the order of the ``served`` namespaces (None: all), that of one of them."""
    return watches[served.index(namespace if namespace in served else None)]


def _meta_text(found: JsonObject, field: str) -> str:
    meta = found.get("metadata")
    return str(meta.get(field) or "") if isinstance(meta, dict) else ""


def find_name(found: JsonObject) -> ObjectName:
    """Return an object's namespace and name."""
    return _meta_text(found, "namespace"), _meta_text(found, "name")


def _is_older(found: JsonObject, known: JsonObject) -> bool:
    """Tell whether a watch is behind what a write was answered: versions grow, wherever they are numbers."""
    if _meta_text(found, "uid") != _meta_text(known, "uid"):
        return False
    new, old = _meta_text(found, "resourceVersion"), _meta_text(known, "resourceVersion")
    return new.isdigit() and old.isdigit() and int(new) < int(old)


def find_uid(found: JsonObject) -> str:
    """Return an object's uid."""
    return _meta_text(found, "uid")
