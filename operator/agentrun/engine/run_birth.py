"""The beginning of a run in the scheduler: admission of a new one, and taking up one that was admitted before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import structlog

from agentrun.contract.defaults import RUN_SPEC_MAX_BYTES
from agentrun.contract.exact_json import canonical_json
from agentrun.contract.failures import Reason
from agentrun.contract.model_base import cut_text
from agentrun.contract.node import TERMINAL_NODE_PHASES, AgentNode, NodePhase
from agentrun.contract.run import (
    TERMINAL_RUN_PHASES,
    NodeType,
    RunPhase,
    Spent,
)
from agentrun.decisions.admission import ViolationKind, find_violations
from agentrun.decisions.facts import Ending
from agentrun.decisions.moves import Move
from agentrun.decisions.run_step import find_ending
from agentrun.engine.cluster_port import HeldBackError
from agentrun.engine.gather import gather_view
from agentrun.engine.node_effects import ForeignObjectError, NodeEffects
from agentrun.engine.observer import RunEnded
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.run_outcome import build_registration, spec_digest
from agentrun.engine.run_pins import put_pins, restore_pins, take_spec
from agentrun.engine.services import EngineServices, KnownRun
from agentrun.engine.session_keeper import SessionKeeper
from agentrun.engine.session_port import SessionHolder
from agentrun.engine.status_writer import StatusWriter
from agentrun.engine.tree_builder import build_top_nodes, node_from_object, place_instances, tool_names
from agentrun.ledger.port import Admission, AdmissionVerdict, NodeLedgerState

_log = structlog.get_logger("agentrun.engine")


class RunBirth:
    """Admits runs, and rebuilds the memory of admitted ones from the cluster and the ledger."""

    def __init__(
        self, services: EngineServices, effects: NodeEffects, writer: StatusWriter, sessions: SessionKeeper
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._effects = effects
        self._writer = writer

    async def admit(self, run: RunMemory) -> None:
        """Check the run and let it begin; or refuse it, copy a finished one's outcome, or leave it waiting."""
        services, now = self._services, self._services.now()
        if run.run.spec.cancel or run.deleted:
            self._end(run, RunPhase.CANCELLED, Reason.CANCELLED, "cancelled before it began", now)
            return
        refusal = self._find_refusal(run)
        if refusal is not None:
            phase, reason, message = refusal
            if phase is RunPhase.PENDING:
                self._wait(run, reason, message, now)
            else:
                self._end(run, phase, reason, message, now)
            return
        for pinned in run.tools.values():
            await services.ledger.put_tool(run.namespace, pinned.ref.digest, pinned.spec.to_wire())
        holder = await self._sessions.take(run)
        if holder is not None:
            self._refuse_busy(run, holder, now)
            return
        admission = await self.register(run)
        if admission.verdict is AdmissionVerdict.SESSION_BUSY:
            holder = SessionHolder(admission.other_uid, admission.other_name)
            if holder.uid and not await self._sessions.is_live(run.namespace, holder):
                # Deleted while nobody looked. What it has under way keeps the session busy all the same.
                await services.abandon_run(run.namespace, holder.uid)
                admission = await self.register(run)
        if admission.verdict is AdmissionVerdict.SESSION_BUSY:
            await self._sessions.release(run)
            self._refuse_busy(run, SessionHolder(admission.other_uid, admission.other_name), now)
            return
        if admission.verdict is AdmissionVerdict.ALREADY_FINISHED:
            await self._copy(run, admission, now)
            return
        root = self._find_root(run, admission)
        run.status = run.status.model_copy(
            update={
                "phase": RunPhase.RUNNING,
                "reason": Reason.ADMITTED,
                "message": "",
                "admitted_at": now,
                "started_at": now,
                "admitted_generation": run.run.metadata.generation,
                "spec_digest": spec_digest(run.run.spec),
                "epoch": services.epoch,
                "root_uid": root,
            }
        )
        await put_pins(services, run)
        await self._writer.write_run(run)
        # The first of the writes that are a second apart: counts follow with the next one.
        run.next_status_write = now + services.settings.coalesce
        await self._plant(run, now)

    def note_held_back(self, run: RunMemory, message: str) -> None:
        """Leave a run waiting that cannot be admitted before the cluster takes what it needs."""
        self._wait(run, Reason.HELD_BACK, cut_text(message, 4000), self._services.now())

    async def bury(self, run: RunMemory) -> None:
        """End a run whose object went before it was taken up: its attempts are told, its session is freed."""
        self._end(run, RunPhase.CANCELLED, Reason.CANCELLED, "the run was deleted", self._services.now())
        run.loaded = False
        await self._services.abandon_run(run.namespace, run.uid)
        await self._sessions.release(run)
        run.loaded = True

    async def register(self, run: RunMemory) -> Admission:
        """Make the run known to the ledger (again); the same run is recognised."""
        admission = await self._services.ledger.admit_run(build_registration(run.run, run.status))
        run.registered = admission.verdict in (AdmissionVerdict.ADMITTED, AdmissionVerdict.ADOPT)
        run.budget_in_ledger = run.run.spec.budget
        return admission

    async def load(self, run: RunMemory, found: list[AgentNode]) -> None:
        """Take up an admitted run: nodes from the cluster, orders and claims from the ledger."""
        now = self._services.now()
        if not await restore_pins(self._services, run):
            # What it was admitted with is lost: as far as it may, what stands in the cluster has to do.
            policy = self._services.settings.policies.find(run.namespace)
            take_spec(run, run.run, policy.bound(run.run.spec), policy)
            await self._know_tools(run)
            self._pin_tools(run)
            await put_pins(self._services, run)
        for pinned in list(run.tools.values()):
            await self._services.ledger.put_tool(run.namespace, pinned.ref.digest, pinned.spec.to_wire())
        if run.status.phase in TERMINAL_RUN_PHASES:
            run.loaded = run.admitted = run.closed = True
            self._take_in(run, found, now)
            return
        # Stored already, unless the turn that admitted it failed there.
        await self._writer.write_run(run)
        holder = await self._sessions.take(run)
        if holder is not None:
            # Nothing is sent while it lasts: the keeper goes on asking for it.
            _log.warning("session_lost", run=run.name, namespace=run.namespace, holder=holder.name)
            run.session_renewed_at = run.status.admitted_at
        admission = await self.register(run)
        if admission.verdict is AdmissionVerdict.ALREADY_FINISHED and not _have_all_ended(found):
            # Only an older copy of the cluster says that it goes on: the ledger knows how it ended.
            await self._copy(run, admission, now)
            return
        states = await self._find_states(run, found)
        await self._plant(run, now, found)
        for node in run.nodes.values():
            if node.uid in states:
                self._effects.sync_with_ledger(run, node, states[node.uid])

    async def _plant(self, run: RunMemory, now: datetime, found: list[AgentNode] | None = None) -> None:
        """Have every node of the run's own list in the cluster and in memory.

        What may fail comes first: until all of it went well the run is not loaded, and is begun again.
        """
        known = {node.spec.path: node for node in found or ()}
        nodes = build_top_nodes(run, now)
        for node in nodes:
            existing = known.pop(node.path, None)
            if existing is not None:
                node.stored = existing
                if existing.status is not None:
                    node.status = existing.status
        ending = None
        try:
            await self._effects.create_objects(run, nodes)
        except HeldBackError:
            if not self._is_to_end(run, now):
                raise
            # What does not exist never began: it ends without.
            nodes = [node for node in nodes if node.stored is not None]
        except ForeignObjectError as error:
            ending = Ending(RunPhase.FAILED, Reason.INVALID_SPEC, str(error), cancels_running=True)
            nodes = [node for node in nodes if node.stored is not None]
        finished: dict[str, AgentNode] = {}
        if not known and (run.run.spec.retry_of or run.status.root_uid):
            finished = await self._find_finished(run)
        run.loaded = run.admitted = True
        run.ending = ending or run.ending
        for node in nodes:
            run.add(node)
            run.touch(node.path)
        self._take_in_children(run, list(known.values()), now)
        for node in list(run.nodes.values()):
            self._effects.take_up(run, node, now)
        self._adopt_finished(run, finished)

    @staticmethod
    def _is_to_end(run: RunMemory, now: datetime) -> bool:
        if run.run.spec.cancel and not run.status.cancel_requested:
            run.status = run.status.model_copy(update={"cancel_requested": True})
        return find_ending(gather_view(run, now)) is not None

    def _take_in(self, run: RunMemory, found: list[AgentNode], now: datetime) -> None:
        tops = [node for node in found if node.spec.parent is None]
        for existing in tops:
            run.add(node_from_object(run, existing, now))
        self._take_in_children(run, [node for node in found if node.spec.parent is not None], now)

    def _take_in_children(self, run: RunMemory, found: list[AgentNode], now: datetime) -> None:
        by_parent: dict[str, list[AgentNode]] = {}
        for existing in found:
            if existing.spec.parent is not None:
                by_parent.setdefault(existing.spec.parent, []).append(existing)
        for path, members in by_parent.items():
            parent = run.nodes.get(path)
            # Instances without an expanded parent are found again, and adopted, when it is expanded.
            if parent is None or parent.status.phase in (NodePhase.PENDING, NodePhase.READY):
                continue
            members.sort(key=lambda node: (node.spec.index or 0, node.spec.path))
            count = 1 + max(node.spec.index or 0 for node in members)
            place_instances(run, parent, count, [node_from_object(run, member, now) for member in members])

    async def _find_states(self, run: RunMemory, found: list[AgentNode]) -> dict[str, NodeLedgerState]:
        """Ask the ledger about every task that may have an order out."""
        return {
            node.metadata.uid: await self._services.ledger.find_node(run.namespace, node.metadata.uid)
            for node in found
            if node.spec.node.type is NodeType.TASK
            and node.status is not None
            and node.status.phase not in TERMINAL_NODE_PHASES
            and node.status.phase is not NodePhase.PENDING
        }

    def _find_refusal(self, run: RunMemory) -> tuple[RunPhase, str, str] | None:
        services, spec = self._services, run.run.spec
        size = len(canonical_json(spec.to_wire()).encode())
        if size > RUN_SPEC_MAX_BYTES:
            said = f"spec has {size} bytes, at most {RUN_SPEC_MAX_BYTES} are allowed: use a FanOut or references"
            return RunPhase.REJECTED, Reason.INVALID_SPEC, said
        policy = services.settings.policies.find(run.namespace)
        violations = [
            violation
            for violation in find_violations(spec, services.tools.specs(run.namespace), services.check_schema, policy)
            if violation.kind is not ViolationKind.GATED
        ]
        refusing = [violation for violation in violations if violation.kind is ViolationKind.REFUSE]
        if refusing:
            said = "; ".join(str(violation) for violation in refusing[:10])
            return RunPhase.REJECTED, refusing[0].reason, cut_text(said, 4000)
        if violations:
            said = "; ".join(str(violation) for violation in violations[:10])
            return RunPhase.PENDING, violations[0].reason, cut_text(said, 4000)
        if spec.retry_of is not None:
            origin = self._find_origin(run)
            if origin is None or not origin.ended:
                there = "does not exist" if origin is None else "has not ended"
                said = f"spec.retryOf names run {spec.retry_of}, which {there} yet"
                return RunPhase.PENDING, Reason.INVALID_REFERENCE, said
        self._pin_tools(run)
        return None

    async def _know_tools(self, run: RunMemory) -> None:
        """Read the definitions that no watch has told of yet: without its pins a run has nothing else to go by."""
        known = self._services.tools
        if all(known.find(run.namespace, name) is not None for name in tool_names(run.run.spec.nodes)):
            return
        for tool in await self._services.cluster.list_tools():
            known.put(tool)

    def _pin_tools(self, run: RunMemory) -> None:
        todo = list(tool_names(run.run.spec.nodes))
        while todo:
            name = todo.pop()
            pinned = self._services.tools.find(run.namespace, name)
            if name in run.tools or pinned is None:
                continue
            run.tools[name] = pinned
            todo.extend(pinned.spec.degrade_to)
            if pinned.spec.recovery is not None:
                todo.append(pinned.spec.recovery.lookup.tool)

    def _find_root(self, run: RunMemory, admission: Admission) -> str:
        if admission.verdict is AdmissionVerdict.ADOPT:
            return admission.other_uid
        origin = self._find_origin(run)
        return origin.root_uid if origin else ""

    def _find_origin(self, run: RunMemory) -> KnownRun | None:
        name = run.run.spec.retry_of
        return self._services.find_run(run.namespace, name) if name is not None else None

    async def _find_finished(self, run: RunMemory) -> dict[str, AgentNode]:
        """Return by path what succeeded in the run that this one continues."""
        known = self._find_origin(run)
        origin = known.uid if known else run.status.root_uid
        return {
            node.spec.path: node
            for node in await self._services.cluster.list_nodes(run.namespace, origin)
            if node.status is not None and node.status.phase is NodePhase.SUCCEEDED
        }

    def _adopt_finished(self, run: RunMemory, finished: Mapping[str, AgentNode]) -> None:
        """Take over what succeeded before, where the node is the same."""
        for node in list(run.nodes.values()):
            old = finished.get(node.path)
            if old is None or old.status is None or node.status.phase is not NodePhase.PENDING:
                continue
            same = old.spec.node == node.spec.node
            above = (*node.spec.upstreams, *node.spec.choosers)
            # A run that ends before the cluster took all its nodes goes on without those.
            upstream = all(path in run.nodes and run.nodes[path].status.reason == Reason.ADOPTED for path in above)
            if not same or not upstream or node.spec.node.type is NodeType.FAN_OUT:
                continue
            changes = {
                "result": old.status.result,
                "result_digest": old.status.result_digest,
                "chosen": old.status.chosen,
                "replay_of": f"{run.namespace}/{old.spec.run.name}/{old.spec.path}",
            }
            self._effects.move(run, node, Move(NodePhase.SUCCEEDED, Reason.ADOPTED, "finished before", changes))

    def _refuse_busy(self, run: RunMemory, holder: SessionHolder, now: datetime) -> None:
        said = f"session {run.run.spec.session} is held by run {holder.name} ({holder.uid})"
        self._end(run, RunPhase.REJECTED, Reason.SESSION_BUSY, said, now)

    def _wait(self, run: RunMemory, reason: str, message: str, now: datetime) -> None:
        """Leave the run waiting for what it needs; but nothing waits for ever."""
        until = (run.run.metadata.creation_timestamp or now) + run.waits.suspended
        if now >= until:
            said = cut_text(f"waited longer than {run.waits.suspended}: {message}", 4000)
            self._end(run, RunPhase.REJECTED, reason, said, now)
            return
        self._services.timers.set(run.key, "", until)
        changes = {"phase": RunPhase.PENDING, "reason": reason, "message": message}
        if any(getattr(run.status, name) != value for name, value in changes.items()):
            run.status = run.status.model_copy(update=changes)

    def _end(self, run: RunMemory, phase: RunPhase, reason: str, message: str, now: datetime) -> None:
        run.status = run.status.model_copy(
            update={"phase": phase, "reason": reason, "message": message, "finished_at": now}
        )
        if not run.closed:
            self._services.observer.note(RunEnded(run.namespace, phase, reason))
        run.loaded = True
        run.closed = True

    async def _copy(self, run: RunMemory, admission: Admission, now: datetime) -> None:
        await self._sessions.release(run)
        outcome = admission.outcome or {}
        phase = RunPhase(str(outcome.get("phase", RunPhase.FAILED)))
        who = f"the run {admission.other_uid} of this name and content" if admission.other_uid != run.uid else "it"
        said = (
            f"{who} ended {phase}: nothing was executed again; "
            "to execute it again, delete it and apply it with a new spec.rerunToken"
        )
        spent = outcome.get("spent")
        counts = outcome.get("counts")
        self._end(run, phase, Reason.ALREADY_FINISHED, said, now)
        run.status = run.status.model_copy(
            update={
                "copy_of": admission.other_uid,
                "counts": counts if isinstance(counts, dict) else {},
                "spent": Spent.model_validate(spent) if spent else None,
            }
        )


def _have_all_ended(nodes: list[AgentNode]) -> bool:
    return bool(nodes) and all(node.status and node.status.phase in TERMINAL_NODE_PHASES for node in nodes)
