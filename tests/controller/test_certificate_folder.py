"""Certificates that somebody else makes: what is served of a folder, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from agentrun.controller.webhook.certificate_folder import CERTIFICATE, KEY, CertificateFolder
from agentrun.controller.webhook.certificates import KeyPair, make_certificates

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIFE = timedelta(days=90)


class _Clock:
    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> datetime:
        return self.time


class Mounted:
    """A folder, and what was served of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = _Clock()
        self.served: list[KeyPair] = []
        self.certificates = CertificateFolder(folder, self.clock, self.served.append)

    def put(self, pair: KeyPair) -> None:
        (self.folder / CERTIFICATE).write_bytes(pair.certificate)
        (self.folder / KEY).write_bytes(pair.key)


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def a_pair(begins: datetime = BEGIN) -> KeyPair:
    return make_certificates(frozenset({"hook.ns.svc"}), begins, LIFE).serving


def an_rsa_pair() -> KeyPair:
    """Return a pair as cert-manager makes it where nothing else is said."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hook")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(BEGIN + LIFE)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ),
    )


async def test_nothing_is_served_before_both_files_are_there(mounted: Mounted) -> None:
    await mounted.certificates.look()
    pair = a_pair()
    (mounted.folder / CERTIFICATE).write_bytes(pair.certificate)
    await mounted.certificates.look()
    assert not mounted.certificates.serves
    mounted.put(pair)
    await mounted.certificates.look()
    assert mounted.certificates.serves
    assert mounted.served == [pair]


async def test_a_renewed_certificate_is_served_once(mounted: Mounted) -> None:
    first, second = an_rsa_pair(), a_pair()
    for pair in (first, first, second, second):
        mounted.put(pair)
        await mounted.certificates.look()
    assert mounted.served == [first, second]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(KeyPair(b"", b""), id="empty"),
        pytest.param(KeyPair(a_pair().certificate, a_pair().key), id="of two pairs"),
        pytest.param(KeyPair(a_pair().certificate, b"no key"), id="no key"),
    ],
)
async def test_what_does_not_fit_leaves_the_former_certificate_in_service(mounted: Mounted, broken: KeyPair) -> None:
    good = a_pair()
    for pair in (good, broken):
        mounted.put(pair)
        await mounted.certificates.look()
    assert mounted.served == [good]
    assert mounted.certificates.serves


async def test_a_certificate_that_has_run_out_is_said_once(mounted: Mounted) -> None:
    mounted.put(a_pair())
    await mounted.certificates.look()
    mounted.clock.time = BEGIN + LIFE
    with capture_logs() as logs:
        for _ in range(2):
            await mounted.certificates.look()
    assert [(line["log_level"], "expired at" in line["cause"]) for line in logs] == [("warning", True)]
