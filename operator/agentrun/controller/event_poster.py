"""Kubernetes Events about what matters to people: a run's new phase, and a question that waits for a human.

Never about single steps, and never in the engine's way: what it is told waits in a bounded queue, is dropped when there
is too much of it, and an equal Event counts up instead of being posted again (API conventions, "Events").
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Literal

import structlog

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.model_base import format_time
from agentrun.contract.node import InboxKind
from agentrun.contract.object_meta import API_VERSION
from agentrun.contract.run import AgentRun, RunPhase
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import NameTakenError, ObjectRefusedError
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError
from agentrun.engine.observer import EngineFact, QuestionAsked, RunPhaseStored, RunWaits

MERGE_PATCH = "application/merge-patch+json"
_WAITING = 1000
_REMEMBERED = 4096
_MESSAGE = 1000
_WARNED = frozenset({RunPhase.FAILED, RunPhase.REJECTED})
_FAILURES = (
    ClusterUnavailableError,
    ConflictError,
    GoneError,
    NameTakenError,
    ObjectRefusedError,
)
_log = structlog.get_logger("agentrun.controller")


@dataclass(frozen=True, slots=True)
class Notice:
    """What one Event says about a run."""

    run: AgentRun
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class EventPoster:
    """An observer of the engine that posts what people want to see in ``kubectl describe``."""

    def __init__(self, client: ApiClient, clock: Clock, reporter: str) -> None:
        """``reporter`` names this process in its Events."""
        self._client = client
        self._clock = clock
        self._reporter = reporter
        self._waiting: deque[Notice] = deque(maxlen=_WAITING)
        self._something = asyncio.Event()
        self._posted: OrderedDict[str, int] = OrderedDict()

    def note(self, happened: EngineFact) -> None:
        """Take in what is worth an Event; the oldest is dropped when too many wait."""
        notice = find_notice(happened)
        if notice is not None:
            self._waiting.append(notice)
            self._something.set()

    async def run(self) -> None:
        """Post until cancelled. An Event that cannot be posted is dropped."""
        while True:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                notice = self._waiting.popleft()
                try:
                    await self._post(notice)
                except _FAILURES as error:
                    _log.debug("event_dropped", run=notice.run.metadata.name, cause=str(error))

    async def _post(self, notice: Notice) -> None:
        meta = notice.run.metadata
        identity = f"{meta.uid}/{notice.type}/{notice.reason}/{notice.message}"
        name = f"{meta.name[:200]}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        now = format_time(self._clock.now())
        path = f"/api/v1/namespaces/{meta.namespace}/events"
        count = self._posted.get(name, 0) + 1
        self._remember(name, count)
        if count > 1:
            changes: JsonObject = {"count": count, "lastTimestamp": _seconds(now)}
            try:
                await self._client.request("PATCH", f"{path}/{name}", changes, content_type=MERGE_PATCH)
            except GoneError:
                # API servers forget Events, after an hour by default: it is told as for the first time.
                self._remember(name, 1)
            else:
                return
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": "AgentRun",
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "type": notice.type,
            "reason": notice.reason,
            "message": notice.message[:_MESSAGE],
            "action": notice.reason,
            "firstTimestamp": _seconds(now),
            "lastTimestamp": _seconds(now),
            "eventTime": now,
            "count": 1,
            "source": {"component": "agentrun-operator"},
            "reportingComponent": "agentrun-operator",
            "reportingInstance": self._reporter[:128],
        }
        try:
            await self._client.request("POST", path, body)
        except NameTakenError:
            # Posted by a former process: what it says is the same.
            return

    def _remember(self, name: str, count: int) -> None:
        self._posted[name] = count
        self._posted.move_to_end(name)
        if len(self._posted) > _REMEMBERED:
            self._posted.popitem(last=False)


def find_notice(happened: EngineFact) -> Notice | None:
    """Return what a fact has to say to people, or None."""
    match happened:
        case RunPhaseStored(run) if run.status is not None:
            status = run.status
            warns = status.phase in _WARNED
            said = f"{status.phase}: {status.message}" if status.message else str(status.phase)
            return Notice(run, "Warning" if warns else "Normal", str(status.reason) or str(status.phase), said)
        case QuestionAsked(run, node, kind, approval, message):
            warns = kind in (InboxKind.QUARANTINE, InboxKind.DEAD)
            said = f"node {node} waits for an answer in AgentApproval {approval}" + (f": {message}" if message else "")
            return Notice(run, "Warning" if warns else "Normal", "WaitingForHuman", said)
        case RunWaits(run, wait):
            nodes = "1 node waits" if wait.nodes == 1 else f"{wait.nodes} nodes wait"
            said = f"{nodes} for {wait.waiting_for} since {_seconds(format_time(wait.since))}"
            return Notice(run, "Warning", "Waiting", f"{said}: {wait.message}" if wait.message else said)
        case _:
            return None


def _seconds(time: str) -> str:
    # firstTimestamp and lastTimestamp are metav1.Time: whole seconds.
    return f"{time[:19]}Z"
