"""The scheduler: watches the cluster, reads reports, keeps time, and has every run take its turns.

The composition root of the engine, shared by local mode and the controller. It holds no fact that cannot be rebuilt
from the cluster and the ledger, and it executes nothing: it decides and sends orders.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import assert_never

import structlog

from agentrun.contract.approval import AgentApproval
from agentrun.contract.defaults import SLOT_LEASE
from agentrun.contract.node import AgentNode, NodePhase
from agentrun.contract.orders import Report
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, RunPhase
from agentrun.contract.tool import AgentTool
from agentrun.decisions.jobs.job_wishes import JobKey
from agentrun.decisions.pools.pool_wishes import PoolKey, ToolInUse
from agentrun.decisions.retention import EndedRun
from agentrun.decisions.run_waits import find_pool
from agentrun.engine.acknowledger import Acknowledger
from agentrun.engine.clock import Clock, Entropy
from agentrun.engine.cluster_port import ChangeKind, Cluster, ClusterChange, ClusterUnavailableError
from agentrun.engine.decision_verifier import DecisionVerifier, NoVerifier
from agentrun.engine.dispatcher import Dispatcher
from agentrun.engine.housekeeping import Housekeeping
from agentrun.engine.job_desk import JobDesk, JobSurvey
from agentrun.engine.ledger_contact import LedgerContact, Step
from agentrun.engine.ledger_rebuild import LedgerRebuild
from agentrun.engine.observer import (
    EngineSurvey,
    LeadEnded,
    LeadTaken,
    Observer,
    PoolSurvey,
    ReportsRead,
    Unobserved,
)
from agentrun.engine.run_inputs import (
    ApprovalGone,
    ApprovalSeen,
    Granted,
    NodeGone,
    ReportArrived,
    RunGone,
    RunInput,
    RunSeen,
    ToolsChanged,
    Woken,
)
from agentrun.engine.run_key import RunKey, run_of
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.run_queues import RunQueues
from agentrun.engine.run_turn import RunTurn, new_memory
from agentrun.engine.schema_checker import SchemaChecker, to_problems
from agentrun.engine.services import EngineServices, KnownRun, LedgerLostError
from agentrun.engine.session_keeper import SessionKeeper
from agentrun.engine.session_port import NoSessionLeases, SessionLeases
from agentrun.engine.settings import SchedulerSettings
from agentrun.engine.timers import Timers, glance_within
from agentrun.engine.tool_catalogue import ToolCatalogue
from agentrun.ledger.port import LedgerSight, LedgerUnavailableError, SchedulerLedger

_RETRY_PAUSE = timedelta(milliseconds=500)
_ORPHAN_WAIT = timedelta(seconds=60)
"""A report about a run that the cluster does not show by then is acknowledged: its run was deleted."""
_TICK = 0.001
"""Seconds; timers are no finer than this."""
_STOP_WITHIN = timedelta(seconds=8)
"""How long turns under way may take to end when it is stopped."""
_STOP_WITHIN_AWAY = timedelta(seconds=1)
"""The same while the ledger is away: what a turn waits for then will not come."""
_LAST_ACKNOWLEDGEMENTS = timedelta(seconds=3)

_log = structlog.get_logger("agentrun.engine")


async def _anybody_may() -> None:
    return


async def _nobody_asks(epoch: int) -> None:
    return


class Scheduler:
    """Runs the engine until it is stopped or another scheduler takes the lead."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        ledger: SchedulerLedger,
        clock: Clock,
        entropy: Entropy,
        validator: SchemaChecker,
        settings: SchedulerSettings | None = None,
        sessions: SessionLeases | None = None,
        observer: Observer | None = None,
        verifier: DecisionVerifier | None = None,
        seen_epoch: int = 0,
        record_lead: Callable[[int], Awaitable[None]] = _nobody_asks,
        may_lead: Callable[[], Awaitable[None]] = _anybody_may,
    ) -> None:
        """``seen_epoch``: the highest that is known from elsewhere.

        ``may_lead`` is awaited before each taking of the lead, and ``record_lead`` with the epoch that was taken,
        before anything is done under it: a ledger that loses its data has lost the epoch with them. Both raise what
        forbids leading, which ends :meth:`run`, or what cluster and ledger raise, and are asked again then.
        """
        self._may_lead = may_lead
        self._settings = settings or SchedulerSettings()
        self._cluster, self._ledger, self._clock, self._entropy = cluster, ledger, clock, entropy
        self._validator = validator
        self._session_leases = sessions or NoSessionLeases()
        self._observer = observer or Unobserved()
        self._verifier = verifier or NoVerifier()
        self._contact = LedgerContact(clock, self._observer)
        self._stopping = asyncio.Event()
        self._record_lead = record_lead
        self._failed_turns_before = 0
        self._begin_anew(seen_epoch)

    def _begin_anew(self, seen_epoch: int) -> None:
        """Know nothing: everything is learnt from the cluster and the ledger."""
        self._timer_moved = asyncio.Event()
        self._pools_wanted = asyncio.Event()
        self._namespace_seen = asyncio.Event()
        self._pump_planned = False
        self._park_until: datetime | None = None
        self._namespaces: dict[str, None] = {}
        self._names: dict[tuple[str, str], KnownRun] = {}
        self._waiting: dict[str, dict[RunKey, None]] = {}
        """By namespace, the runs that are not loaded yet: few, however many runs there are."""
        self._ended: dict[RunKey, EndedRun] = {}
        self._orphans: dict[RunKey, list[tuple[datetime, ReportArrived]]] = {}
        self._early_approvals: dict[RunKey, dict[str, AgentApproval]] = {}
        self._dispatcher = Dispatcher(self._settings, self._grant)
        self._acknowledger = Acknowledger(self._ledger, self._observer, self._contact)
        self._jobs = JobDesk(self._post_to_known, serves=self._settings.jobs)
        self._services = EngineServices(
            cluster=self._cluster,
            ledger=self._ledger,
            contact=self._contact,
            clock=self._clock,
            entropy=self._entropy,
            judge=lambda schema, value: to_problems(self._validator.validate(schema, value)),
            check_schema=lambda schema: to_problems(self._validator.check(schema)),
            settings=self._settings,
            dispatcher=self._dispatcher,
            timers=Timers(self._timer_moved.set),
            tools=ToolCatalogue(),
            acknowledger=self._acknowledger,
            jobs=self._jobs,
            pump=self._pump,
            find_run=lambda namespace, name: self._names.get((namespace, name)),
            sessions=self._session_leases,
            observer=self._observer,
            verifier=self._verifier,
        )
        self._services.epoch = seen_epoch
        self._sessions = SessionKeeper(self._services)
        turn = RunTurn(self._services, self._sessions)
        width = self._settings.parallel_turns
        self._queues = RunQueues(
            turn.take, self._after_turn, self._entropy, width, self._observer, self._ledger_was_silent
        )
        self._housekeeping = Housekeeping(self._services, self._queues, self._ended, self)

    @property
    def failed_turns_total(self) -> int:
        """Turns that failed for a cause that does not pass by itself."""
        return self._failed_turns_before + self._queues.failed_turns_total

    def survey(self) -> EngineSurvey:
        """Return what it holds now: the queue, and runs and nodes by phase. Costs a little for each run and phase."""
        runs: Counter[tuple[str, RunPhase]] = Counter()
        nodes: Counter[tuple[str, NodePhase]] = Counter()
        for run in self._queues:
            runs[run.namespace, run.status.phase] += 1
            for phase, paths in run.by_phase.items():
                nodes[run.namespace, phase] += len(paths)
        return EngineSurvey(self._dispatcher.survey(self._clock.now()), runs, +nodes)

    def survey_pools(self) -> PoolSurvey:
        """Return what workers have to do. Costs a little for each run, tool, and attempt under way."""
        complete, busy = True, dict[str, set[str]]()
        for run in self._queues:
            complete = complete and (run.loaded or run.status.phase is RunPhase.PENDING)
            for path in run.by_phase[NodePhase.RUNNING]:
                busy.setdefault(run.namespace, set()).add(run.nodes[path].status.worker)
        return PoolSurvey(complete, self._dispatcher.demand(), busy)

    def survey_jobs(self) -> JobSurvey:
        """Return the Jobs that attempts want. Costs a little for each run, and each attempt under way."""
        return self._jobs.survey(self._queues)

    def note_jobs(self, notes: Mapping[JobKey, str]) -> None:
        """Note what keeps Jobs from their pods, or has ended these; nodes show it."""
        self._jobs.note(notes)

    async def still_leads(self) -> bool:
        """Tell whether nobody else has taken the lead, as far as the ledger knows; not while it has lost its data."""
        return (await self._ledger.look()).epoch == self._services.epoch

    def find_tools_in_use(self) -> list[ToolInUse]:
        """Return every definition that may still be called: as tools stand now, and as open runs have pinned them."""
        found = {(space, pin.ref.name, pin.ref.digest): pin.spec for space, pin in self._services.tools.all()}
        for run in self._queues:
            if not run.closed:
                for name, pin in run.tools.items():
                    found.setdefault((run.namespace, name, pin.ref.digest), pin.spec)
        return [ToolInUse(namespace, name, spec) for (namespace, name, _), spec in found.items()]

    def note_pools(self, notes: Mapping[PoolKey, str]) -> None:
        """Note what is known about pools that the operator keeps; runs that wait for one that has news show it."""
        before, self._dispatcher.pool_notes = self._dispatcher.pool_notes, notes
        news = {key for key in before.keys() | notes.keys() if before.get(key) != notes.get(key)}
        if not news:
            return
        for run in self._queues:
            if any((run.namespace, find_pool(limit)) in news for limit in run.waiting):
                self._queues.post(run.key, Woken(""))

    def stop(self) -> None:
        """Have :meth:`run` end soon: turns under way end, nothing new begins, everything is taken up again later."""
        self._stopping.set()

    async def run(self) -> None:
        """Take the lead and work until :meth:`stop`.

        Raises :class:`~agentrun.engine.services.EpochLostError` when another scheduler has taken the lead.
        """
        while True:
            if not await self._lead_unless_stopped():
                return
            try:
                await self._live()
            except LedgerLostError as error:
                if self._stopping.is_set():
                    return
                _log.warning("ledger_lost", cause=str(error))
                self._failed_turns_before += self._queues.failed_turns_total
                self._begin_anew(self._services.epoch)
                self._contact.rebuilt()
            else:
                return

    async def _live(self) -> None:
        loops: list[Callable[[], Coroutine[None, None, None]]] = [
            self._watch,
            self._read_reports,
            self._acknowledger.run,
            self._keep_time,
            self._look_at_pools,
            self._renew_slots,
            self._watch_sessions,
            self._keep_house,
            self._watch_ledger,
        ]
        tasks = [asyncio.create_task(loop(), name=loop.__name__) for loop in loops]
        ends = [asyncio.create_task(self._stopping.wait()), asyncio.create_task(self._queues.stopped.wait())]
        try:
            done, _ = await asyncio.wait([*tasks, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await self._end_turns()
                await self._acknowledge_the_last()
            finally:
                # Also where there is no time for that any more: nothing of it goes on by itself.
                for task in (*tasks, *ends):
                    task.cancel()
                await asyncio.gather(*tasks, *ends, return_exceptions=True)
                self._observer.note(LeadEnded())
        if self._queues.lost is not None:
            raise self._queues.lost
        for task in done:
            if task in tasks:
                task.result()

    async def _end_turns(self) -> None:
        within = _STOP_WITHIN_AWAY if self._contact.is_away else _STOP_WITHIN
        if self._contact.is_away:
            _log.info("ledger_not_waited_for", why="it is away; whoever leads next takes everything up where it stands")
        cut_off = await self._queues.close(within)
        if cut_off:
            _log.info("turns_cut_off", turns=cut_off, after_seconds=within.total_seconds())

    async def _acknowledge_the_last(self) -> None:
        due = self._acknowledger.due_total
        try:
            if self._contact.is_away:
                raise LedgerUnavailableError("it is away")
            async with asyncio.timeout(_LAST_ACKNOWLEDGEMENTS.total_seconds()):
                await self._acknowledger.flush()
        except (LedgerUnavailableError, TimeoutError) as error:
            if due:
                # Whoever leads next reads them again.
                _log.info("reports_left_unacknowledged", reports=due, cause=str(error))

    async def _lead_unless_stopped(self) -> bool:
        """Take the lead, however long it takes; return False when it was stopped before."""
        leading = asyncio.create_task(self._lead(), name="take the lead")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
                return True
            _log.info("stopped_before_it_led", ledger_away=self._contact.is_away)
            return False
        finally:
            leading.cancel()
            stopping.cancel()
            await asyncio.gather(leading, stopping, return_exceptions=True)

    async def _lead(self) -> None:
        lost = False
        while True:
            try:
                await self._may_lead()
                sight = await self._ledger.look()
                sound = self._is_sound(sight) and not lost
                if not sound:
                    await self._rebuild()
                    # That takes a while. Who has lost the lead meanwhile takes no epoch: it would end its successor's.
                    await self._may_lead()
                    sight, lost = await self._ledger.look(), False
                self._services.epoch = await self._ledger.take_epoch(self._services.epoch)
                await self._record_lead(self._services.epoch)
                if not sound:
                    # Last of all: under the new epoch, or a former leader might still send.
                    await self._ledger.open_gate()
                await self._ledger.open(())
                opened = await self._ledger.look()
                if opened.generation != sight.generation or not self._is_sound(opened):
                    # It was emptied in between, and has just been opened as a new one.
                    _log.warning("ledger_lost", cause="it was emptied while the lead was taken")
                    lost = True
                    continue
            except LedgerUnavailableError as error:
                self._contact.failed(Step.LEAD, error)
                await self._contact.pause(Step.LEAD)
            except ClusterUnavailableError as error:
                _log.warning("cluster_unavailable", cause=str(error))
                await asyncio.sleep(_RETRY_PAUSE.total_seconds())
            else:
                for step in Step:
                    self._contact.answered(step)
                self._observer.note(LeadTaken(self._services.epoch))
                return

    def _is_sound(self, sight: LedgerSight) -> bool:
        """Tell whether the ledger has lost nothing: one that has forgotten an epoch has forgotten more."""
        return sight.is_sound and sight.epoch >= self._services.epoch

    async def _rebuild(self) -> None:
        """Put back what the resources prove, with the gate closed."""
        await self._ledger.close_gate()
        rebuild = LedgerRebuild(self._services)
        await rebuild.run()
        # An epoch that the resources know of is never given out again.
        self._services.epoch = max(self._services.epoch, rebuild.epoch_seen)

    async def _watch_ledger(self) -> None:
        while True:
            await asyncio.sleep(self._settings.ledger_look.total_seconds())
            try:
                sight = await self._ledger.look()
            except LedgerUnavailableError as error:
                self._ledger_was_silent(error)
                continue
            self._contact.answered(Step.LOOK)
            self._services.compare_epoch(sight)
            if not self._is_sound(sight):
                said = f"generation {sight.generation or 'lost'}, open: {sight.is_open}, epoch {sight.epoch}"
                raise LedgerLostError(said)

    def _ledger_was_silent(self, error: LedgerUnavailableError) -> None:
        self._contact.failed(Step.LOOK, error)

    # --- what the cluster shows

    async def _watch(self) -> None:
        while True:
            try:
                async for change in self._cluster.watch():
                    self._see(change)
            except ClusterUnavailableError as error:
                _log.warning("cluster_unavailable", cause=str(error))
            await asyncio.sleep(_RETRY_PAUSE.total_seconds())

    def _see(self, change: ClusterChange) -> None:
        seen, gone = change.object, change.kind is ChangeKind.GONE
        self._note_namespace(seen.metadata.namespace)
        match seen:
            case AgentTool():
                self._see_tool(seen, gone=gone)
            case AgentRun():
                self._see_run(seen, gone=gone)
            case AgentNode():
                if gone:
                    self._queues.post(run_of(seen.metadata), NodeGone(seen))
            case AgentApproval():
                self._see_approval(seen, gone=gone)
            case _:
                assert_never(seen)

    def _note_namespace(self, namespace: str) -> None:
        if namespace not in self._namespaces:
            self._namespaces[namespace] = None
            self._namespace_seen.set()

    def _see_tool(self, tool: AgentTool, *, gone: bool) -> None:
        if gone:
            self._services.tools.drop(tool)
            return
        self._services.tools.put(tool)
        self._wake_waiting(tool.metadata.namespace)

    def _wake_waiting(self, namespace: str) -> None:
        for key in self._waiting.get(namespace, {}):
            self._queues.post(key, ToolsChanged())

    def _see_run(self, seen: AgentRun, *, gone: bool, fetched: bool = False) -> None:
        key = (seen.metadata.namespace, seen.metadata.uid)
        known = self._queues.find(key)
        if gone:
            name = (seen.metadata.namespace, seen.metadata.name)
            if name in self._names and self._names[name].uid == seen.metadata.uid:
                del self._names[name]
            self.lose_run(key)
            return
        if key in self._ended:
            if not fetched or (seen.status is not None and seen.status.phase in TERMINAL_RUN_PHASES):
                self._note_ended(seen)
                return
            # Not a late event, which changes nothing: the cluster was restored from a copy that is older than its end.
            del self._ended[key]
        if known is None:
            # What ended long ago and asks nobody anything needs no memory.
            status = seen.status
            early = self._early_approvals.pop(key, {})
            if status is not None and status.phase in TERMINAL_RUN_PHASES and not status.inbox:
                self._note_known(seen, status.root_uid, ended=True)
                self._note_ended(seen)
                self._wake_waiting(seen.metadata.namespace)
                return
            known = new_memory(seen)
            self._queues.add(known)
            self._waiting.setdefault(key[0], {})[key] = None
            self._note_known(seen, known.status.root_uid, ended=False)
            for _, report in self._orphans.pop(key, ()):
                known.inputs.append(report)
            known.inputs.extend(ApprovalSeen(approval) for approval in early.values())
        elif seen.metadata.resource_version == known.run.metadata.resource_version:
            return
        self._queues.post(key, RunSeen(seen, fetched))

    def see_run(self, run: AgentRun) -> None:
        """Take a run in that no watch has told of, or not in this version."""
        self._see_run(run, gone=False, fetched=True)

    def lose_run(self, key: RunKey) -> None:
        """Note that a run does not exist any more."""
        self._ended.pop(key, None)
        self._early_approvals.pop(key, None)
        if self._queues.find(key) is not None:
            self._queues.post(key, RunGone())

    def _note_ended(self, run: AgentRun) -> None:
        meta, status = run.metadata, run.status
        finished = status.finished_at if status else None
        self._ended[meta.namespace, meta.uid] = EndedRun(
            namespace=meta.namespace,
            uid=meta.uid,
            name=meta.name,
            resource_version=meta.resource_version,
            finished_at=finished or self._clock.now(),
            ttl=run.spec.ttl_after_finished,
        )

    def _note_known(self, run: AgentRun, root_uid: str, *, ended: bool) -> None:
        meta = run.metadata
        self._names[meta.namespace, meta.name] = KnownRun(meta.uid, root_uid or meta.uid, ended)

    def _see_approval(self, seen: AgentApproval, *, gone: bool) -> None:
        key = run_of(seen.metadata)
        run = self._queues.find(key)
        if run is None:
            self._keep_early_approval(key, seen, gone=gone)
            return
        if gone:
            self._queues.post(key, ApprovalGone(seen))
            return
        known = run.approvals.get(seen.metadata.name)
        if known is None or known.metadata.resource_version != seen.metadata.resource_version:
            self._queues.post(key, ApprovalSeen(seen))

    def _keep_early_approval(self, key: RunKey, seen: AgentApproval, *, gone: bool) -> None:
        """Keep what the watch of approvals tells before the watch of runs: it holds a decision perhaps."""
        early = self._early_approvals.setdefault(key, {})
        early.pop(seen.metadata.name, None)
        if not gone and key not in self._ended:
            early[seen.metadata.name] = seen
        if not early:
            del self._early_approvals[key]

    # --- what workers report

    async def _read_reports(self) -> None:
        await self._namespace_seen.wait()
        block_ms = round(self._settings.report_block / timedelta(milliseconds=1))
        while True:
            try:
                reports = await self._ledger.read_reports(
                    list(self._namespaces), self._settings.consumer, self._settings.reports_at_once, block_ms
                )
                self._observer.note(ReportsRead(len(reports)))
                for report_id, report in reports:
                    self._deliver(report_id, report)
                self._give_up_orphans()
            except LedgerUnavailableError as error:
                self._contact.failed(Step.REPORTS, error)
                await self._contact.pause(Step.REPORTS)
            else:
                self._contact.answered(Step.REPORTS)

    def _deliver(self, report_id: str, report: Report) -> None:
        key = (report.namespace, report.run_uid)
        arrived = ReportArrived(report_id, report)
        if self._queues.find(key) is not None:
            self._queues.post(key, arrived)
            return
        # The cluster may show its run later: after a start, reports and runs come in any order.
        self._orphans.setdefault(key, []).append((self._clock.now(), arrived))

    def _give_up_orphans(self) -> None:
        now = self._clock.now()
        for key, waiting in list(self._orphans.items()):
            if key in self._ended or now - waiting[0][0] >= _ORPHAN_WAIT:
                self._acknowledger.note(key[0], [arrived.id for _, arrived in waiting])
                del self._orphans[key]

    # --- time

    async def _keep_time(self) -> None:
        while True:
            self._timer_moved.clear()
            now = self._clock.now()
            for key, path in self._services.timers.pop_due(now):
                self._queues.post(key, Woken(path))
            if self._park_until is not None and self._park_until <= now:
                self._park_until = None
                self._plan_pump()
            moments = [at for at in (self._services.timers.next(), self._park_until) if at is not None]
            try:
                wait = max((min(moments) - now).total_seconds(), _TICK) if moments else None
                async with asyncio.timeout(None if wait is None else glance_within(wait)):
                    await self._timer_moved.wait()
            except TimeoutError:
                continue

    # --- slots

    def _grant(self, key: RunKey, path: str) -> None:
        self._queues.post(key, Granted(path))

    def _post_to_known(self, key: RunKey, happened: RunInput) -> None:
        if self._queues.find(key) is not None:
            self._queues.post(key, happened)

    def _plan_pump(self) -> None:
        if not self._pump_planned:
            self._pump_planned = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_planned = False
        if self._stopping.is_set():
            return
        parked = self._dispatcher.pump(self._clock.now())
        if parked is not None:
            self._park_until = parked
            self._timer_moved.set()
        if self._dispatcher.has_unknown_pool():
            self._pools_wanted.set()

    async def _look_at_pools(self) -> None:
        while True:
            self._pools_wanted.clear()
            try:
                for namespace, pool in self._dispatcher.pools():
                    slots = await self._ledger.find_pool_slots(namespace, pool)
                    if self._dispatcher.set_pool_slots(namespace, pool, slots):
                        self._plan_pump()
                for namespace, queue in self._jobs.queues():
                    self._jobs.set_slots(namespace, queue, await self._ledger.find_pool_slots(namespace, queue))
            except LedgerUnavailableError as error:
                self._ledger_was_silent(error)
            try:
                async with asyncio.timeout(self._settings.pool_poll.total_seconds()):
                    await self._pools_wanted.wait()
            except TimeoutError:
                continue

    async def _renew_slots(self) -> None:
        while True:
            await asyncio.sleep(SLOT_LEASE.total_seconds() / 4)
            try:
                for run in list(self._queues):
                    holders = _slot_holders(run)
                    if holders:
                        await self._ledger.renew_slots(run.namespace, holders)
            except LedgerUnavailableError as error:
                self._ledger_was_silent(error)

    # --- sessions and order in the house

    async def _watch_sessions(self) -> None:
        await self._sessions.watch(lambda: self._queues)
        await asyncio.Event().wait()

    async def _keep_house(self) -> None:
        await self._housekeeping.run()
        await asyncio.Event().wait()

    # --- after turns

    def _after_turn(self, run: RunMemory) -> None:
        self._plan_pump()
        if run.loaded:
            self._waiting.get(run.namespace, {}).pop(run.key, None)
        if not run.closed:
            self._note_root(run)
            return
        self._dispatcher_forget(run)
        done = not run.unwritten and not run.desk_work and (run.deleted or run.stored_status is run.status)
        if not done:
            return
        if not run.deleted:
            self._note_known(run.run, run.status.root_uid, ended=True)
            self._wake_waiting(run.namespace)
            if run.status.inbox:
                return
            self._note_ended(run.run.model_copy(update={"status": run.status}))
        self._services.timers.forget(run.key)
        self._queues.drop(run.key)

    def _note_root(self, run: RunMemory) -> None:
        name = (run.namespace, run.name)
        known = self._names.get(name)
        root = run.status.root_uid or run.uid
        if known is not None and known.uid == run.uid and known.root_uid != root:
            self._names[name] = KnownRun(run.uid, root, ended=False)

    def _dispatcher_forget(self, run: RunMemory) -> None:
        for node in run.nodes.values():
            if node.queued or node.granted:
                self._dispatcher.drop(node.uid)
                self._jobs.forget(node.uid)
                node.queued = node.granted = False


def _slot_holders(run: RunMemory) -> list[tuple[str, int]]:
    """Return who holds slots without a heartbeat of its own."""
    queued = [run.nodes[path] for path in run.by_phase[NodePhase.QUEUED]]
    timed_out = [run.nodes[path] for path in run.by_phase[NodePhase.TIMED_OUT]]
    return [
        *((node.uid, node.status.attempt + 1) for node in queued),
        *((node.uid, node.status.attempt) for node in timed_out),
    ]
