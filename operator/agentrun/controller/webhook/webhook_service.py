"""The webhook of one operator process, put together: server, certificates, seals."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import ObjectRefusedError
from agentrun.controller.webhook.access_reviews import AccessReviews
from agentrun.controller.webhook.approval_admission import ApprovalAdmission
from agentrun.controller.webhook.certificate_folder import CertificateFolder
from agentrun.controller.webhook.certificate_keeper import CertificateKeeper, CertificateTerms
from agentrun.controller.webhook.object_admission import ObjectAdmission
from agentrun.controller.webhook.seal_key import SealKey, UnusableKeyError
from agentrun.controller.webhook.stored_secrets import StoredSecrets
from agentrun.controller.webhook.webhook_configurations import WebhookConfigurations, WebhookPlace
from agentrun.controller.webhook.webhook_server import WebhookServer
from agentrun.decisions.admission import CheckSchema
from agentrun.decisions.namespace_policy import NO_POLICIES, NamespacePolicies
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
    certificate_folder: Path | None = None
    """Where somebody else puts the certificates; None: they are made here."""
    policies: NamespacePolicies = NO_POLICIES
    """What the runs of each namespace may ask for."""


class CertificateSource(Protocol):
    """Where certificates come from; both kinds are given the server that they are for."""

    @property
    def serves(self) -> bool:
        """Tell whether there was a certificate to serve."""
        ...

    def lead(self) -> None:
        """Take over what one replica does for all."""
        ...

    async def look(self) -> None:
        """Serve the newest certificate."""
        ...


class WebhookService:
    """Serves from :meth:`start` to :meth:`stop`, as leader or not."""

    def __init__(
        self, client: ApiClient, clock: Clock, key: SealKey, check_schema: CheckSchema, settings: WebhookSettings
    ) -> None:
        self._settings = settings
        self._key = key
        judge = AccessReviews(client)
        self._server = WebhookServer(
            settings.listen,
            ApprovalAdmission(judge, key, clock),
            ObjectAdmission(judge, check_schema, settings.policies),
        )
        self._certificates = _build_certificates(client, clock, settings, self._server)
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
        """Do what one replica does for all: renew the certificates, and show them to the API server."""
        self._certificates.lead()
        self._woken.set()

    async def stop(self) -> None:
        """Serve no longer."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._server.stop()

    async def _prepare(self) -> bool:
        try:
            await self._certificates.look()
            await self._key.fetch()
        except (ClusterUnavailableError, ConflictError, GoneError, ObjectRefusedError, UnusableKeyError) as error:
            _log.warning("webhook_not_ready", cause=str(error))
            return False
        return self._certificates.serves

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.every.total_seconds()):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await self._certificates.look()
            except Exception as error:  # noqa: BLE001 - the loop's edge: certificates outlive many bad rounds
                _log.warning("webhook_certificates_not_kept", cause=f"{type(error).__name__}: {error}")


def _build_certificates(
    client: ApiClient, clock: Clock, settings: WebhookSettings, server: WebhookServer
) -> CertificateSource:
    if settings.certificate_folder is not None:
        return CertificateFolder(settings.certificate_folder, clock, server.use)
    return CertificateKeeper(
        StoredSecrets(client, settings.namespace),
        WebhookConfigurations(client, settings.place),
        clock,
        CertificateTerms(settings.certificates, find_names(settings), settings.life, settings.settle),
        server.use,
    )


def find_names(settings: WebhookSettings) -> frozenset[str]:
    """Return the names that the API server may know the webhook by."""
    inside = f"{settings.service}.{settings.namespace}.svc"
    outside = urlsplit(settings.place.url).hostname if settings.place.url else None
    return frozenset([inside, f"{inside}.cluster.local", *([outside] if outside else [])])
