"""A TCP proxy in front of a ledger server that forwards a command and loses its reply."""

from __future__ import annotations

import asyncio

from support.loopback_server import LoopbackServer, until_one_ends


class LossyProxy(LoopbackServer):
    """Listens on a free loopback port; every connection leads to the server."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._drop = False

    @property
    def url(self) -> str:
        """Return where clients connect."""
        return f"redis://127.0.0.1:{self.listens_at}/0"

    def drop_next_reply(self) -> None:
        """Lose the next reply, and the connection with it; the command before it reaches the server."""
        self._drop = True

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead one connection to the server."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await until_one_ends(
                self._pump(reader, far_writer, replies=False), self._pump(far_reader, writer, replies=True)
            )
        finally:
            far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        while data := await reader.read(65536):
            if replies and self._drop:
                self._drop = False
                return
            writer.write(data)
            await writer.drain()
