"""A cluster in memory behind the engine's cluster port, with the API server's rules that matter to the engine.

Growing resource versions, optimistic concurrency on status, generations that follow the spec, owner references that are
collected when their owner goes, watches that miss nothing. Beside the port it offers what a person does with kubectl:
apply, change a spec, decide an approval, delete. It validates nothing: objects are the contract's models already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar, cast

from agentrun.contract.approval import AgentApproval, AgentApprovalSpec, Decision
from agentrun.contract.names import RUN_UID_LABEL
from agentrun.contract.node import AgentNode
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, AgentRunSpec
from agentrun.contract.tool import AgentTool
from agentrun.engine.cluster_port import (
    AlreadyExistsError,
    ChangeKind,
    ClusterChange,
    ClusterObject,
    ClusterSurvey,
    ConflictError,
    GoneError,
    ObjectSight,
    RunSight,
)

_Key = tuple[str, str, str]
"""(kind, namespace, name)."""
_Stored = TypeVar("_Stored", AgentTool, AgentRun, AgentNode, AgentApproval)


class MemoryCluster:
    """Objects in a dictionary, and everybody who watches them."""

    def __init__(
        self,
        now: Callable[[], datetime],
        new_uid: Callable[[], str],
        record: Callable[[ClusterChange], None] = lambda change: None,
    ) -> None:
        """``record`` is told of each change before anybody else, and may keep it."""
        self._now = now
        self._new_uid = new_uid
        self._record = record
        self._objects: dict[_Key, ClusterObject] = {}
        self._by_run: dict[tuple[str, str], dict[_Key, None]] = {}
        self._watchers: list[asyncio.Queue[ClusterChange]] = []
        self._version = 0
        self.writes_total = 0
        """Creates, status writes and deletes so far, as an API server would count them."""

    def load(self, objects: Sequence[ClusterObject]) -> None:
        """Hold these objects, as a former life has left them; versions count on from theirs."""
        for found in objects:
            key, meta = _key(found), found.metadata
            self._objects[key] = found
            self._version = max(self._version, int(meta.resource_version or 0))
            run_uid = meta.labels.get(RUN_UID_LABEL)
            if run_uid:
                self._by_run.setdefault((meta.namespace, run_uid), {})[key] = None

    # --- the engine's port

    async def watch(self) -> AsyncIterator[ClusterChange]:
        """Give every existing object once, then every change, until the iterator is closed."""
        changes: asyncio.Queue[ClusterChange] = asyncio.Queue()
        for existing in self._objects.values():
            changes.put_nowait(ClusterChange(ChangeKind.SEEN, existing))
        self._watchers.append(changes)
        try:
            while True:
                yield await changes.get()
        finally:
            self._watchers.remove(changes)

    async def create_node(self, node: AgentNode) -> AgentNode:
        """Create the node without its status."""
        return self._create(node)

    async def create_approval(self, approval: AgentApproval) -> AgentApproval:
        """Create the approval without its status."""
        return self._create(approval)

    async def create_run(self, run: AgentRun) -> AgentRun:
        """Create the run without its status."""
        return self._create(run)

    async def replace_status(self, changed: ClusterObject) -> ClusterObject:
        """Store the status if the resourceVersion is the stored one's."""
        stored = self._objects.get(_key(changed))
        if stored is None or stored.metadata.uid != changed.metadata.uid:
            raise GoneError(f"{changed.kind} {changed.metadata.name} does not exist")
        if stored.metadata.resource_version != changed.metadata.resource_version:
            raise ConflictError(f"{changed.kind} {changed.metadata.name} has changed since it was read")
        return self._store(_copy(stored, status=changed.status))

    async def delete(self, target: ClusterObject | ObjectSight, *, unchanged: bool = False) -> None:
        """Delete the object and what it owns; one that is gone is gone, one that has changed stays."""
        stored = self._objects.get(_key(target))
        if stored is None or (unchanged and stored.metadata.resource_version != target.metadata.resource_version):
            return
        self._delete(target)

    async def find_run(self, namespace: str, name: str) -> RunSight | None:
        """Look at a run of this name."""
        run = await self.fetch_run(namespace, name)
        if run is None:
            return None
        return RunSight(run.metadata.uid, run.status is not None and run.status.phase in TERMINAL_RUN_PHASES)

    async def fetch_run(self, namespace: str, name: str) -> AgentRun | None:
        """Read a run of this name."""
        found = self._objects.get(("AgentRun", namespace, name))
        return found if isinstance(found, AgentRun) else None

    async def survey(self) -> ClusterSurvey:
        """List everything."""
        found = list(self._objects.values())
        children = [ObjectSight(one.kind, one.metadata) for one in found if isinstance(one, AgentNode | AgentApproval)]
        return ClusterSurvey([one.metadata for one in found if isinstance(one, AgentRun)], children)

    async def list_tools(self) -> Sequence[AgentTool]:
        """Read every tool."""
        return [found for found in self._objects.values() if isinstance(found, AgentTool)]

    async def list_runs(self) -> Sequence[AgentRun]:
        """Read every run."""
        return self.runs()

    async def iterate_nodes(self) -> AsyncIterator[AgentNode]:
        """Read every node."""
        for found in list(self._objects.values()):
            if isinstance(found, AgentNode):
                yield found

    def serves(self, namespace: str) -> bool:
        """Tell whether a namespace is served."""
        return True

    async def list_nodes(self, namespace: str, run_uid: str) -> Sequence[AgentNode]:
        """Return the nodes that carry this run uid."""
        found = (self._objects[key] for key in self._by_run.get((namespace, run_uid), ()))
        return [node for node in found if isinstance(node, AgentNode)]

    # --- what a person does

    def apply(self, wanted: _Stored) -> _Stored:
        """Create the object, or give the existing one this spec (as ``kubectl apply`` does)."""
        stored = self._objects.get(_key(wanted))
        if stored is None:
            return self._create(wanted)
        if stored.spec == wanted.spec:
            return stored
        return cast(_Stored, self._store(_respec(stored, wanted.spec)))

    def patch_run_spec(self, namespace: str, name: str, change: Callable[[AgentRunSpec], AgentRunSpec]) -> AgentRun:
        """Change a run's spec."""
        run = self.get_run(namespace, name)
        return cast(AgentRun, self._store(_respec(run, change(run.spec))))

    def label(self, target: ClusterObject, labels: dict[str, str]) -> None:
        """Give an object labels; one that is gone is left alone."""
        stored = self._objects.get(_key(target))
        if stored is not None and stored.metadata.uid == target.metadata.uid:
            meta = stored.metadata.model_copy(update={"labels": {**stored.metadata.labels, **labels}})
            self._store(_copy(stored, metadata=meta))

    def touch_run(self, namespace: str, name: str) -> None:
        """Have every watcher look at a run again."""
        self._tell(ClusterChange(ChangeKind.SEEN, self.get_run(namespace, name)))

    def patch_decision(self, namespace: str, name: str, decision: Decision) -> AgentApproval:
        """Answer an approval, once: a second, different answer is a conflict."""
        approval = self.get_approval(namespace, name)
        if approval.spec.decision is not None and approval.spec.decision != decision:
            raise ConflictError(f"AgentApproval {name} has been decided: {approval.spec.decision.verdict}")
        return cast(AgentApproval, self._store(_respec(approval, AgentApprovalSpec(decision=decision))))

    def delete_run(self, namespace: str, name: str, *, orphan: bool = False) -> None:
        """Delete a run and all it owns; with ``orphan`` what it owns stays."""
        self._delete(self.get_run(namespace, name), orphan=orphan)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Let no watch tell of what is done inside, as a watch that lost events."""
        watchers, self._watchers = self._watchers, []
        try:
            yield
        finally:
            self._watchers = watchers

    def get_run(self, namespace: str, name: str) -> AgentRun:
        """Return a run. Raises :class:`GoneError` when there is none of that name."""
        return self._get(AgentRun, "AgentRun", namespace, name)

    def get_approval(self, namespace: str, name: str) -> AgentApproval:
        """Return an approval. Raises :class:`GoneError` when there is none of that name."""
        return self._get(AgentApproval, "AgentApproval", namespace, name)

    def nodes_of(self, namespace: str, run_uid: str) -> list[AgentNode]:
        """Return the nodes of a run, in order of their creation."""
        found = (self._objects[key] for key in self._by_run.get((namespace, run_uid), ()))
        return [node for node in found if isinstance(node, AgentNode)]

    def approvals_of(self, namespace: str, run_uid: str) -> list[AgentApproval]:
        """Return the approvals of a run, in order of their creation."""
        found = (self._objects[key] for key in self._by_run.get((namespace, run_uid), ()))
        return [approval for approval in found if isinstance(approval, AgentApproval)]

    def runs(self) -> list[AgentRun]:
        """Return all runs, in order of their creation."""
        return [found for found in self._objects.values() if isinstance(found, AgentRun)]

    # --- storage

    def _get(self, wanted: type[_Stored], kind: str, namespace: str, name: str) -> _Stored:
        found = self._objects.get((kind, namespace, name))
        if not isinstance(found, wanted):
            raise GoneError(f"{kind} {namespace}/{name} does not exist")
        return found

    def _create(self, wanted: _Stored) -> _Stored:
        existing = self._objects.get(_key(wanted))
        if existing is not None:
            raise AlreadyExistsError(existing)
        meta = wanted.metadata.model_copy(
            update={"uid": self._new_uid(), "generation": 1, "creation_timestamp": self._now()}
        )
        return cast(_Stored, self._store(_copy(wanted, metadata=meta, status=None)))

    def _store(self, changed: ClusterObject) -> ClusterObject:
        self._version += 1
        self.writes_total += 1
        meta = changed.metadata.model_copy(update={"resource_version": str(self._version)})
        stored = _copy(changed, metadata=meta)
        self._record(ClusterChange(ChangeKind.SEEN, stored))
        key = _key(stored)
        self._objects[key] = stored
        run_uid = meta.labels.get(RUN_UID_LABEL)
        if run_uid:
            self._by_run.setdefault((meta.namespace, run_uid), {})[key] = None
        self._tell(ClusterChange(ChangeKind.SEEN, stored))
        return stored

    def _delete(self, target: ClusterObject | ObjectSight, *, orphan: bool = False) -> None:
        key = _key(target)
        stored = self._objects.get(key)
        if stored is None or stored.metadata.uid != target.metadata.uid:
            return
        self.writes_total += 1
        self._record(ClusterChange(ChangeKind.GONE, stored))
        del self._objects[key]
        run_uid = stored.metadata.labels.get(RUN_UID_LABEL)
        if run_uid:
            self._by_run[stored.metadata.namespace, run_uid].pop(key, None)
        self._tell(ClusterChange(ChangeKind.GONE, stored))
        for owned in [] if orphan else list(self._owned_by(stored)):
            self._delete(owned)

    def _owned_by(self, owner: ClusterObject) -> Iterator[ClusterObject]:
        for key in self._by_run.get((owner.metadata.namespace, owner.metadata.uid), {}):
            owned = self._objects[key]
            if any(reference.uid == owner.metadata.uid for reference in owned.metadata.owner_references):
                yield owned

    def _tell(self, change: ClusterChange) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(change)


def _key(found: ClusterObject | ObjectSight) -> _Key:
    return found.kind, found.metadata.namespace, found.metadata.name


def _copy(found: ClusterObject, **changes: object) -> ClusterObject:
    return found.model_copy(update=changes)


def _respec(found: ClusterObject, spec: object) -> ClusterObject:
    if found.spec == spec:
        return found
    meta = found.metadata.model_copy(update={"generation": found.metadata.generation + 1})
    return _copy(found, metadata=meta, spec=spec)
