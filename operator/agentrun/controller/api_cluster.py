"""The cluster port on a real API server: what the engine reads and writes there, each write guarded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import structlog
from pydantic import ValidationError

from agentrun.contract.approval import AgentApproval
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.names import RUN_UID_LABEL
from agentrun.contract.node import AgentNode
from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.controller.api_client import METADATA, METADATA_LIST, ApiClient
from agentrun.controller.api_errors import NameTakenError
from agentrun.controller.api_objects import (
    Kind,
    collection_path,
    creation_body,
    lease_collection,
    object_path,
    read_object,
    status_body,
)
from agentrun.engine.cluster_port import (
    AlreadyExistsError,
    ChangeKind,
    ClusterChange,
    ClusterObject,
    ClusterSurvey,
    ClusterUnavailableError,
    ConflictError,
    GoneError,
    ObjectSight,
    RunSight,
)

_log = structlog.get_logger("agentrun.controller")


class ApiCluster:
    """Behind the engine's cluster port; whoever observes the API server tells it what was seen."""

    def __init__(self, client: ApiClient, namespaces: Sequence[str] = ()) -> None:
        """``namespaces``: those that are served; empty: all."""
        self._client = client
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._seen: asyncio.Queue[ClusterChange] = asyncio.Queue()
        self.listed = False
        """Whether who watches has been given everything that existed when it began."""

    def tell(self, change: ClusterChange) -> None:
        """Take in an observation, to be given to whoever watches."""
        self._seen.put_nowait(change)

    async def watch(self) -> AsyncIterator[ClusterChange]:
        """Give everything that exists, tools first, then every observation.

        A run that is taken up again needs its tools at once. What is told twice does no harm; who watches again, after
        the ledger was rebuilt, would not be told what has not changed.
        """
        self.listed = False
        for tool in await self.list_tools():
            yield ClusterChange(ChangeKind.SEEN, tool)
        for run in await self.list_runs():
            yield ClusterChange(ChangeKind.SEEN, run)
        async for approval in self._read_all(AgentApproval, "AgentApproval"):
            yield ClusterChange(ChangeKind.SEEN, approval)
        self.listed = True
        while True:
            yield await self._seen.get()

    async def create_node(self, node: AgentNode) -> AgentNode:
        """Create the node without its status."""
        return await self._create(AgentNode, node)

    async def create_approval(self, approval: AgentApproval) -> AgentApproval:
        """Create the approval without its status."""
        return await self._create(AgentApproval, approval)

    async def create_run(self, run: AgentRun) -> AgentRun:
        """Create the run without its status."""
        return await self._create(AgentRun, run)

    async def replace_status(self, changed: ClusterObject) -> ClusterObject:
        """Store the object's status if its resourceVersion is still the one it carries."""
        # What was sent is what is stored: reading back 20 transitions for each write would cost more than the write.
        answer = await self._client.request(
            "PUT", f"{object_path(changed)}/status", status_body(changed), accept=METADATA
        )
        meta = answer.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        fresh = changed.metadata.model_copy(
            update={
                "resource_version": str(meta.get("resourceVersion") or ""),
                "generation": meta.get("generation") or changed.metadata.generation,
            }
        )
        return changed.model_copy(update={"metadata": fresh})

    async def delete(self, target: ClusterObject | ObjectSight, *, unchanged: bool = False) -> None:
        """Delete the object, if it is still the same one; with ``unchanged`` if it is still as it was seen."""
        preconditions: JsonObject = {"uid": target.metadata.uid}
        if unchanged:
            preconditions["resourceVersion"] = target.metadata.resource_version
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
        }
        try:
            await self._client.request("DELETE", object_path(target), body)
        except (GoneError, ConflictError):
            return

    async def list_nodes(self, namespace: str, run_uid: str) -> Sequence[AgentNode]:
        """Return the nodes that carry this run uid."""
        found, _ = await self._client.list_all(
            collection_path("AgentNode", namespace), {"labelSelector": f"{RUN_UID_LABEL}={run_uid}"}
        )
        return [read_object(AgentNode, _with_kind(raw, "AgentNode")) for raw in found]

    async def find_run(self, namespace: str, name: str) -> RunSight | None:
        """Look at a run of this name."""
        raw = await self._get_run(namespace, name)
        if raw is None:
            return None
        meta, status = raw.get("metadata"), raw.get("status")
        phase = status.get("phase") if isinstance(status, dict) else None
        return RunSight(str(meta.get("uid")) if isinstance(meta, dict) else "", phase in TERMINAL_RUN_PHASES)

    async def fetch_run(self, namespace: str, name: str) -> AgentRun | None:
        """Read a run of this name."""
        raw = await self._get_run(namespace, name)
        try:
            return read_object(AgentRun, raw) if raw is not None else None
        except ValidationError:
            return None

    async def survey(self) -> ClusterSurvey:
        """List what exists, as metadata alone: children first, so that the run of each is looked for afterwards."""
        children = [
            ObjectSight(kind, meta)
            for kind in ("AgentNode", "AgentApproval")
            for namespace in self._namespaces
            for meta in await self._list_metadata(collection_path(kind, namespace))
        ]
        children += [
            ObjectSight("Lease", meta)
            for namespace in self._namespaces
            for meta in await self._list_metadata(lease_collection(namespace), {"labelSelector": RUN_UID_LABEL})
        ]
        runs = [
            meta
            for namespace in self._namespaces
            for meta in await self._list_metadata(collection_path("AgentRun", namespace))
        ]
        return ClusterSurvey(runs, children)

    async def list_tools(self) -> Sequence[AgentTool]:
        """Read every tool that can be read."""
        return [tool async for tool in self._read_all(AgentTool, "AgentTool")]

    async def list_runs(self) -> Sequence[AgentRun]:
        """Read every run that can be read."""
        return [run async for run in self._read_all(AgentRun, "AgentRun")]

    def iterate_nodes(self) -> AsyncIterator[AgentNode]:
        """Read every node that can be read, a page at a time."""
        return self._read_all(AgentNode, "AgentNode")

    def serves(self, namespace: str) -> bool:
        """Tell whether a namespace is among those that are served."""
        return None in self._namespaces or namespace in self._namespaces

    async def _read_all(self, model: type[Kind], kind: str) -> AsyncIterator[Kind]:
        for namespace in self._namespaces:
            async for raw in self._client.list_pages(collection_path(kind, namespace)):
                try:
                    yield read_object(model, _with_kind(raw, kind))
                except ValidationError as error:
                    _log.warning("object_unreadable", kind=kind, name=_name(raw), cause=str(error))

    async def _get_run(self, namespace: str, name: str) -> JsonObject | None:
        try:
            return await self._client.request("GET", f"{collection_path('AgentRun', namespace)}/{name}")
        except GoneError:
            return None

    async def _list_metadata(self, path: str, params: Mapping[str, str] | None = None) -> list[ObjectMeta]:
        found, _ = await self._client.list_all(path, params, accept=METADATA_LIST)
        return [ObjectMeta.from_wire(item.get("metadata")) for item in found]

    async def _create(self, kind: type[Kind], wanted: Kind) -> Kind:
        path = collection_path(wanted.kind, wanted.metadata.namespace)
        try:
            return read_object(kind, await self._client.request("POST", path, creation_body(wanted)))
        except NameTakenError:
            try:
                existing = read_object(kind, await self._client.request("GET", object_path(wanted)))
            except GoneError as gone:
                # Deleted between the two: the next try will find room.
                raise ClusterUnavailableError(str(gone)) from gone
            raise AlreadyExistsError(existing) from None


def _with_kind(raw: JsonObject, kind: str) -> JsonObject:
    # Servers older than 1.31 leave the type out of a list's items.
    return raw if "kind" in raw else {"apiVersion": "agentrun.dev/v1alpha1", "kind": kind, **raw}


def _name(raw: JsonObject) -> str:
    meta = raw.get("metadata")
    return f"{meta.get('namespace')}/{meta.get('name')}" if isinstance(meta, dict) else "?"
