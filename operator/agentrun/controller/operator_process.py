"""The composition root of the operator: engine, ledger, API server and kopf in one loop."""

from __future__ import annotations

import asyncio
import functools
import secrets
import signal
import socket
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_cluster import ApiCluster
from agentrun.controller.event_poster import EventPoster
from agentrun.controller.install_binding import InstallBinding
from agentrun.controller.jobs.jobs_of_process import build_job_keeper
from agentrun.controller.kopf_source import KopfSource, Listeners
from agentrun.controller.leadership import Leadership, LeaseTiming
from agentrun.controller.node_deletions import NodeDeletions
from agentrun.controller.operator_settings import OperatorSettings
from agentrun.controller.operator_signs import OperatorSigns
from agentrun.controller.pools.pools_of_process import build_pool_keeper, build_worker_access
from agentrun.controller.served_kinds import wait_for_kinds, warn_of_missing_namespaces
from agentrun.controller.session_leases import ApiSessionLeases
from agentrun.controller.unreadable_objects import UnreadableObjects
from agentrun.controller.webhook.seal_key import SealKey, SealVerifier
from agentrun.controller.webhook.stored_secrets import StoredSecrets
from agentrun.controller.webhook.webhook_configurations import WebhookPlace
from agentrun.controller.webhook.webhook_service import WebhookService, WebhookSettings
from agentrun.decisions.decision_authority import UnverifiedDecisions
from agentrun.decisions.facts import Problem
from agentrun.engine.clock import SystemClock, SystemEntropy
from agentrun.engine.observer import Observers
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.schema_checker import to_problems
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.schemas.validator import SchemaValidator

_log = structlog.get_logger("agentrun.controller")
_STOP_WITHIN = 15.0
"""Seconds for the engine to end after SIGTERM; everything together stays well below a pod's grace period of 30 s."""
_CLOSE_WITHIN = 5.0
"""Seconds for what is closed after it: watches, the webhook, the Lease."""


class OperatorProcess:
    """One operator: observes, decides, and writes, until it is stopped or another one has taken the lead."""

    def __init__(self, settings: OperatorSettings, access: ApiAccess) -> None:
        self._settings = settings
        self._access = access
        self._validator = SchemaValidator()
        self._stopping = asyncio.Event()
        self._signs = OperatorSigns(settings.listen)

    def stop(self) -> None:
        """Have :meth:`run` end in order."""
        if not self._stopping.is_set():
            _log.info(
                "stopping", waits_for="turns under way; then the Lease is given back", at_most_seconds=_STOP_WITHIN
            )
        self._signs.note_stopping()
        self._stopping.set()

    def listen_to_signals(self) -> None:
        """Stop at SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def run(self) -> None:
        """Work until :meth:`stop`.

        Raises :class:`~agentrun.engine.services.EpochLostError` or
        :class:`~agentrun.controller.leadership.LeadershipLostError` when another operator leads, and what a part
        cannot go on from: the process is to be started anew then.
        """
        settings = self._settings
        ledger = RedisLedger.connect(
            settings.redis.get_secret_value(), LedgerSettings(install=settings.install, durability=settings.durability)
        )
        try:
            async with self._signs.shown(ledger), ApiClient(self._access, self._signs.metrics.note_request) as client:
                key = SealKey(StoredSecrets(client, self._namespace), f"{settings.install}-decision-seal")
                webhook = self._build_webhook(client, key)
                try:
                    await self._serve(client, ledger, webhook, SealVerifier(key))
                finally:
                    if webhook is not None:
                        await _within(_CLOSE_WITHIN, webhook.stop(), "the webhook")
        finally:
            await ledger.close()

    @property
    def _namespace(self) -> str:
        """Return where the operator's own objects stand."""
        return self._settings.lease_namespace or self._access.default_namespace

    def _build_webhook(self, client: ApiClient, key: SealKey) -> WebhookService | None:
        settings = self._settings
        if settings.webhook_listen is None:
            return None
        name = f"{settings.install}-webhook"
        return WebhookService(
            client,
            SystemClock(),
            key,
            self._check_schema,
            WebhookSettings(
                listen=settings.webhook_listen,
                place=WebhookPlace(settings.webhook_name or name, settings.webhook_url, tuple(settings.namespaces)),
                service=settings.webhook_service or name,
                namespace=self._namespace,
                certificates=f"{name}-tls",
                life=settings.webhook_certificate_life,
                settle=settings.webhook_settle,
                every=settings.webhook_look,
                certificate_folder=settings.webhook_certificate_folder,
                policies=settings.policies,
            ),
        )

    def _check_schema(self, schema: JsonObject) -> tuple[Problem, ...]:
        return to_problems(self._validator.check(schema))

    async def _serve(
        self, client: ApiClient, ledger: RedisLedger, webhook: WebhookService | None, verifier: SealVerifier
    ) -> None:
        settings, signs, clock = self._settings, self._signs, SystemClock()
        namespaces: Sequence[str | None] = settings.namespaces or (None,)
        cluster = ApiCluster(client, settings.namespaces)
        duration = settings.lease_duration
        leadership = Leadership(
            client,
            self._namespace,
            f"{settings.install}-operator",
            settings.identity or f"{socket.gethostname()}-{secrets.token_hex(4)}",
            clock,
            LeaseTiming(duration, duration * 2 / 3, duration / 8),
        )
        asked = asyncio.create_task(self._stopping.wait(), name="stop")
        if not await _comes_before(self._campaign(client, leadership, webhook), asked):
            asked.cancel()
            return
        unverified = settings.unverified_decisions
        events = EventPoster(client, clock, leadership.identity)
        binding = InstallBinding(client, ledger, settings.install, settings.namespaces)

        async def may_lead() -> None:
            # Who stood still while another took the lead touches nothing of the ledger.
            await leadership.confirm()
            await binding.bind()

        scheduler = Scheduler(
            cluster=cluster,
            ledger=ledger,
            clock=clock,
            entropy=SystemEntropy(),
            validator=self._validator,
            settings=SchedulerSettings(
                install=settings.install,
                global_limit=settings.global_limit,
                reserved_slots=settings.reserved_slots,
                namespace_limit=settings.namespace_limit,
                policies=settings.policies,
                sweep_every=settings.sweep_every,
                nodes_kept=settings.retention_nodes,
                runs_kept_with_nodes=settings.retention_max_finished_runs,
                unverified_decisions=unverified,
                jobs=settings.jobs_enabled,
                jobs_starting=settings.jobs_starting,
            ),
            sessions=ApiSessionLeases(client, clock, settings.session_lease),
            observer=Observers(signs.metrics, events),
            # Without a webhook there is no key, and rights on Secrets are not asked for; unless seals of another
            # process's webhook are all that counts.
            verifier=verifier if webhook is not None or unverified is UnverifiedDecisions.REFUSE else None,
            seen_epoch=leadership.epoch,
            may_lead=may_lead,
            record_lead=leadership.record_epoch,
        )
        heard = signs.metrics.note_watch
        refuse = UnreadableObjects(client, clock).refuse
        source = KopfSource(
            self._access,
            settings.namespaces,
            Listeners(cluster.tell, refuse, heard),
            functools.partial(wait_for_kinds, client),
        )
        engine = asyncio.create_task(scheduler.run(), name="scheduler")
        watches = [asyncio.create_task(NodeDeletions(client, space, cluster.tell, heard).run()) for space in namespaces]
        lead = asyncio.create_task(leadership.hold(), name="lead")
        observing = asyncio.create_task(source.run(), name="kopf")
        posting = asyncio.create_task(events.run(), name="events")
        access = build_worker_access(settings, client, ledger, clock)
        if settings.pools_enabled:
            pools = build_pool_keeper(settings, client, access, clock, scheduler, cluster, signs.metrics.show_pools)
            watches.append(asyncio.create_task(pools.run(), name="pools"))
        if settings.jobs_enabled:
            jobs = build_job_keeper(settings, client, access, clock, scheduler, cluster, signs.metrics.show_jobs)
            watches.append(asyncio.create_task(jobs.run(), name="jobs"))
        signs.follow(scheduler.survey, engine, *watches, lead, observing, posting)
        _log.info(
            "started",
            server=self._access.server,
            namespaces=settings.namespaces or "all",
            webhook=str(settings.webhook_listen or "none"),
            unverified_decisions=unverified.value,
            pools=settings.pools_enabled,
            jobs=settings.jobs_enabled,
        )
        done, _ = await asyncio.wait(
            (engine, *watches, lead, observing, posting, asked), return_when=asyncio.FIRST_COMPLETED
        )
        if asked in done:
            # The engine ends its turns first, under the lead. Who lost the lead has no time for that.
            scheduler.stop()
            _, working = await asyncio.wait((engine,), timeout=_STOP_WITHIN)
            if working:
                _log.warning("engine_cut_off", after_seconds=_STOP_WITHIN)
        await _cancel(engine, *watches, lead, posting, observing, asked)
        await _within(_CLOSE_WITHIN, leadership.release(), "the Lease")
        for task in done - {asked}:
            task.result()
            raise RuntimeError(f"{task.get_name()} ended although nobody asked it to")
        _log.info("stopped")

    async def _campaign(self, client: ApiClient, leadership: Leadership, webhook: WebhookService | None) -> None:
        await wait_for_kinds(client)
        await warn_of_missing_namespaces(client, dict.fromkeys((*self._settings.namespaces, self._namespace)))
        if webhook is not None:
            await webhook.start()
        self._signs.note_candidate()
        await leadership.acquire()
        if webhook is not None:
            webhook.lead()


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _within(seconds: float, work: Coroutine[Any, Any, None], what: str) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        _log.warning("not_closed_in_time", what=what, after_seconds=seconds)


async def _comes_before(wait: Coroutine[Any, Any, None], asked: asyncio.Task[bool]) -> bool:
    """Await something unless the process is asked to stop meanwhile; return whether it came."""
    task = asyncio.create_task(wait)
    await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return False
