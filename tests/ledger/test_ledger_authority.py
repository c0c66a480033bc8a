"""A ledger behind TLS is trusted by the authority that ``SSL_CERT_FILE`` names, as a pod of the chart has it."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as NoConnectionError

from agentrun.controller.webhook.certificates import CertificateSet, make_certificates
from agentrun.ledger.redis_connection import LedgerSettings, RedisConnection


@pytest.fixture(scope="module")
def certificates() -> CertificateSet:
    return make_certificates(frozenset({"localhost"}), datetime.now(UTC), timedelta(days=1))


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say yes to every command."""
    try:
        while chunk := await reader.read(4096):
            commands = sum(line.startswith(b"*") for line in chunk.split(b"\r\n"))
            writer.write(b"+OK\r\n" * commands)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "another authority"])
async def test_the_named_authority_is_trusted_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificates: CertificateSet, trusted: bool
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(certificates.serving.certificate)
    key.write_bytes(certificates.serving.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    other = make_certificates(frozenset({"localhost"}), datetime.now(UTC), timedelta(days=1))
    authority = tmp_path / "ca.crt"
    authority.write_bytes((certificates if trusted else other).authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    server = await asyncio.start_server(answer, "127.0.0.1", ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connection = RedisConnection(f"rediss://localhost:{port}/0?protocol=2", LedgerSettings())
        try:
            if trusted:
                assert await connection.client.execute_command("SET", "a", "b")
            else:
                with pytest.raises(NoConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                    await connection.client.execute_command("SET", "a", "b")
        finally:
            await connection.close()
