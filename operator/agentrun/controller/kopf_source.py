"""kopf as the source of events about runs, tools and approvals; it handles nothing and writes nothing.

Every handler turns an event into one observation and returns. kopf's own bookkeeping (annotations, finalizers, events)
is switched off: state moves in the engine alone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import kopf
import structlog
from pydantic import ValidationError

from agentrun.contract.object_meta import API_VERSION
from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_objects import MODELS, PLURALS, read_object
from agentrun.engine.cluster_port import ChangeKind, ClusterChange

_log = structlog.get_logger("agentrun.controller")
_KINDS = ("AgentTool", "AgentRun", "AgentApproval")
Tell = Callable[[ClusterChange], None]
Unreadable = Callable[[str, Mapping[str, Any], ValidationError], Awaitable[None]]
"""Is told of an object that the models refuse: (kind, object, why)."""


class KopfSource:
    """Runs one kopf operator in the present loop until it is stopped."""

    def __init__(
        self,
        access: ApiAccess,
        namespaces: Sequence[str],
        tell: Tell,
        unreadable: Unreadable,
        heard: Callable[[str], None] = lambda resource: None,
    ) -> None:
        """``heard`` is told the plural of the kind with each event."""
        self._heard = heard
        self._access = access
        self._namespaces = namespaces
        self._tell = tell
        self._unreadable = unreadable
        self._stop = asyncio.Event()
        self.ready = asyncio.Event()
        """Set once kopf has started; its watches follow."""

    def stop(self) -> None:
        """Have :meth:`run` end."""
        self._stop.set()

    async def run(self) -> None:
        """Observe until :meth:`stop`. Raises what kopf cannot go on from."""
        _quieten()
        await kopf.operator(
            registry=self._build_registry(),
            settings=build_settings(),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=list(self._namespaces),
            ready_flag=self.ready,
            stop_flag=self._stop,
        )

    def _build_registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        group, version = API_VERSION.split("/")

        @kopf.on.login(registry=registry, id="login")
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return self._access.for_kopf()

        for kind in _KINDS:
            kopf.on.event(group, version, PLURALS[kind], registry=registry, id=kind.lower())(self._handler(kind))
        return registry

    def _handler(self, kind: str) -> Any:
        async def seen(event: Mapping[str, Any], **_: Any) -> None:
            await self._observe(kind, event["type"], event["object"])

        return seen

    async def _observe(self, kind: str, event_type: str | None, raw: Mapping[str, Any]) -> None:
        self._heard(PLURALS[kind])
        try:
            found = read_object(MODELS[kind], dict(raw))  # type: ignore[type-var]
        except ValidationError as error:
            await self._unreadable(kind, raw, error)
            return
        gone = event_type == "DELETED"
        self._tell(ClusterChange(ChangeKind.GONE if gone else ChangeKind.SEEN, found))


class _Backoffs:
    """An endless series of pauses in seconds: an API server that is away restarts nothing."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.1, 0.5, 1, 2, 5), itertools.repeat(10.0))


def build_settings() -> kopf.OperatorSettings:
    """Return settings under which kopf observes and does nothing else."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.posting.level = 100
    settings.persistence.consistency_timeout = 0
    settings.queueing.worker_limit = None
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.networking.error_backoffs = _Backoffs()
    settings.networking.enforce_retry_after = True
    settings.process.ultimate_exiting_timeout = 20
    return settings


def _quieten() -> None:
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
