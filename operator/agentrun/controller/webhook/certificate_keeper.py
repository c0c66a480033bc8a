"""Keeps the webhook's certificates: reads them, serves the newest ones, and as leader renews and shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

import structlog

from agentrun.controller.webhook.certificate_plan import CertificateStep, NoSight, decide_certificates
from agentrun.controller.webhook.certificates import (
    CertificateSet,
    KeyPair,
    UnusableCertificatesError,
    from_secret,
    make_certificates,
    to_secret,
)
from agentrun.controller.webhook.stored_secrets import StoredSecret, StoredSecrets
from agentrun.controller.webhook.webhook_configurations import WebhookConfigurations
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ConflictError

_STEPS_AT_ONCE = 4
_log = structlog.get_logger("agentrun.controller")


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """For whom certificates are made, and for how long."""

    secret: str
    names: frozenset[str]
    life: timedelta
    settle: timedelta
    """How long a bundle is shown before something is served that needs it."""


class CertificateKeeper:
    """One replica's hold of the shared certificates."""

    def __init__(
        self,
        stored: StoredSecrets,
        configurations: WebhookConfigurations,
        clock: Clock,
        terms: CertificateTerms,
        serve: Callable[[KeyPair], None],
    ) -> None:
        """``serve`` is given the serving certificate whenever it is another one."""
        self._stored = stored
        self._configurations = configurations
        self._clock = clock
        self._terms = terms
        self._serve = serve
        self._served: KeyPair | None = None
        self.leads = False
        """Whether this replica may renew."""

    @property
    def serves(self) -> bool:
        """Tell whether there was a certificate to serve."""
        return self._served is not None

    def lead(self) -> None:
        """Renew the certificates from now on, and show them to the API server."""
        self.leads = True

    async def look(self) -> None:
        """Do what there is to do now. May raise what :meth:`ApiClient.request` raises; the next look goes on."""
        for _ in range(_STEPS_AT_ONCE):
            try:
                if await self._take_step() is CertificateStep.KEEP:
                    return
            except ConflictError:
                # Another replica was faster: look at what it made.
                continue

    async def _take_step(self) -> CertificateStep:
        secret = await self._stored.find(self._terms.secret)
        found = _read(secret)
        if isinstance(found, CertificateSet):
            self._use(found)
            if self.leads:
                await self._configurations.show(found.bundle)
        step = decide_certificates(
            found.look() if isinstance(found, CertificateSet) else found,
            self._terms.names,
            self._clock.now(),
            self._terms.settle,
            leads=self.leads,
            # Had it not come through, this would not be reached.
            bundle_shown=self.leads,
        )
        if step is not CertificateStep.KEEP:
            await self._carry_out(step, found, secret)
            _log.info("webhook_certificates_changed", step=step.value, secret=self._terms.secret)
        return step

    def _use(self, found: CertificateSet) -> None:
        # What has expired is not served, it is replaced.
        if found.serving != self._served and not found.look().serving.has_ended(self._clock.now()):
            self._serve(found.serving)
            self._served = found.serving

    async def _carry_out(
        self, step: CertificateStep, found: CertificateSet | NoSight, secret: StoredSecret | None
    ) -> None:
        changed = self._change(step, found)
        if secret is None:
            await self._stored.create_if_absent(self._terms.secret, to_secret(changed))
        else:
            await self._stored.replace(self._terms.secret, to_secret(changed), secret)

    def _change(self, step: CertificateStep, found: CertificateSet | NoSight) -> CertificateSet:
        now, terms = self._clock.now(), self._terms
        if step in (CertificateStep.MAKE, CertificateStep.REPLACE) or isinstance(found, NoSight):
            return make_certificates(terms.names, now, terms.life)
        match step:
            case CertificateStep.REISSUE:
                return found.reissue(terms.names, now)
            case CertificateStep.PREPARE:
                return found.prepare(now, terms.life)
            case CertificateStep.NOTE_SHOWN:
                return found.note_shown(now)
            case CertificateStep.SWITCH:
                return found.switch(terms.names, now)
            case CertificateStep.FORGET:
                return found.forget()
            case CertificateStep.KEEP:
                return found
            case _:
                assert_never(step)


def _read(secret: StoredSecret | None) -> CertificateSet | NoSight:
    if secret is None:
        return NoSight.ABSENT
    try:
        return from_secret(secret.data)
    except UnusableCertificatesError as error:
        _log.warning("webhook_certificates_unusable", cause=str(error))
        return NoSight.UNUSABLE
