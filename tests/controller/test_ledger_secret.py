"""The Secret of a bundled ledger: made once, never changed."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from agentrun.controller.ledger_secret import PASSWORD, URL, UnusableLedgerSecretError, ensure_ledger_secret
from agentrun.controller.webhook.stored_secrets import StoredSecret, StoredSecrets

HOST = "agentrun-valkey.agents.svc:6379"


class Kept(StoredSecrets):
    """Secrets in memory; what another replica has made meanwhile is found at the creation alone."""

    def __init__(self, known: Mapping[str, bytes] | None = None, meanwhile: Mapping[str, bytes] | None = None) -> None:
        self.known = known
        self._meanwhile = meanwhile

    async def find(self, name: str) -> StoredSecret | None:
        return StoredSecret(self.known, "1") if self.known is not None else None

    async def create_if_absent(self, name: str, data: Mapping[str, bytes]) -> StoredSecret:
        self.known = self._meanwhile or data
        return StoredSecret(self.known, "1")


async def test_the_url_leads_to_the_server_with_the_password() -> None:
    stored = Kept()
    await ensure_ledger_secret(stored, "ledger", HOST)
    assert stored.known is not None
    url = urlsplit(stored.known[URL].decode())
    assert (url.scheme, url.hostname, url.port, url.path) == ("redis", "agentrun-valkey.agents.svc", 6379, "/0")
    assert url.password == stored.known[PASSWORD].decode()
    assert len(stored.known[PASSWORD]) >= 32


async def test_each_installation_has_a_password_of_its_own() -> None:
    one, other = Kept(), Kept()
    for stored in (one, other):
        await ensure_ledger_secret(stored, "ledger", HOST)
    assert one.known != other.known


@pytest.mark.parametrize("whose", ["known", "meanwhile"])
async def test_what_somebody_else_made_counts(whose: str) -> None:
    theirs = {PASSWORD: b"p", URL: b"redis://:p@h/0"}
    stored = Kept(**{whose: theirs})  # type: ignore[arg-type]
    await ensure_ledger_secret(stored, "ledger", HOST)
    assert stored.known == theirs


@pytest.mark.parametrize(
    "known, want",
    [
        ({}, "Secret ledger has no password and no url"),
        ({PASSWORD: b"p"}, "Secret ledger has no url"),
        ({PASSWORD: b"", URL: b"u"}, "Secret ledger has no password"),
    ],
)
async def test_a_secret_that_lacks_a_field_is_left_alone_and_named(known: dict[str, bytes], want: str) -> None:
    stored = Kept(known)
    with pytest.raises(UnusableLedgerSecretError, match=want):
        await ensure_ledger_secret(stored, "ledger", HOST)
    assert stored.known is known
