"""One round from its namespace to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from agentrun.contract.run import TERMINAL_RUN_PHASES
from agentrun.ledger.port import LedgerUnavailableError
from chaos.api_server import GROUP, MERGE, ApiServer, RefusedError
from chaos.history import History
from chaos.invariants import RoundEnd, find_violations
from chaos.ledger_view import find_remains
from chaos.observer import Observer
from chaos.people import People
from chaos.plans import Change, Meddling, RoundPlan
from chaos.processes import Site
from chaos.tools.chaos_tools import read_effects
from chaos.trees import build_tool_manifests, describe_run
from support.control_plane import ControlPlane

START_SECONDS = 60.0
END_SECONDS = 90.0
"""How long runs may take to end once everything is alive again."""
REMAINS_SECONDS = 30.0
"""How long leases in the ledger may outlive the runs."""
_LOOK_SECONDS = 0.1
_LOG_TAIL = 5000
_LEASES = "/apis/coordination.k8s.io/v1"


@dataclass(slots=True)
class RoundResult:
    """What became of a round."""

    seed: int
    strikes: list[str]
    seconds: float = 0.0
    outcome: dict[str, str] = field(default_factory=dict)
    """The runs' phases by name."""
    violations: list[str] = field(default_factory=list)
    changes: int = 0
    """Changes of statuses that were seen and judged."""
    effects: int = 0
    report: str = ""
    """For people, when something did not hold."""

    @property
    def is_right(self) -> bool:
        """Whether everything held."""
        return not self.violations


async def play_round(plan: RoundPlan, control_plane: ControlPlane, api: ApiServer, folder: Path) -> RoundResult:
    """Play one round and judge it; what goes wrong is in the result, never raised."""
    began = time.monotonic()
    result = RoundResult(plan.seed, [str(strike) for strike in plan.strikes])
    history = History()
    site = Site(plan, control_plane, folder, history)
    game = _Round(plan, site, api, history)
    try:
        with site.ledger:
            await game.play()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other rounds are to be played
        game.violations.append(f"the round itself failed: {error!r}")
        history.note("".join(traceback.format_exception(error)))
    result.seconds = time.monotonic() - began
    result.violations = game.violations
    result.outcome = {name: _phase(run) for name, run in sorted(game.observer.runs.items())}
    result.changes = game.observer.changes_total
    result.effects = len(read_effects(site.effects))
    if result.violations:
        result.report = game.describe()
    return result


class _Round:
    def __init__(self, plan: RoundPlan, site: Site, api: ApiServer, history: History) -> None:
        self._plan, self._site, self._api, self._history = plan, site, api, history
        self.observer = Observer(api, site.namespace)
        self.violations: list[str] = []
        self._deleted: set[str] = set()
        self._cancelled: set[str] = set()
        self._run_uids: set[str] = set()

    async def play(self) -> None:
        """Set up, strike, wait, judge, and end everything."""
        space = self._site.namespace
        await self._create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        people = People(self._api, self._site, self._plan, self._history)
        at_work = [
            asyncio.create_task(part, name=name)
            for name, part in (("site", self._site.run()), ("observer", self.observer.run()), ("people", people.run()))
        ]
        try:
            await self._play_with(at_work)
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    await self._api.insist("DELETE", f"/api/v1/namespaces/{space}")

    async def _play_with(self, at_work: list[asyncio.Task[None]]) -> None:
        for manifest in build_tool_manifests():
            await self._create(self._path("agenttools"), manifest)
        if not await self._until(self._somebody_leads, START_SECONDS):
            self.violations.append(f"no operator led within {START_SECONDS:.0f} s")
            return
        self._history.begin()
        for run in self._plan.runs:
            stored = await self._create(self._path("agentruns"), run)
            self._run_uids.add(stored["metadata"]["uid"])
        await asyncio.gather(
            *(self._at(strike.at, self._site.strike(strike)) for strike in self._plan.strikes),
            *(self._at(change.at, self._meddle(change)) for change in self._plan.meddling),
        )
        for task in at_work:
            if task.done():
                task.result()
        if not await self._until(self._all_have_ended, END_SECONDS):
            self.violations.append(f"not everything ended within {END_SECONDS:.0f} s of the last strike")
        self._history.note("the runs have ended")
        await self._judge()

    async def _judge(self) -> None:
        remains = ["the ledger was not looked at"]

        async def is_clean() -> bool:
            nonlocal remains
            try:
                remains = await find_remains(self._site.ledger.url, self._site.namespace, self._run_uids)
            except (RedisError, LedgerUnavailableError) as error:
                remains = [f"the ledger does not answer: {error}"]
            return not remains

        if not await self._until(is_clean, REMAINS_SECONDS, pause=0.5):
            self.violations += remains
        self._history.note("the ledger was looked at")
        lists = {}
        for plural in ("agentruns", "agentnodes", "agentapprovals"):
            answer = await self._api.insist("GET", self._path(plural))
            lists[plural] = answer["items"]
        end = RoundEnd(
            runs=lists["agentruns"],
            nodes=lists["agentnodes"],
            approvals=lists["agentapprovals"],
            effects=read_effects(self._site.effects),
            applied=frozenset(run["metadata"]["name"] for run in self._plan.runs),
            deleted=frozenset(self._deleted),
            cancelled=frozenset(self._cancelled),
        )
        self.violations += find_violations(end)
        self.violations += self.observer.violations
        for name in self._site.daemon_names:
            if "turn_failed" in self._site.read_log(name, 10**7):
                self.violations.append(f"a turn of {name} failed for a cause that does not pass")

    # --- what is done

    async def _create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            stored = await self._api.insist("POST", path, body)
        except RefusedError as error:
            if error.status != 409:
                raise
            # Stored, and the reply was lost.
            stored = await self._api.insist("GET", f"{path}/{body['metadata']['name']}")
        return dict(stored)

    async def _at(self, seconds: float, act: Awaitable[None]) -> None:
        await asyncio.sleep(max(0.0, seconds - self._history.now))
        await act

    async def _meddle(self, meddling: Meddling) -> None:
        path = f"{self._path('agentruns')}/{meddling.run}"
        self._history.note(f"{meddling.change} {meddling.run}")
        match meddling.change:
            case Change.DELETE:
                self._deleted.add(meddling.run)
                await self._api.insist("DELETE", path, {"propagationPolicy": "Background"})
            case Change.CANCEL:
                self._cancelled.add(meddling.run)
                await self._api.insist("PATCH", path, {"spec": {"cancel": True}}, MERGE)
            case Change.SUSPEND:
                await self._api.insist("PATCH", path, {"spec": {"suspend": True}}, MERGE)
                await asyncio.sleep(meddling.seconds)
                self._history.note(f"resume {meddling.run}")
                await self._api.insist("PATCH", path, {"spec": {"suspend": False}}, MERGE)

    # --- what is waited for

    async def _until(self, holds: Callable[[], Awaitable[bool]], within: float, pause: float = _LOOK_SECONDS) -> bool:
        deadline = time.monotonic() + within
        while not await holds():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(pause)
        return True

    async def _somebody_leads(self) -> bool:
        space = self._site.namespace
        path = f"{_LEASES}/namespaces/{space}/leases/{space}-operator"
        try:
            lease = await self._api.insist("GET", path)
        except RefusedError:
            return False
        return bool(lease["spec"].get("holderIdentity"))

    async def _all_have_ended(self) -> bool:
        runs = self.observer.runs
        if not {run["metadata"]["name"] for run in self._plan.runs} - self._deleted <= runs.keys():
            return False
        return all(_phase(run) in TERMINAL_RUN_PHASES for name, run in runs.items() if name not in self._deleted)

    # --- what is told

    def describe(self) -> str:
        """Return the history of the round, its trees, the last statuses and the ends of the logs."""
        parts = ["history:", str(self._history)]
        for run in self._plan.runs:
            parts.append(f"run {run['metadata']['name']}: {describe_run(run)}")
        parts.append("last statuses:")
        for name, run in sorted(self.observer.runs.items()):
            parts.append(f"  {name}: {_brief(run)}")
        for node in sorted(
            self.observer.nodes.values(), key=lambda one: (one["spec"]["run"]["name"], one["spec"]["path"])
        ):
            parts.append(f"  {node['spec']['run']['name']}/{node['spec']['path']}: {_brief(node)}")
            parts += [
                f"      {move['at']} {move['fromPhase']} -> {move['toPhase']} {move['reason']}"
                for move in node.get("status", {}).get("timeline", [])
            ]
        parts.append("effects:")
        parts += [f"  {json.dumps(effect)}" for effect in read_effects(self._site.effects)]
        for name in self._site.daemon_names:
            parts.append(f"end of {name}'s log:\n{self._site.read_log(name, _LOG_TAIL)}")
        return "\n".join(parts)

    def _path(self, plural: str) -> str:
        return f"{GROUP}/namespaces/{self._site.namespace}/{plural}"


def _phase(run: dict[str, Any]) -> str:
    return str(run.get("status", {}).get("phase", ""))


def _brief(found: dict[str, Any]) -> str:
    shown = (
        "phase",
        "reason",
        "message",
        "attempt",
        "seq",
        "epoch",
        "waitingFor",
        "inbox",
        "counts",
        "dueAt",
        "deadline",
    )
    status = found.get("status", {})
    return json.dumps({name: status[name] for name in shown if name in status})
