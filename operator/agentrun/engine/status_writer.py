"""Writing to the cluster: guarded, coalesced, as few writes as the promises allow.

A terminal state, an inbox and a write-ahead are written at once; a state that may pass quickly only when it has lasted.
Reports are acknowledged after the cluster has what they said. One writer per run: the run's turn.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from agentrun.contract.node import INBOX_PHASES, TERMINAL_NODE_PHASES, AgentNode, AgentNodeStatus
from agentrun.engine.cluster_port import (
    AlreadyExistsError,
    ClusterUnavailableError,
    ConflictError,
    GoneError,
    HeldBackError,
    QuotaExceededError,
)
from agentrun.engine.observer import RunPhaseStored
from agentrun.engine.run_memory import NodeMemory, RunMemory
from agentrun.engine.services import EngineServices
from agentrun.engine.side_by_side import await_all
from agentrun.ledger.port import LedgerUnavailableError

_PASSING = (ClusterUnavailableError, LedgerUnavailableError, ConflictError, GoneError)
HELD_BACK_RECHECK = timedelta(seconds=5)
"""How soon the cluster is asked again for what it refused."""


class StatusWriter:
    """Brings the cluster up to date with a run's memory."""

    def __init__(self, services: EngineServices) -> None:
        self._services = services
        self._room = asyncio.Semaphore(services.settings.parallel_writes)
        self._lasting_room = asyncio.Semaphore(services.settings.parallel_lasting_writes)

    async def write_nodes(self, run: RunMemory, before_node: Callable[[NodeMemory], Awaitable[None]]) -> None:
        """Write every status that is due, in parallel; the others get their time on the timers' heap.

        Of states that have merely lasted only a few are written, all runs together, and the run is woken for the rest:
        thousands of them in line would keep the next calls, and the slots set aside for them, waiting.
        ``before_node`` is awaited for each node that is written (it fills in what an inbox needs).
        """
        if run.deleted:
            self._write_no_more(run)
        now = self._services.now()
        due, lasting = self._sort(run, now), self._find_lasting(run, now)
        if due or lasting:
            # What fails stays unsorted, and is looked at again.
            run.unsorted.update((node.path, None) for node in (*due, *lasting))
            # All have ended before anything is made of it: one that still goes on would note an older state as stored.
            writes = (
                *(self._write_one(run, node, before_node) for node in due),
                *(self._write_lasting(run, node, before_node) for node in lasting),
            )
            await await_all(writes, _PASSING)
        self.acknowledge(run)

    def _write_no_more(self, run: RunMemory) -> None:
        for path in run.unwritten:
            node = run.nodes[path]
            run.spare_report_ids.extend(node.report_ids)
            node.report_ids = []
        run.unwritten, run.unsorted, run.lasting = {}, {}, []

    def _sort(self, run: RunMemory, now: datetime) -> list[NodeMemory]:
        """Return which of the changed nodes are written at once; the others get their time."""
        due = []
        for path in run.unsorted:
            node = run.nodes[path]
            if not node.needs_write:
                run.unwritten.pop(path, None)
                continue
            at = self._due_at(node)
            if at <= node.status.entered_at:
                due.append(node)
                continue
            heapq.heappush(run.lasting, (at, path))
            if at > now:
                self._services.timers.set(run.key, path, at)
        run.unsorted.clear()
        return due

    def _find_lasting(self, run: RunMemory, now: datetime) -> list[NodeMemory]:
        """Return those whose state has lasted, as many as go at once, and have the run woken for the next."""
        found: dict[str, NodeMemory] = {}
        while run.lasting and run.lasting[0][0] <= now:
            if len(found) >= self._services.settings.parallel_lasting_writes:
                self._services.timers.set(run.key, "", now)
                break
            at, path = heapq.heappop(run.lasting)
            node = run.nodes[path]
            if not node.needs_write:
                run.unwritten.pop(path, None)
            elif self._due_at(node) == at:
                # One that has changed since has another time.
                found[path] = node
        if run.lasting and run.lasting[0][0] > now:
            # Of several times for one node the timers keep the earliest: where that has come, this one was dropped.
            at, path = run.lasting[0]
            self._services.timers.set(run.key, path, at)
        return list(found.values())

    async def write_node_now(self, run: RunMemory, node: NodeMemory) -> None:
        """Write one node's status whatever its state (write-ahead)."""
        await self._store(run, node)

    async def write_ahead(self, run: RunMemory, node: NodeMemory, status: AgentNodeStatus) -> None:
        """Write a status that the node is about to be given in memory."""
        if not run.deleted:
            await self._store(run, node, status)

    async def write_run(self, run: RunMemory) -> None:
        """Write the run's status if the cluster has an older one."""
        if run.deleted or run.stored_status is run.status:
            return
        status = run.status
        try:
            stored = await self._services.cluster.replace_status(run.run.model_copy(update={"status": status}))
        except GoneError:
            run.deleted = True
            return
        except ConflictError:
            # The user changed the spec meanwhile: the watch brings the newer object, and the turn comes back.
            raise
        assert stored.kind == "AgentRun"  # noqa: S101 - narrows the union
        # The spec that counts stays the admitted one, whatever stands in the cluster.
        run.run = stored.model_copy(update={"spec": run.run.spec})
        moved = run.stored_status is None or run.stored_status.phase is not status.phase
        run.stored_status = status
        if moved:
            self._services.observer.note(RunPhaseStored(run.run.model_copy(update={"status": status})))

    def hold_back(self, run: RunMemory, path: str, error: HeldBackError) -> None:
        """Note that the cluster refuses something about a node, and have the node looked at again."""
        run.held_back[path] = error
        self._services.timers.set(run.key, path, self._services.now() + HELD_BACK_RECHECK)

    def acknowledge(self, run: RunMemory) -> None:
        """Have reports acknowledged that led to nothing that is still to be written."""
        ids, run.spare_report_ids = run.spare_report_ids, []
        self._services.acknowledger.note(run.namespace, ids)

    def _due_at(self, node: NodeMemory) -> datetime:
        status = node.status
        if status.phase in TERMINAL_NODE_PHASES or status.phase in INBOX_PHASES:
            return status.entered_at
        stored = node.stored.status if node.stored else None
        if status.decided != (stored.decided if stored else ()):
            # A human's answer is on record before the approval says that it was applied.
            return status.entered_at
        return status.entered_at + self._services.settings.coalesce

    async def _write_one(
        self, run: RunMemory, node: NodeMemory, before_node: Callable[[NodeMemory], Awaitable[None]]
    ) -> None:
        async with self._room:
            await before_node(node)
            try:
                await self._store(run, node)
            except QuotaExceededError as error:
                # Somebody deleted its object, and there is no room for another one: it stays unwritten until there is.
                self.hold_back(run, node.path, error)
                return
        run.held_back.pop(node.path, None)
        run.spare_report_ids.extend(node.report_ids)
        node.report_ids = []
        run.unwritten.pop(node.path, None)
        run.unsorted.pop(node.path, None)

    async def _write_lasting(
        self, run: RunMemory, node: NodeMemory, before_node: Callable[[NodeMemory], Awaitable[None]]
    ) -> None:
        # Outside of the room for all: in its line there are never more of these than go at once.
        async with self._lasting_room:
            await self._write_one(run, node, before_node)

    async def _store(self, run: RunMemory, node: NodeMemory, ahead: AgentNodeStatus | None = None) -> None:
        if node.stored is None:
            raise RuntimeError(f"node {node.path} is written before it was created")
        status = ahead or node.status
        try:
            stored = await self._services.cluster.replace_status(node.stored.model_copy(update={"status": status}))
        except (ConflictError, GoneError):
            # Another has written it, or deleted it: a server that deletes at this moment answers with either.
            fresh = await self._find_anew(run, node.stored)
            if fresh is None:
                return
            stored = await self._services.cluster.replace_status(fresh.model_copy(update={"status": status}))
        node.stored = _keep_status(stored, status)

    async def _find_anew(self, run: RunMemory, known: AgentNode) -> AgentNode | None:
        """Return the node's object as it is now, made again if its run is there; None: the run is gone.

        Raises :class:`EpochLostError` when it is a successor's by now.
        """
        cluster = self._services.cluster
        nodes = await cluster.list_nodes(run.namespace, run.uid)
        # After the list: what a successor writes from here on has a version that was not in it.
        await self._services.refuse_if_overtaken()
        for found in nodes:
            if found.metadata.name == known.metadata.name:
                return found
        sight = await cluster.find_run(run.namespace, run.name)
        if sight is None or sight.uid != run.uid:
            # Its nodes went with it. The watch tells of the run's end, and the turn after that winds it up.
            run.deleted = True
            return None
        try:
            created = await cluster.create_node(known.model_copy(update={"status": None}))
        except AlreadyExistsError as error:
            raise ConflictError(f"{error}, though it was in no list: it is looked at again") from error
        # Orders that are out know it by its old uid.
        run.paths_by_uid[created.metadata.uid] = known.spec.path
        return created


def _keep_status(stored: object, status: AgentNodeStatus) -> AgentNode:
    if not isinstance(stored, AgentNode):
        raise TypeError("the cluster gave another kind back")
    # The very object in memory, so that "has it been written" is an identity check.
    return stored.model_copy(update={"status": status})
