"""The URL of the ledger's server as a setting: refuses what redis-py would fail on late, or take for something else.

Serves the settings of operator and worker and ``--redis`` of local runs. It connects to nothing.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr
from redis.asyncio import ConnectionPool

_SCHEMES = ("redis", "rediss", "unix")
_FORM = "write redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix:///PATH?db=DB"
_DATABASE = re.compile(r"/?([0-9]{1,6})?")


def check_ledger_url(url: str) -> str:
    """Return the URL if it can be used. Raises :class:`ValueError` naming it, its password left out, and the remedy."""
    scheme, sign, rest = url.partition("://")
    shown = repr(_without_password(url))
    if not sign or scheme.lower() not in _SCHEMES:
        near = f", such as redis://{_without_password(rest if sign else url)}" if url else ""
        raise ValueError(f"{shown} has no scheme that is known: {_FORM}{near}")
    try:
        path = urlsplit(url).path
        # Builds a connection, which says what options it knows; nothing is opened.
        ConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        # What stands there instead of a port may be half a password.
        why = "" if "@" in url else f" ({error})"
        raise ValueError(f"{shown} cannot be read{why}: {_FORM}") from error
    if scheme.lower() == "unix" and not path:
        raise ValueError(f"{shown} names no socket: {_FORM}")
    # redis-py takes database 0 for one that is no number.
    if scheme.lower() != "unix" and not _DATABASE.fullmatch(path):
        raise ValueError(f"{shown} names no database by its number: {_FORM}")
    return url


def _without_password(url: str) -> str:
    return re.sub(r"^([a-z]+://)?.*@", r"\1***@", url, flags=re.IGNORECASE)


def _check_secret(url: SecretStr) -> SecretStr:
    check_ledger_url(url.get_secret_value())
    return url


LedgerUrl: TypeAlias = Annotated[SecretStr, AfterValidator(_check_secret)]
"""A setting that holds such a URL; it may hold a password, so it is never shown."""
