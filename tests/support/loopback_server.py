"""A server on a free loopback port whose every connection is served by a task of its own, which ends with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class LoopbackServer:
    """A context manager; what a connection is about is its subclass's."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def listens_at(self) -> int:
        """The port."""
        if self._server is None:
            raise RuntimeError("the server has not been started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; that its other end goes away, or the server ends, is no error."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            await self.talk(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            return
        finally:
            self._talks.discard(task)
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()


async def until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Do several things at once until the first has ended; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
