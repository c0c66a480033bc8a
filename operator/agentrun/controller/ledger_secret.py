"""The Secret of a ledger that a chart brings along: its password and URL, made once, by whoever comes first.

Called by ``agentrun operator make-ledger-secret`` before an operator starts: a template that made a password would make
another one each time. Talks to no ledger, and changes nothing that stands.
"""

from __future__ import annotations

import secrets
from urllib.parse import quote

from agentrun.controller.webhook.stored_secrets import StoredSecrets

PASSWORD, URL = "password", "url"
_BYTES = 32


class UnusableLedgerSecretError(Exception):
    """The Secret lacks a field; delete it, and a new one is made, or give it the field."""


async def ensure_ledger_secret(stored: StoredSecrets, name: str, host: str) -> None:
    """Have a Secret with a password, and the URL of the server at ``host`` (``HOST:PORT``) with it.

    Raises :class:`UnusableLedgerSecretError`, and what :meth:`ApiClient.request` raises.
    """
    found = await stored.find(name)
    if found is None:
        password = secrets.token_urlsafe(_BYTES)
        url = f"redis://:{quote(password, safe='')}@{host}/0"
        found = await stored.create_if_absent(name, {PASSWORD: password.encode(), URL: url.encode()})
    missing = [field for field in (PASSWORD, URL) if not found.data.get(field)]
    if missing:
        raise UnusableLedgerSecretError(
            f"Secret {name} has no {' and no '.join(missing)}: add it, or delete the Secret"
        )
