"""A provider of the test's own on loopback: says exactly the bytes it is told to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Behaviour = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]
"""What to do about a request that has been read whole."""
_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived; names of headers in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Provider:
    """A running server."""

    port: int = 0
    requests: list[Received] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a request has arrived."""

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[Provider]:
    """Run a provider that treats every request in one way."""
    provider = Provider()
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            received = await _read_request(reader)
            provider.requests.append(received)
            provider.asked.set()
            await behaviour(received, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            # The client has gone, or the test has ended.
            return
        finally:
            talks.discard(task)
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()
        for task in list(talks):
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await server.wait_closed()


def answer(status: int, body: bytes | str = b"", kind: str | None = "application/json", **headers: str) -> Behaviour:
    """Answer with a status, headers (underscores for hyphens) and a body."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(content)}", "Connection: close"]
    if kind is not None:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return say("\r\n".join(lines).encode() + _HEAD_END + content)


def say(raw: bytes) -> Behaviour:
    """Send these bytes and close."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return behave


def then(first: Behaviour, second: Behaviour) -> Behaviour:
    """Do one thing after the other."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        await first(received, writer)
        await second(received, writer)

    return behave


async def reset(received: Received, writer: asyncio.StreamWriter) -> None:
    """Break the connection off, as a machine that dies does."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def hang_up(received: Received, writer: asyncio.StreamWriter) -> None:
    """Close without a word."""


async def keep_silent(received: Received, writer: asyncio.StreamWriter) -> None:
    """Say nothing more, and keep the connection."""
    await asyncio.Event().wait()


def drip(part: bytes, pause: float) -> Behaviour:
    """Send a piece again and again, for ever."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return behave


def gzip_bomb(size: int) -> Behaviour:
    """Answer with a small body that unpacks to so many bytes."""
    return answer(200, gzip.compress(b'"' + b"a" * size + b'"', 9), Content_Encoding="gzip")


async def _read_request(reader: asyncio.StreamReader) -> Received:
    head = await reader.readuntil(_HEAD_END)
    first, *lines = head[: -len(_HEAD_END)].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body)
