"""An httpx transport that connects to allowed addresses only, and knows whether a first byte has left.

One connection for one request: what was sent is then exact, and no stale connection turns a call into an unknown one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import typing
from collections.abc import AsyncIterator, Callable, Iterable

import httpcore
import httpx

from agentrun_worker.addresses import refuse_address

Resolve = Callable[[str, int], typing.Awaitable[list[str]]]
"""(host, port) to addresses as texts."""


class AddressRefusedError(Exception):
    """No address of the host may be connected to."""


class TooLateToSendError(Exception):
    """The claim or the deadline ran out before the first byte: nothing was sent."""


async def resolve_host(host: str, port: int) -> list[str]:
    """Ask the system's resolver. Raises :class:`OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class SendGuard:
    """The last check before the first byte, and the memory that there was one."""

    def __init__(self, may_send: Callable[[], bool]) -> None:
        self._may_send = may_send
        self.sent = False

    def before_write(self) -> None:
        """Raise :class:`TooLateToSendError` instead of a first byte that comes too late."""
        if not self.sent:
            if not self._may_send():
                raise TooLateToSendError
            self.sent = True


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends one request over one fresh connection."""

    def __init__(self, guard: SendGuard, *, allow_private: bool, resolve: Resolve, trust: ssl.SSLContext) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=_GuardedBackend(guard, allow_private, resolve),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; errors are httpcore's, or this module's."""
        if not isinstance(request.stream, httpx.AsyncByteStream):
            raise TypeError("requests are sent with a body of bytes")
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        if not isinstance(answer.stream, typing.AsyncIterable):
            raise TypeError("answers are read asynchronously")
        return httpx.Response(
            status_code=answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        """Drop the connection."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: typing.AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, guard: SendGuard, allow_private: bool, resolve: Resolve) -> None:
        self._guard = guard
        self._allow_private = allow_private
        self._resolve = resolve
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[typing.Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        refusals: list[str] = []
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for position, address in enumerate(addresses):
            refusal = refuse_address(address, allow_private=self._allow_private)
            if refusal is not None:
                refusals.append(refusal)
                continue
            # An address that swallows packets leaves time for the next one.
            share = None if timeout is None else timeout / (len(addresses) - position)
            try:
                # The address that was judged is the one that is connected to: no second look-up can change it.
                stream = await self._backend.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
                continue
            return _GuardedStream(stream, self._guard)
        if refusals and len(refusals) == len(addresses):
            raise AddressRefusedError(f"{host}: {'; '.join(refusals)}")
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _GuardedStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, guard: SendGuard) -> None:
        self._stream = stream
        self._guard = guard

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._guard.before_write()
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return _GuardedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._guard)

    def get_extra_info(self, info: str) -> typing.Any:
        return self._stream.get_extra_info(info)
