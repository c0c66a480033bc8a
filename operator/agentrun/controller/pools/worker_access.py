"""How the workers of a namespace reach the ledger: a Secret there with its URL, made and renewed by the operator.

Called by the pool keeper before it makes pods. With users of their own, workers of one namespace cannot touch another's
keys; where the server lets nobody make users they share the operator's, if its settings say so. Whoever may read the
Secret is such a worker as far as the ledger knows.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from agentrun.contract.ledger_keys import short_hash
from agentrun.contract.model_base import format_time
from agentrun.controller.api_client import ApiClient
from agentrun.controller.pools.pool_manifests import BELONGS, INSTALL_LABEL, LedgerAccess
from agentrun.controller.pools.worker_pod import AUTHORITY_KEY, LEDGER_FOLDER, URL_KEY
from agentrun.controller.webhook.stored_secrets import StoredSecret, StoredSecrets
from agentrun.engine.clock import Clock
from agentrun.ledger.worker_users import worker_user_name

_PASSWORD, _FORMER, _MADE_AT = "password", "former-password", "made-at"
_BYTES = 32
_LOOK_EVERY = timedelta(seconds=30)
_USER_EVERY = timedelta(seconds=5)
"""A server that was started anew knows no user: its workers wait no longer than this for theirs."""


class Isolation(StrEnum):
    """What keeps the workers of one namespace from the keys of another."""

    USERS = "Users"
    """A user of the ledger's server for each namespace."""
    NONE = "None"
    """Nothing: all have the operator's own credentials."""


class LedgerUsers(Protocol):
    """Makes users of the ledger's server."""

    async def ensure(self, namespace: str, passwords: Sequence[str]) -> None:
        """Have the namespace's user, who is known by any of these passwords."""
        ...


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """What the operator's settings say about the workers' way to the ledger."""

    install: str
    url: str = field(repr=False)
    """As workers reach it; its credentials count without isolation alone."""
    isolation: Isolation = Isolation.USERS
    life: timedelta = timedelta(days=30)
    """How old a password may become; the former one is good until the next."""
    authority: Path | None = None
    """File with the certificate of the authority that signed the ledger's; None: the image's own count."""

    @property
    def secret(self) -> str:
        """The Secret's name, in each namespace with pools."""
        return worker_secret_name(self.install)


@dataclass(slots=True)
class _Known:
    secret: StoredSecret
    read_at: datetime
    ensured_at: datetime | None = None


class WorkerAccess:
    """The Secrets of one install's workers, and the users that they name."""

    def __init__(self, client: ApiClient, users: LedgerUsers, settings: AccessSettings, clock: Clock) -> None:
        self._client = client
        self._users = users
        self._settings = settings
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def ensure(self, namespace: str) -> LedgerAccess:
        """Have the Secret and its user, and say how pods get at them; asks nobody if it did so a moment ago.

        Raises what the API server raises, :class:`LedgerUnavailableError` and
        :class:`~agentrun.ledger.worker_users.UsersForbiddenError`.
        """
        now = self._clock.now()
        known = self._known.get(namespace)
        if known is None or now - known.read_at >= _LOOK_EVERY:
            ensured_at = known.ensured_at if known else None
            known = self._known[namespace] = _Known(await self._have_secret(namespace, now), now, ensured_at)
        if self._settings.isolation is Isolation.USERS:
            if known.ensured_at is None or now - known.ensured_at >= _USER_EVERY:
                await self._users.ensure(namespace, _passwords(known.secret.data))
                known.ensured_at = now
        # The URL holds the password: whatever pods have to be replaced for is in it.
        data = known.secret.data
        version = short_hash((data.get(URL_KEY, b"") + data.get(AUTHORITY_KEY, b"")).decode())[:16]
        return LedgerAccess(self._settings.secret, version)

    async def _have_secret(self, namespace: str, now: datetime) -> StoredSecret:
        labels = {**BELONGS, INSTALL_LABEL: self._settings.install}
        stored = StoredSecrets(self._client, namespace, labels)
        name = self._settings.secret
        found = await stored.find(name)
        if found is None:
            return await stored.create_if_absent(name, self._build(namespace, {}, now))
        wanted = self._build(namespace, found.data, now)
        if wanted == dict(found.data):
            return found
        # Good for both before anybody is told of the new one: pods that run have the former.
        if self._settings.isolation is Isolation.USERS:
            await self._users.ensure(namespace, _passwords(wanted))
        return await stored.replace(name, wanted, found)

    def _build(self, namespace: str, found: Mapping[str, bytes], now: datetime) -> dict[str, bytes]:
        settings = self._settings
        url, trusted = settings.url, {}
        if settings.authority is not None:
            trusted = {AUTHORITY_KEY: settings.authority.read_bytes()}
            url = _with_option(url, "ssl_ca_certs", f"{LEDGER_FOLDER}/{AUTHORITY_KEY}")
        if settings.isolation is Isolation.NONE:
            return {URL_KEY: url.encode(), **trusted}
        kept = {field: found[field] for field in (_PASSWORD, _FORMER, _MADE_AT) if found.get(field)}
        made_at = _read_time(kept.get(_MADE_AT))
        if _PASSWORD not in kept or made_at is None or now - made_at >= settings.life:
            former = {_FORMER: kept[_PASSWORD]} if _PASSWORD in kept else {}
            made = {_PASSWORD: secrets.token_urlsafe(_BYTES).encode(), _MADE_AT: format_time(now).encode()}
            kept = {**former, **made}
        user = worker_user_name(settings.install, namespace)
        return {**kept, **trusted, URL_KEY: _with_user(url, user, kept[_PASSWORD].decode()).encode()}


def worker_secret_name(install: str) -> str:
    """Return the name of the Secret with the ledger's URL for workers."""
    return f"agentrun-{install}-worker-ledger"


def _passwords(data: Mapping[str, bytes]) -> list[str]:
    return [data[field].decode() for field in (_PASSWORD, _FORMER) if data.get(field)]


def _with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{host}").geturl()


def _with_option(url: str, name: str, value: str) -> str:
    parts = urlsplit(url)
    options = [pair for pair in parse_qsl(parts.query) if pair[0] != name]
    return parts._replace(query=urlencode([*options, (name, value)], safe="/")).geturl()


def _read_time(text: bytes | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text.decode()) if text else None
    except ValueError:
        return None
