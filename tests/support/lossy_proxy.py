"""A TCP proxy in front of a ledger server that forwards a command and loses its reply."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class LossyProxy:
    """Listens on a free loopback port; every connection leads to the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._drop = False
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Return where clients connect."""
        if self._server is None:
            raise RuntimeError("the proxy has not been started")
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    def drop_next_reply(self) -> None:
        """Lose the next reply, and the connection with it; the command before it reaches the server."""
        self._drop = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        there = asyncio.create_task(self._pump(reader, far_writer, replies=False))
        back = asyncio.create_task(self._pump(far_reader, writer, replies=True))
        self._pumps |= {there, back}
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (there, back):
                task.cancel()
            for end in (writer, far_writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        while data := await reader.read(65536):
            if replies and self._drop:
                self._drop = False
                return
            writer.write(data)
            await writer.drain()
