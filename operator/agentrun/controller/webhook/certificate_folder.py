"""Serves certificates that somebody else makes: a mounted folder with ``tls.crt`` and ``tls.key``, read ever again.

Stands in for the certificate keeper where cert-manager or an administrator issues and renews them. Then neither a
Secret of certificates nor ``caBundle`` is written here: whoever issues them sees to that as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from agentrun.controller.webhook.certificates import KeyPair, UnusableCertificatesError, find_end
from agentrun.engine.clock import Clock

CERTIFICATE, KEY = "tls.crt", "tls.key"
_log = structlog.get_logger("agentrun.controller")


class CertificateFolder:
    """One replica's view of the folder."""

    def __init__(self, folder: Path, clock: Clock, serve: Callable[[KeyPair], None]) -> None:
        """``serve`` is given the pair whenever it is another one."""
        self._folder = folder
        self._clock = clock
        self._serve = serve
        self._served: KeyPair | None = None
        self._fault = ""

    @property
    def serves(self) -> bool:
        """Tell whether there was a certificate to serve."""
        return self._served is not None

    def lead(self) -> None:
        """Do as before: there is nothing to renew, nor to show."""

    async def look(self) -> None:
        """Serve what stands in the folder; what cannot be served changes nothing, and is logged once."""
        try:
            pair = await asyncio.to_thread(_read, self._folder)
            # Between the two files another pair may have come: then they do not fit, and the next look reads both.
            ends = find_end(pair)
        except (OSError, UnusableCertificatesError) as error:
            self._note_fault(f"{type(error).__name__}: {error}")
            return
        self._note_fault(f"expired at {ends}" if ends <= self._clock.now() else "")
        if pair != self._served:
            self._serve(pair)
            self._served = pair
            _log.info("webhook_certificates_read", folder=str(self._folder), ends=str(ends))

    def _note_fault(self, fault: str) -> None:
        if fault and fault != self._fault:
            _log.warning("webhook_certificates_unusable", folder=str(self._folder), cause=fault)
        self._fault = fault


def _read(folder: Path) -> KeyPair:
    return KeyPair((folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes())
