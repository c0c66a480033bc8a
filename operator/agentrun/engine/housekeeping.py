"""Compares now and then what exists with what is known, and deletes what has been kept long enough.

The watches tell of everything in good time, unless the operator was away or a watch lost something: runs that were
deleted meanwhile are cancelled in the ledger, runs that were missed are taken in, children without a run are deleted,
claims that died after their run's end are wound up. Called by the scheduler, under the lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Protocol

import structlog

from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.run import AgentRun
from agentrun.decisions.retention import EndedRun, find_expired_runs, find_runs_past_retention
from agentrun.engine.cluster_port import ClusterSurvey, ClusterUnavailableError, ConflictError, GoneError, ObjectSight
from agentrun.engine.run_key import RunKey, run_of
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.services import EngineServices
from agentrun.ledger.port import LedgerUnavailableError, OpenRun

_LOOKS_PER_SWEEP = 60
_log = structlog.get_logger("agentrun.engine")


class LiveRuns(Protocol):
    """The runs in memory."""

    def __iter__(self) -> Iterator[RunMemory]:
        """Give every one."""
        ...

    def find(self, key: RunKey) -> RunMemory | None:
        """Return one."""
        ...


class RunWatcher(Protocol):
    """Takes in what was missed."""

    def see_run(self, run: AgentRun) -> None:
        """Take a run in that no watch has told of, or not in this version."""
        ...

    def lose_run(self, key: RunKey) -> None:
        """Note that a run does not exist any more."""
        ...


class Housekeeping:
    """Sweeps once every ``sweep_every``; what it did not get done it does the next time."""

    def __init__(
        self, services: EngineServices, live: LiveRuns, ended: Mapping[RunKey, EndedRun], watcher: RunWatcher
    ) -> None:
        self._services = services
        self._live = live
        self._ended = ended
        self._watcher = watcher
        self._unknown: set[str] = set()
        self._judged: set[str] = set()

    async def run(self) -> None:
        """Sweep until cancelled; between two sweeps delete the runs whose own time has come."""
        every = self._services.settings.sweep_every
        if every is None:
            return
        looks = 0
        while True:
            await asyncio.sleep((every / _LOOKS_PER_SWEEP).total_seconds())
            looks += 1
            try:
                await self.delete_expired_runs()
                # The first one comes early: what was deleted while nobody looked is to hear of it soon.
                if looks % _LOOKS_PER_SWEEP == 2:
                    await self.sweep()
            except (ClusterUnavailableError, LedgerUnavailableError, ConflictError, GoneError) as error:
                _log.warning("sweep_interrupted", cause=str(error))

    async def delete_expired_runs(self) -> None:
        """Delete the runs whose ``ttlAfterFinished`` has passed, as they were seen last."""
        now = self._services.now()
        for run in find_expired_runs(self._ended.values(), now):
            meta = ObjectMeta(
                name=run.name, namespace=run.namespace, uid=run.uid, resource_version=run.resource_version
            )
            await self._services.cluster.delete(ObjectSight("AgentRun", meta), unchanged=True)

    async def sweep(self) -> None:
        """Compare once."""
        services = self._services
        open_runs = {
            namespace: await services.ledger.find_open_runs(namespace)
            for namespace in await services.ledger.find_namespaces()
            if services.cluster.serves(namespace)
        }
        known = {run.key: run.run.metadata.resource_version for run in self._live}
        known |= {key: run.resource_version for key, run in self._ended.items()}
        survey = await services.cluster.survey()
        existing = {(meta.namespace, meta.uid) for meta in survey.runs}
        for key in known.keys() - existing:
            self._watcher.lose_run(key)
        await self._take_in_missed(survey, known)
        for namespace, runs in open_runs.items():
            for run in runs:
                await self._wind_up(namespace, run, existing)
        await self._delete_children(survey, existing)
        await self._delete_strays(survey)

    async def _take_in_missed(self, survey: ClusterSurvey, known: Mapping[RunKey, str]) -> None:
        missed = {
            meta.uid: meta for meta in survey.runs if known.get((meta.namespace, meta.uid), "") != meta.resource_version
        }
        # Most are on their way: only what two sweeps in a row found in the same state was missed.
        for uid, meta in missed.items():
            if f"{uid}/{meta.resource_version}" not in self._unknown:
                continue
            run = await self._services.cluster.fetch_run(meta.namespace, meta.name)
            if run is not None and run.metadata.uid == uid:
                _log.warning("run_missed", run=meta.name, namespace=meta.namespace)
                self._watcher.see_run(run)
        self._unknown = {f"{uid}/{meta.resource_version}" for uid, meta in missed.items()}

    async def _wind_up(self, namespace: str, run: OpenRun, existing: set[RunKey]) -> None:
        key = (namespace, run.uid)
        if self._live.find(key) is not None:
            return
        services = self._services
        if run.ended:
            await services.ledger.finish_run(namespace, run.uid, None, services.settings.finished_keep_ms)
        elif key not in existing:
            _log.info("deleted_run_closed", run=run.name, namespace=namespace, uid=run.uid)
            await services.abandon_run(namespace, run.uid)

    async def _delete_children(self, survey: ClusterSurvey, existing: set[RunKey]) -> None:
        settings = self._services.settings
        past = find_runs_past_retention(
            self._ended.values(), self._services.now(), settings.nodes_kept, settings.runs_kept_with_nodes
        )
        for child in survey.children:
            owner = run_of(child.metadata)
            # A session's Lease ends with its run; it is still there where giving it back failed.
            spent = owner in (self._ended if child.kind == "Lease" else past)
            if child.metadata.deletion_timestamp is None and owner[1] and (spent or owner not in existing):
                await self._services.cluster.delete(child)

    async def _delete_strays(self, survey: ClusterSurvey) -> None:
        """Delete nodes that a leader has created after their run's end, having been overtaken: they never began."""
        late: dict[RunKey, set[str]] = {}
        for child in survey.children:
            owner = run_of(child.metadata)
            run, created = self._ended.get(owner), child.metadata.creation_timestamp
            if child.kind == "AgentNode" and run is not None and created is not None and created > run.finished_at:
                late.setdefault(owner, set()).add(child.metadata.uid)
        fresh = {owner: uids for owner, uids in late.items() if uids - self._judged}
        for (namespace, run_uid), uids in fresh.items():
            for node in await self._services.cluster.list_nodes(namespace, run_uid):
                if node.metadata.uid in uids and node.status is None:
                    _log.warning("stray_node_deleted", node=node.metadata.name, namespace=namespace)
                    await self._services.cluster.delete(node, unchanged=True)
        # Clocks differ: what was created late by another clock alone is asked about once.
        self._judged = set().union(*late.values())
