"""A failing http tool by kind, on a real server: class, effect and the next state of a None, an Idempotent and a Once tool."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from agentrun.contract.node import AgentNodeStatus
from agentrun.engine.settings import SchedulerSettings
from agentrun.local.local_run import LocalRun, LocalSetup
from support.manifest_texts import build_run, build_tools

FAST = "retry: {limit: 1, backoff: {initial: 1ms}}"
# kind: effect, class, reason, and what follows Running for a harmless tool (None, Idempotent) and for a Once tool.
TABLE = {
    "refused": ("NotExecuted", "Retryable", "ConnectionRefused", "RetryWait", "RetryWait"),
    "reset": ("Unknown", "Retryable", "ConnectionLost", "RetryWait", "TimedOut"),
    "429": ("NotExecuted", "Retryable", "RateLimited", "RetryWait", "RetryWait"),
    "400": ("NotExecuted", "Permanent", "HttpStatus", "Dead", "Dead"),
    "500": ("Unknown", "Retryable", "HttpStatus", "RetryWait", "TimedOut"),
    "502": ("Unknown", "Retryable", "HttpStatus", "RetryWait", "TimedOut"),
    "slow": ("Unknown", "Retryable", "AttemptTimeout", "RetryWait", "TimedOut"),
    "huge": ("Executed", "Permanent", "ResultTooLarge", "Quarantined", "Quarantined"),
    "html": ("Executed", "Permanent", "InvalidAnswer", "Quarantined", "Quarantined"),
    "misfit": ("Executed", "Permanent", "ResultInvalid", "Quarantined", "Quarantined"),
}


async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    kind = head.split(b" ")[1].decode().strip("/")
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        if kind == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        elif kind == "slow":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            await writer.drain()
            await asyncio.sleep(3)
        else:
            status, media, body = {
                "429": (429, "text/plain", b"later"),
                "400": (400, "text/plain", b"no"),
                "500": (500, "text/plain", b"oh"),
                "502": (502, "text/plain", b"oh"),
                "huge": (200, "application/json", b'"' + b"x" * 5000 + b'"'),
                "html": (200, "text/html", b"<p>"),
                "misfit": (200, "application/json", b'{"id": "seven"}'),
            }[kind]
            more = b"Retry-After: 1\r\n" if kind == "429" else b""
            writer.write(
                b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n%s"
                % (status, media.encode(), len(body), more, body)
            )
            await writer.drain()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.start_server(misbehave, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def tool(kind: str, effect: str, port: int) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = probe.getsockname()[1]
    target = closed if kind == "refused" else port
    return f"""
    {effect.lower()}-{kind}:
      type: http
      timeout: 1s
      sideEffect: {effect}
      {FAST}
      http: {{url: "http://127.0.0.1:{target}/{kind}", body: "{{params}}", allowPrivateAddresses: true, maxResponseBytes: 1000}}
      result: {{schema: {{type: object, properties: {{id: {{type: integer}}}}}}}}
    """


def next_state(status: AgentNodeStatus) -> str:
    """Return the state that the first attempt led to; Failed is passed through."""
    steps = [str(line.to_phase) for line in status.timeline]
    after = steps[steps.index("Running") + 1 :]
    return after[1] if after[0] == "Failed" else after[0]


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["None", "Idempotent", "Once"])
async def test_each_kind_of_failure_leads_where_the_table_says(effect: str, port: int) -> None:
    tools = "".join(tool(kind, effect, port) for kind in TABLE)
    nodes = ", ".join(f"{{name: n{kind}, tool: {effect.lower()}-{kind}, params: {{k: {kind!r}}}}}" for kind in TABLE)
    setup = LocalSetup(
        tools=build_tools(tools),
        runs=[build_run(f"{{onNodeFailure: Continue, nodes: [{nodes}]}}")],
        slots=16,
        settings=SchedulerSettings(coalesce=timedelta(0)),
    )
    outcome = await LocalRun(setup).execute()
    for kind, (want_effect, want_class, want_reason, harmless, once) in TABLE.items():
        status = next(node.status for node in outcome.nodes if node.spec.path == f"n{kind}")
        assert status is not None
        assert status.failure is not None, kind
        assert (status.failure.effect, status.failure.failure_class, status.failure.reason) == (
            want_effect,
            want_class,
            want_reason,
        ), kind
        assert next_state(status) == (once if effect == "Once" else harmless), kind
        if effect == "Once" and want_effect == "Unknown":
            assert (status.phase, status.reason, status.attempt) == ("Quarantined", "OutcomeUnknown", 1), kind
