"""Keeps the pools: looks at tools, queues and pods again and again, has it decided what follows, and has it written.

One per operator, at work while it leads. What keeps a pool from its workers is told to the scheduler, so that waiting
nodes show it, and to the metrics. It asks the API server for no run and no node, and writes nothing while nothing has
changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, assert_never

import structlog

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import ObjectRefusedError
from agentrun.controller.pools.held_back import AGAIN_SOON, AccountNotAllowedError
from agentrun.controller.pools.hindrance import Hindrance
from agentrun.controller.pools.labelled_objects import LabelledObjects, find_name, find_uid, find_watch
from agentrun.controller.pools.our_objects import ForeignObjectError
from agentrun.controller.pools.pool_manifests import (
    LedgerAccess,
    PoolManifests,
    build_pool,
    pool_selector,
)
from agentrun.controller.pools.pool_report import PoolReport
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.controller.pools.pool_sights import find_refusal, is_leaving, pool_key_of, read_pod, read_pool
from agentrun.controller.pools.pool_writer import PoolWriter, deployments_path, pods_path
from agentrun.decisions.pools.pod_faults import PodSight, PoolFault, find_pool_fault
from agentrun.decisions.pools.pool_step import (
    CreatePool,
    DeletePool,
    MarkWorker,
    PoolAction,
    PoolDemand,
    PoolFacts,
    PoolMemory,
    ReplacePods,
    ScalePool,
    decide_pool,
)
from agentrun.decisions.pools.pool_wishes import PoolKey, PoolWish, ToolInUse, build_wishes
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError
from agentrun.engine.observer import PoolSurvey

_log = structlog.get_logger("agentrun.controller")
_LOOK_EVERY = timedelta(seconds=1)
_TOOLS_EVERY = timedelta(seconds=3)
_TEND_EVERY = timedelta(minutes=10)
"""How often it is looked whether everything beside the pools is still there."""
_STARTING = "the operator starts its workers"


class PoolBoard(Protocol):
    """What the scheduler knows of pools, and is told of them."""

    def survey_pools(self) -> PoolSurvey:
        """Return what workers have to do."""
        ...

    def find_tools_in_use(self) -> Sequence[ToolInUse]:
        """Return every definition that may still be called."""
        ...

    def note_pools(self, notes: Mapping[PoolKey, str]) -> None:
        """Take in what is known about pools."""
        ...


class AccessKeeper(Protocol):
    """Gives workers their way to the ledger."""

    async def ensure(self, namespace: str) -> LedgerAccess:
        """Have a namespace's credentials."""
        ...


@dataclass(slots=True)
class _Pool:
    """What is remembered of one pool."""

    memory: PoolMemory = field(default_factory=PoolMemory)
    built: tuple[PoolWish, LedgerAccess, PoolManifests] | None = None
    hindrance: Hindrance = field(default_factory=Hindrance)


class PoolKeeper:
    """The pools of one install."""

    def __init__(
        self,
        client: ApiClient,
        board: PoolBoard,
        access: AccessKeeper,
        settings: PoolSettings,
        clock: Clock,
        namespaces: Sequence[str | None],
        show: Callable[[Mapping[PoolKey, PoolReport]], None] = lambda reports: None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        """``namespaces``: those that are served, None for all; ``may_begin``: everything that exists has been seen."""
        self._client = client
        self._board = board
        self._access = access
        self._settings = settings
        self._clock = clock
        self._namespaces = tuple(namespaces)
        self._show = show
        self._may_begin = may_begin
        self._writer = PoolWriter(client, "v1")
        self._rules = settings.rules
        self._woken = asyncio.Event()
        self._pods_changed = True
        self._pods: dict[PoolKey, list[PodSight]] = {}
        selector = pool_selector(settings.install)
        self._deployments = [
            LabelledObjects(client, deployments_path(space), selector, self._woken.set) for space in self._namespaces
        ]
        self._pod_watches = [
            LabelledObjects(client, pods_path(space), selector, self._note_pods) for space in self._namespaces
        ]
        self._pools: dict[PoolKey, _Pool] = {}
        self._wishes: dict[PoolKey, PoolWish] = {}
        self._tools_at: datetime | None = None
        self._tended_at: datetime | None = None

    async def run(self) -> None:
        """Keep the pools until cancelled."""
        await self._learn_version()
        watches = [
            asyncio.create_task(watch.run(), name="pool watch") for watch in (*self._deployments, *self._pod_watches)
        ]
        looking = asyncio.create_task(self._keep_looking(), name="pool look")
        try:
            await asyncio.wait((looking, *watches), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(looking, *watches)
        for task in (looking, *watches):
            if not task.cancelled():
                task.result()

    async def _learn_version(self) -> None:
        while True:
            try:
                answer = await self._client.request("GET", "/version")
            except (ClusterUnavailableError, GoneError) as error:
                _log.info("server_version_unknown", cause=str(error))
                await asyncio.sleep(AGAIN_SOON.total_seconds())
                continue
            minor = read_minor(answer)
            self._writer = PoolWriter(self._client, "v1" if minor >= _BUDGETS_SINCE else "v1beta1")
            if minor < _MARKS_SINCE:
                self._rules = replace(self._rules, can_mark=False)
            return

    async def _keep_looking(self) -> None:
        while True:
            self._woken.clear()
            if self._may_begin():
                await self._look()
            try:
                async with asyncio.timeout(_LOOK_EVERY.total_seconds()):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _note_pods(self) -> None:
        self._pods_changed = True
        self._woken.set()

    # --- one look

    async def _look(self) -> None:
        now = self._clock.now()
        survey = self._board.survey_pools()
        self._renew_wishes(survey, now)
        refused = next((watch.refused for watch in (*self._deployments, *self._pod_watches) if watch.refused), None)
        if refused is not None:
            fault = PoolFault("Forbidden", str(refused))
            self._tell(dict.fromkeys(self._wishes, PoolReport(0, 0, fault)), now)
            return
        if not survey.complete or not all(watch.complete for watch in (*self._deployments, *self._pod_watches)):
            return
        self._sort_pods()
        existing = self._find_existing()
        reports: dict[PoolKey, PoolReport] = {}
        for key in sorted(self._wishes.keys() | existing.keys()):
            found = existing.get(key)
            pool = self._pools.setdefault(key, _Pool())
            if (found is None or not is_leaving(found)) and pool.hindrance.is_over(now):
                found = await self._step(key, pool, found, survey, now)
            reports[key] = self._report(key, pool, found, now)
        for key in self._pools.keys() - reports.keys():
            del self._pools[key]
        await self._tend(existing, now)
        self._tell(reports, now)

    def _renew_wishes(self, survey: PoolSurvey, now: datetime) -> None:
        unknown = any(key not in self._wishes for key in survey.demand)
        if self._tools_at is None or unknown or now - self._tools_at >= _TOOLS_EVERY:
            self._wishes = build_wishes(self._board.find_tools_in_use())
            self._tools_at = now

    def _sort_pods(self) -> None:
        if not self._pods_changed:
            return
        self._pods_changed = False
        self._pods = {}
        for watch in self._pod_watches:
            for raw in watch.found.values():
                self._pods.setdefault(pool_key_of(raw), []).append(read_pod(raw))

    def _find_existing(self) -> dict[PoolKey, JsonObject]:
        return {pool_key_of(raw): raw for watch in self._deployments for raw in watch.found.values()}

    async def _step(
        self, key: PoolKey, pool: _Pool, found: JsonObject | None, survey: PoolSurvey, now: datetime
    ) -> JsonObject | None:
        """Take a pool's next step; return its Deployment as it stands then."""
        try:
            wish = self._wishes.get(key)
            manifests = await self._build(key, pool, wish)
            step = decide_pool(
                PoolFacts(
                    now=now,
                    wish=wish,
                    digest=manifests.digest if manifests else "",
                    sight=read_pool(found, self._pods.get(key, ())) if found is not None else None,
                    demand=survey.demand.get(key, PoolDemand()),
                    busy=survey.busy.get(key.namespace, frozenset()),
                    memory=pool.memory,
                    rules=self._rules,
                )
            )
            pool.memory = step.memory
            for action in step.actions:
                found = await self._apply(key, action, manifests, found)
        except Exception as error:  # noqa: BLE001 - one pool's trouble keeps no other waiting; a bug is logged as one
            pool.hindrance.note(error, now, "pool", namespace=key.namespace, pool=key.queue)
        else:
            pool.hindrance.end("pool", namespace=key.namespace, pool=key.queue)
        return found

    async def _build(self, key: PoolKey, pool: _Pool, wish: PoolWish | None) -> PoolManifests | None:
        if wish is None:
            return None
        if wish.account is not None and wish.account not in self._settings.accounts:
            raise AccountNotAllowedError(wish.account)
        access = await self._access.ensure(key.namespace)
        if pool.built is None or pool.built[:2] != (wish, access):
            pool.built = wish, access, build_pool(key, wish, self._settings, access, self._writer.budget_version)
        return pool.built[2]

    async def _apply(
        self, key: PoolKey, action: PoolAction, manifests: PoolManifests | None, found: JsonObject | None
    ) -> JsonObject | None:
        name = manifests.name if manifests else find_name(found or {})[1]
        said = {"namespace": key.namespace, "pool": key.queue, "deployment": name}
        stored: JsonObject | None = found
        match action:
            case CreatePool(replicas) if manifests is not None:
                stored = await self._writer.create(key, manifests, replicas)
                _log.info("pool_created", **said, workers=replicas)
            case ReplacePods() if manifests is not None and found is not None:
                stored = await self._writer.replace(key, manifests, found)
                _log.info("pool_changed", **said)
            case ScalePool(replicas):
                stored = await self._writer.scale(key, name, replicas)
                _log.info("pool_scaled", **said, workers=replicas)
            case MarkWorker(worker, keep):
                pod = await self._writer.mark(key, worker, keep=keep)
                if pod is not None:
                    find_watch(self._pod_watches, self._namespaces, key.namespace).note(pod)
                    self._pods_changed = True
            case DeletePool() if found is not None:
                await self._writer.delete(key, name, find_uid(found))
                find_watch(self._deployments, self._namespaces, key.namespace).forget((key.namespace, name))
                stored = None
                _log.info("pool_deleted", **said)
            case CreatePool() | ReplacePods() | DeletePool():
                raise AssertionError(f"{action} without what it is about")
            case _:
                assert_never(action)
        if stored is not None and stored is not found:
            find_watch(self._deployments, self._namespaces, key.namespace).note(stored)
        return stored

    # --- what is said

    def _report(self, key: PoolKey, pool: _Pool, found: JsonObject | None, now: datetime) -> PoolReport:
        pods = [pod for pod in self._pods.get(key, ()) if not pod.leaving]
        ready = sum(pod.ready for pod in pods)
        wished = read_pool(found, ()).replicas if found is not None else 0
        fault = pool.hindrance.fault
        if fault is None and found is not None and wished and not ready:
            fault = find_refusal(found) or find_pool_fault(pods, now)
        return PoolReport(wished, ready, fault)

    def _tell(self, reports: Mapping[PoolKey, PoolReport], now: datetime) -> None:
        self._show(reports)
        self._board.note_pools(
            {key: report.fault.message if report.fault else _STARTING for key, report in reports.items()}
        )

    # --- what stands beside

    async def _tend(self, existing: Mapping[PoolKey, JsonObject], now: datetime) -> None:
        """Have what stands beside each pool, and nothing beside pools that are gone."""
        if self._tended_at is not None and now - self._tended_at < _TEND_EVERY:
            return
        self._tended_at = now
        try:
            for namespace in self._namespaces:
                await self._tend_one(namespace, existing)
        except (
            ClusterUnavailableError,
            ConflictError,
            GoneError,
            ForeignObjectError,
            ObjectRefusedError,
        ) as error:
            _log.info("pools_not_tended", cause=str(error))

    async def _tend_one(self, namespace: str | None, existing: Mapping[PoolKey, JsonObject]) -> None:
        policies, budgets = await self._writer.list_beside(namespace, pool_selector(self._settings.install))
        beside = [{find_name(raw) for raw in found} for found in (policies, budgets)]
        for key, pool in self._pools.items():
            if pool.built is None or key not in existing or namespace not in (None, key.namespace):
                continue
            manifests = pool.built[2]
            complete = [(key.namespace, manifests.name) in found for found in beside]
            if not complete[1] or (manifests.policy is not None and not complete[0]):
                _log.warning("pool_completed", namespace=key.namespace, pool=key.queue)
                await self._writer.write_beside(key, manifests)
        pools = {find_name(raw) for raw in existing.values()} | {
            (key.namespace, pool.built[2].name) for key, pool in self._pools.items() if pool.built
        }
        for space, name in sorted(set().union(*beside) - pools):
            await self._writer.delete_beside(space, name)


_BUDGETS_SINCE, _MARKS_SINCE = 21, 22
"""Minor versions of Kubernetes: policy/v1, and pods' deletion costs."""


def read_minor(version: JsonObject) -> int:
    """Return the minor version of an API server; some add a plus sign to it."""
    digits = "".join(sign for sign in str(version.get("minor") or "") if sign.isdigit())
    return int(digits) if digits else 0


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
