"""The webhook of one operator process, put together: server, certificates, seals."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import structlog

from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import ObjectRefusedError
from agentrun.controller.webhook.access_reviews import AccessReviews
from agentrun.controller.webhook.approval_admission import ApprovalAdmission
from agentrun.controller.webhook.certificate_keeper import CertificateKeeper, CertificateTerms
from agentrun.controller.webhook.seal_key import SealKey, UnusableKeyError
from agentrun.controller.webhook.stored_secrets import StoredSecrets
from agentrun.controller.webhook.webhook_configurations import WebhookConfigurations, WebhookPlace
from agentrun.controller.webhook.webhook_server import WebhookServer
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError
from agentrun.telemetry.listen_address import ListenAddress

_PAUSE = timedelta(seconds=1)
_log = structlog.get_logger("agentrun.controller")


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Settings of the webhook."""

    listen: ListenAddress
    place: WebhookPlace
    service: str
    """The Service that leads to it, in the operator's namespace."""
    namespace: str
    certificates: str
    """The Secret of the certificates."""
    life: timedelta
    settle: timedelta
    every: timedelta
    """How often the certificates are looked at."""


class WebhookService:
    """Serves from :meth:`start` to :meth:`stop`, as leader or not."""

    def __init__(self, client: ApiClient, clock: Clock, key: SealKey, settings: WebhookSettings) -> None:
        self._settings = settings
        self._key = key
        self._server = WebhookServer(settings.listen, ApprovalAdmission(AccessReviews(client), key, clock))
        self._keeper = CertificateKeeper(
            StoredSecrets(client, settings.namespace),
            WebhookConfigurations(client, settings.place),
            clock,
            CertificateTerms(settings.certificates, find_names(settings), settings.life, settings.settle),
            self._server.use,
        )
        self._keeping: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    async def start(self) -> None:
        """Return once it serves, with certificates and the key in place; waits for the API server.

        Raises :class:`~agentrun.telemetry.probe_server.CannotListenError`.
        """
        while True:
            if await self._prepare():
                break
            await asyncio.sleep(_PAUSE.total_seconds())
        await self._server.start()
        self._keeping = asyncio.create_task(self._keep(), name="webhook")

    def lead(self) -> None:
        """Renew the certificates from now on, and show them to the API server."""
        self._keeper.leads = True
        self._woken.set()

    async def stop(self) -> None:
        """Serve no longer."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._server.stop()

    async def _prepare(self) -> bool:
        try:
            await self._keeper.look()
            await self._key.fetch()
        except (ClusterUnavailableError, ConflictError, GoneError, ObjectRefusedError, UnusableKeyError) as error:
            _log.warning("webhook_not_ready", cause=str(error))
            return False
        return self._keeper.serves

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.every.total_seconds()):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await self._keeper.look()
            except Exception as error:  # noqa: BLE001 - the loop's edge: certificates outlive many bad rounds
                _log.warning("webhook_certificates_not_kept", cause=f"{type(error).__name__}: {error}")


def find_names(settings: WebhookSettings) -> frozenset[str]:
    """Return the names that the API server may know the webhook by."""
    inside = f"{settings.service}.{settings.namespace}.svc"
    outside = urlsplit(settings.place.url).hostname if settings.place.url else None
    return frozenset([inside, f"{inside}.cluster.local", *([outside] if outside else [])])
