"""kopf as the source of events about runs, tools and approvals; it handles nothing and writes nothing.

Every handler turns an event into one observation and returns. kopf's own bookkeeping (annotations, finalizers, events)
is switched off: state moves in the engine alone. kopf has a thread and a loop of its own: it ends at an answer that it
cannot read, and when it ends it cancels whatever it finds in its loop. Then it is begun anew, and tells of everything
again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import kopf
import structlog

# What kopf watches is shown by no public name; the argument that takes it is public.
from kopf._cogs.structs.references import Insights
from kopf._core.engines.peering import Identity
from pydantic import ValidationError

from agentrun.contract.object_meta import API_VERSION
from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_objects import MODELS, PLURALS, read_object
from agentrun.engine.cluster_port import ChangeKind, ClusterChange

_log = structlog.get_logger("agentrun.controller")
WATCHED_KINDS = ("AgentTool", "AgentRun", "AgentApproval")
_PAUSE = timedelta(seconds=1)
_Observe = Callable[[str, str | None, Mapping[str, Any]], None]
"""Takes (kind, event type, object)."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of what is observed, all in the loop that runs the source."""

    tell: Callable[[ClusterChange], None]
    """An object was seen, or is gone."""
    unreadable: Callable[[str, Mapping[str, Any], ValidationError], Awaitable[None]]
    """The models refuse an object: (kind, object, why)."""
    heard: Callable[[str], None] = lambda resource: None
    """An event came; told the plural of its kind."""


class KopfSource:
    """Runs kopf until it is stopped, and again whenever it ends."""

    def __init__(
        self,
        access: ApiAccess,
        namespaces: Sequence[str],
        listeners: Listeners,
        served: Callable[[], Awaitable[None]],
    ) -> None:
        """``served`` returns once the API server serves our kinds: kopf looks for them once, when it begins."""
        self._access = access
        self._namespaces = namespaces
        self._listeners = listeners
        self._served = served
        self._tasks: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Observe until cancelled."""
        _quieten()
        while True:
            await self._served()
            session = _Session(self._access, self._namespaces, self._hand_over(asyncio.get_running_loop()))
            try:
                cause = await session.run()
            finally:
                session.stop()
            _log.warning("watches_begin_anew", cause=cause)
            await asyncio.sleep(_PAUSE.total_seconds())

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> _Observe:
        def observe(kind: str, event_type: str | None, raw: Mapping[str, Any]) -> None:
            # What comes after the process has closed its loop is nobody's business any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._observe, kind, event_type, raw)

        return observe

    def _observe(self, kind: str, event_type: str | None, raw: Mapping[str, Any]) -> None:
        self._listeners.heard(PLURALS[kind])
        try:
            found = read_object(MODELS[kind], dict(raw))  # type: ignore[type-var]
        except ValidationError as error:
            refusal = asyncio.ensure_future(self._listeners.unreadable(kind, raw, error))
            self._tasks.add(refusal)
            refusal.add_done_callback(self._tasks.discard)
            return
        gone = event_type == "DELETED"
        self._listeners.tell(ClusterChange(ChangeKind.GONE if gone else ChangeKind.SEEN, found))


class _Session:
    """One life of kopf, in a thread of its own."""

    def __init__(self, access: ApiAccess, namespaces: Sequence[str], observe: _Observe) -> None:
        self._access = access
        self._namespaces = namespaces
        self._observe = observe
        # Not one of the threads': kopf would leave a thread behind that waits for it, and the loop waits for that.
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cause = "kopf ended"

    async def run(self) -> str:
        """Live; return why it ended."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def live() -> None:
            try:
                with asyncio.Runner() as runner:
                    self._loop = runner.get_loop()
                    runner.run(self._live())
            except Exception as error:  # noqa: BLE001 - the thread's edge: told to whoever begins it anew
                self._cause = f"{type(error).__name__}: {error}"
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        # A daemon: nothing of it is worth waiting for when the process ends.
        threading.Thread(target=live, name="kopf", daemon=True).start()
        await ended.wait()
        return self._cause

    def stop(self) -> None:
        """Have it end, from another thread than its own."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _live(self) -> None:
        insights = Insights()
        # Begun before kopf, which takes tasks that begin later for its own.
        guarding = asyncio.ensure_future(self._stop_if_deaf(insights))
        try:
            await kopf.operator(
                registry=self._build_registry(),
                settings=build_settings(),
                standalone=True,
                # Told to no peers. Kopf would make one of the user's name, and a pod's user has none.
                identity=Identity("agentrun"),
                clusterwide=not self._namespaces,
                namespaces=list(self._namespaces),
                insights=insights,
                stop_flag=self._stop,
            )
        finally:
            guarding.cancel()

    async def _stop_if_deaf(self, insights: Insights) -> None:
        """Stop kopf if it has not found all kinds: it would never look for them again."""
        await insights.ready_resources.wait()
        found = {resource.plural for resource in insights.watched_resources}
        missing = sorted(PLURALS[kind] for kind in WATCHED_KINDS if PLURALS[kind] not in found)
        if missing:
            self._cause = f"kopf did not find {', '.join(missing)}"
            self._stop.set()

    def _build_registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        group, version = API_VERSION.split("/")

        @kopf.on.login(registry=registry, id="login")
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return self._access.for_kopf()

        for kind in WATCHED_KINDS:
            kopf.on.event(group, version, PLURALS[kind], registry=registry, id=kind.lower())(self._handler(kind))
        return registry

    def _handler(self, kind: str) -> Any:
        async def seen(event: Mapping[str, Any], **_: Any) -> None:
            self._observe(kind, event["type"], event["object"])

        return seen


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
    # It says that it cannot listen to signals in its thread; they are ours.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
