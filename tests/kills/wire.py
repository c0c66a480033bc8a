"""The wire between one process and the ledger's server: a proxy that snags one command, before or after it is carried out.

Knows the ledger's operations by the scripts that pass it. What happens while a command hangs on the snag is the test's.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from types import TracebackType

from support.loopback_server import LoopbackServer, until_one_ends


class At(StrEnum):
    """Where on its way a command is snagged."""

    ARRIVES = "Arrives"
    """It has left the process; the server has not seen it."""
    CARRIED_OUT = "CarriedOut"
    """The server has carried it out; no byte of the answer has come back."""
    HALF_ANSWERED = "HalfAnswered"
    """Half of the answer has come back."""


@dataclass(frozen=True, slots=True)
class Snag:
    """What is snagged."""

    operation: str
    """The Lua file's name."""
    at: At
    occurrence: int = 1
    loses_first: bool = False
    """The reply to the first one is lost, and the connection with it; the snag waits for the next."""
    answer_holds: bytes = b""
    """Only an answer with these bytes counts."""


class Wire(LoopbackServer):
    """Listens on a free loopback port; a context manager."""

    def __init__(
        self,
        port: int,
        snag: Snag | None = None,
        strike: Callable[[], Awaitable[None]] | None = None,
        passes_on: bool = False,
    ) -> None:
        """``strike`` is awaited while the command hangs; with ``passes_on`` the command goes on its way afterwards."""
        super().__init__()
        self.port = port
        self.snag = snag
        self.strike = strike
        self.passes_on = passes_on
        self.is_armed: Callable[[], bool] = lambda: True
        """Only what comes while this holds is snagged."""
        self._seen = 0
        self._done = False
        self._names: dict[str, str] = {}
        self._strikes: list[asyncio.Future[None]] = []

    @property
    def url(self) -> str:
        """Where the process connects."""
        return f"redis://127.0.0.1:{self.listens_at}/0"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await asyncio.gather(*self._strikes, return_exceptions=True)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead one connection to the server; the server being away ends it."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            talk = _Talk(self, reader, writer, far_reader, far_writer)
            await until_one_ends(talk.commands(), talk.answers())
        finally:
            far_writer.close()

    def learn(self, command: list[bytes]) -> None:
        """Note what a script that is loaded does."""
        if command[0].upper() == b"SCRIPT" and command[1].upper() == b"LOAD":
            source = command[2].decode()
            for name, text in _OPERATIONS.items():
                if source.endswith(text):
                    self._names[hashlib.sha1(command[2], usedforsecurity=False).hexdigest()] = name

    def is_awaited(self, command: list[bytes]) -> bool:
        """Tell whether the command is of the kind to be snagged."""
        if self.snag is None or self._done or not self.is_armed() or command[0].upper() != b"EVALSHA":
            return False
        return self._names.get(command[1].decode()) == self.snag.operation

    def is_due(self) -> bool:
        """Count a command of that kind and tell whether it is the one."""
        assert self.snag is not None
        self._seen += 1
        wanted = self.snag.occurrence + (1 if self.snag.loses_first else 0)
        return self._seen == wanted

    def is_first(self) -> bool:
        """Tell whether the command counted last is one whose reply is to be lost."""
        assert self.snag is not None
        return self.snag.loses_first and self._seen == 1

    async def strike_now(self) -> bool:
        """Have it happen; tell whether the command goes on its way."""
        self._done = True
        assert self.strike is not None
        # What it strikes may end this very connection, and must be struck all the same.
        striking = asyncio.ensure_future(self.strike())
        self._strikes.append(striking)
        await asyncio.shield(striking)
        return self.passes_on


@dataclass(slots=True)
class _Talk:
    wire: Wire
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    far_reader: asyncio.StreamReader
    far_writer: asyncio.StreamWriter
    _awaits_answer: bool = False
    _loses_answer: bool = False

    async def commands(self) -> None:
        buffer = b""
        while data := await self.reader.read(65536):
            buffer += data
            while found := _read_command(buffer):
                command, length = found
                if not await self._pass_on(command, buffer[:length]):
                    return
                buffer = buffer[length:]

    async def _pass_on(self, command: list[bytes], raw: bytes) -> bool:
        wire = self.wire
        wire.learn(command)
        if wire.is_awaited(command):
            assert wire.snag is not None
            if wire.snag.answer_holds:
                self._awaits_answer = True
            elif wire.is_due():
                if wire.snag.at is At.ARRIVES and not await wire.strike_now():
                    return False
                self._awaits_answer = wire.snag.at is not At.ARRIVES
            else:
                self._loses_answer = wire.is_first()
        self.far_writer.write(raw)
        await self.far_writer.drain()
        return True

    async def answers(self) -> None:
        wire = self.wire
        while data := await self.far_reader.read(65536):
            if self._loses_answer:
                return
            if self._awaits_answer and wire.snag is not None and wire.snag.answer_holds in data:
                self._awaits_answer = False
                half = len(data) // 2 if wire.snag.at is At.HALF_ANSWERED else 0
                self.writer.write(data[:half])
                await self.writer.drain()
                if not await wire.strike_now():
                    return
                data = data[half:]
            self.writer.write(data)
            await self.writer.drain()


def _read_command(buffer: bytes) -> tuple[list[bytes], int] | None:
    """Return the first whole command (an array of bulk strings, see the RESP specification) and its length."""
    head, found, _ = buffer.partition(b"\r\n")
    if not found:
        return None
    at = len(head) + 2
    parts = []
    for _ in range(int(head[1:])):
        end = buffer.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(buffer[at + 1 : end])
        at = end + 2 + size + 2
        if len(buffer) < at:
            return None
        parts.append(buffer[end + 2 : at - 2])
    return parts, at


def _operations() -> Mapping[str, str]:
    folder = resources.files("agentrun.ledger") / "lua"
    return {
        entry.name.removesuffix(".lua"): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".lua")
    }


_OPERATIONS = _operations()
