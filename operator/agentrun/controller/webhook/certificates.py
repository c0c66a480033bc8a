"""The webhook's certificates as they are made, stored and read: an authority of its own and what it signs.

``CertificateSet`` is the content of the Secret; every change returns a new one. Times and lives are arguments.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agentrun.contract.model_base import format_time
from agentrun.controller.webhook.certificate_plan import CertificateSight, Life

_SKEW = timedelta(minutes=5)
"""Certificates are valid a little before they are made: clocks differ."""


class UnusableCertificatesError(Exception):
    """What is stored cannot be read as certificates and keys."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """Everything that is stored."""

    authority: KeyPair
    serving: KeyPair
    next_authority: KeyPair | None = None
    next_shown_at: datetime | None = None
    former_authority: bytes = b""
    """Its certificate alone: it signs nothing any more."""

    @property
    def bundle(self) -> bytes:
        """Return every authority that is to be trusted, PEM."""
        following = self.next_authority.certificate if self.next_authority else b""
        return self.authority.certificate + following + self.former_authority

    def look(self) -> CertificateSight:
        """Return what decisions are made of. Raises :class:`UnusableCertificatesError`."""
        serving = _load(self.serving.certificate)
        return CertificateSight(
            authority=_life(_load(self.authority.certificate)),
            serving=_life(serving),
            names=_names(serving),
            next_authority=_life(_load(self.next_authority.certificate)) if self.next_authority else None,
            next_shown_at=self.next_shown_at,
            former_authority=_life(_load(self.former_authority)) if self.former_authority else None,
        )

    # --- changes

    def reissue(self, names: frozenset[str], now: datetime) -> CertificateSet:
        """Return the set with a serving certificate for these names."""
        return replace(self, serving=_sign_serving(self.authority, names, now))

    def prepare(self, now: datetime, life: timedelta) -> CertificateSet:
        """Return the set with a next authority beside the present one."""
        return replace(self, next_authority=_make_authority(now, life), next_shown_at=None)

    def note_shown(self, now: datetime) -> CertificateSet:
        """Return the set with the moment since when the next authority is shown."""
        return replace(self, next_shown_at=now)

    def switch(self, names: frozenset[str], now: datetime) -> CertificateSet:
        """Return the set served under the next authority."""
        if self.next_authority is None:
            return self
        return CertificateSet(
            authority=self.next_authority,
            serving=_sign_serving(self.next_authority, names, now),
            former_authority=self.authority.certificate,
        )

    def forget(self) -> CertificateSet:
        """Return the set without the former authority."""
        return replace(self, former_authority=b"")


def make_certificates(names: frozenset[str], now: datetime, life: timedelta) -> CertificateSet:
    """Return a new authority and a serving certificate of it."""
    authority = _make_authority(now, life)
    return CertificateSet(authority, _sign_serving(authority, names, now))


def to_secret(found: CertificateSet) -> dict[str, bytes]:
    """Return the fields of the Secret."""
    fields = {
        "ca.crt": found.authority.certificate,
        "ca.key": found.authority.key,
        "tls.crt": found.serving.certificate,
        "tls.key": found.serving.key,
    }
    if found.next_authority is not None:
        fields |= {"next-ca.crt": found.next_authority.certificate, "next-ca.key": found.next_authority.key}
    if found.next_shown_at is not None:
        fields["next-shown-at"] = format_time(found.next_shown_at).encode()
    if found.former_authority:
        fields["former-ca.crt"] = found.former_authority
    return fields


def from_secret(fields: Mapping[str, bytes]) -> CertificateSet:
    """Read the fields of the Secret. Raises :class:`UnusableCertificatesError`."""
    try:
        following = KeyPair(fields["next-ca.crt"], fields["next-ca.key"]) if "next-ca.crt" in fields else None
        shown = fields.get("next-shown-at", b"").decode()
        found = CertificateSet(
            authority=KeyPair(fields["ca.crt"], fields["ca.key"]),
            serving=KeyPair(fields["tls.crt"], fields["tls.key"]),
            next_authority=following,
            next_shown_at=datetime.fromisoformat(shown) if shown else None,
            former_authority=fields.get("former-ca.crt", b""),
        )
    except (KeyError, ValueError) as error:
        raise UnusableCertificatesError(f"{type(error).__name__}: {error}") from error
    for pair in (found.authority, found.serving, *((following,) if following else ())):
        if _load_key(pair).public_key() != _load(pair.certificate).public_key():
            raise UnusableCertificatesError("a certificate is not that of the key beside it")
    found.look()
    return found


def find_end(pair: KeyPair) -> datetime:
    """Return when a pair is over that may be somebody else's: any kind of key, the certificate first in its chain.

    Raises :class:`UnusableCertificatesError`, also where the key is not that of the certificate.
    """
    certificate = _load(pair.certificate)
    try:
        key = serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnusableCertificatesError(f"no private key: {error}") from error
    if key.public_key() != certificate.public_key():
        raise UnusableCertificatesError("the certificate is not that of the key beside it")
    return certificate.not_valid_after_utc


def _make_authority(now: datetime, life: timedelta) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Two authorities of one name in one bundle would be taken for each other.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"agentrun-webhook-{serial:x}"[:64])])
    certificate = (
        _builder(name, name, key, serial, now - min(_SKEW, life / 8), now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _sign_serving(authority: KeyPair, names: frozenset[str], now: datetime) -> KeyPair:
    issuer, issuer_key = _load(authority.certificate), _load_key(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agentrun-webhook")])
    begins, ends = issuer.not_valid_before_utc, issuer.not_valid_after_utc
    certificate = (
        _builder(subject, issuer.subject, key, x509.random_serial_number(), min(max(begins, now - _SKEW), ends), ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in sorted(names)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(_load_key(authority).public_key()), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = (str(address) for address in found.get_values_for_type(x509.IPAddress))
    return frozenset([*found.get_values_for_type(x509.DNSName), *addresses])


def _life(certificate: x509.Certificate) -> Life:
    return Life(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _load(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise UnusableCertificatesError(f"no certificate: {error}") from error


def _load_key(pair: KeyPair) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError) as error:
        raise UnusableCertificatesError(f"no private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UnusableCertificatesError("a private key is of another kind than ours")
    return key
