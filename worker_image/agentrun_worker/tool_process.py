"""The worker's side of a Python tool's process: starts it, talks with it in lines, keeps a tail of its prints, ends it.

Knows nothing of outcomes. It never waits for anybody who merely inherited a pipe: the process's own end counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import IO, Self

from agentrun.contract.exact_json import JsonObject, JsonRefusedError, canonical_json, parse_json

_LONGEST_LINE = 4 * 1024 * 1024
_TAIL_BYTES = 4096
_LEAVE_SECONDS = 1.0
"""How long a process may take to leave after its ending."""
_OWN_SETTINGS = "AGENTRUN_WORKER_"
"""The worker's settings hold its right to the ledger; no tool needs them."""


class ToolProcess:
    """One process for one call."""

    def __init__(
        self, child: asyncio.subprocess.Process, lines: IO[bytes], answers: IO[bytes], prints: IO[bytes]
    ) -> None:
        self._child = child
        self._lines = lines
        self._answers = answers
        self._prints = prints
        self._reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        self._transports: list[asyncio.ReadTransport] = []
        self._writing: asyncio.WriteTransport | None = None
        self._printing: asyncio.Future[None] | None = None
        self.tail = b""
        """The end of what the process has printed."""

    @classmethod
    async def start(cls, on_print: Callable[[bytes], None]) -> Self:
        """Start the process. Raises :class:`OSError`."""
        with contextlib.ExitStack() as close_if_failed:

            def pipe() -> tuple[IO[bytes], IO[bytes]]:
                reader, writer = os.pipe()
                return (
                    close_if_failed.enter_context(os.fdopen(reader, "rb", buffering=0)),
                    close_if_failed.enter_context(os.fdopen(writer, "wb", buffering=0)),
                )

            (child_in, lines), (answers, child_out), (prints, child_prints) = pipe(), pipe(), pipe()
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the worker's folder is no place to import from
                "-m",
                "agentrun_worker.python_child",
                str(child_in.fileno()),
                str(child_out.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=child_prints,
                stderr=child_prints,
                pass_fds=(child_in.fileno(), child_out.fileno()),
                start_new_session=True,
                env=_environment(),
            )
            close_if_failed.pop_all()
        for held in (child_in, child_out, child_prints):
            held.close()
        process = cls(child, lines, answers, prints)
        await process._connect(on_print)
        return process

    def send(self, message: JsonObject) -> None:
        """Send one line; a process that is gone does not read it."""
        if self._writing is not None and not self._writing.is_closing():
            self._writing.write(canonical_json(message).encode() + b"\n")

    async def read(self) -> JsonObject | None:
        """Return the next line, or None after the last. Raises :class:`ValueError` for what is no message."""
        try:
            line = await self._reader.readline()
        except ValueError as error:
            raise JsonRefusedError(f"a line of more than {_LONGEST_LINE} bytes") from error
        if not line:
            return None
        message = parse_json(line)
        if not isinstance(message, dict):
            raise JsonRefusedError("a message is an object")
        return message

    async def wait(self) -> int:
        """Return the exit code once the process has ended; negative: the signal that killed it."""
        return await self._child.wait()

    async def leave(self) -> None:
        """Give the process a moment to end by itself, after its ending has been read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._child.wait()
                # What it has left behind may hold the pipe for ever.
                self.kill()
                await self._drained()

    def kill(self) -> None:
        """End the process and everything that it started in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End whatever is left and give the pipes back."""
        self.kill()
        await self._child.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._drained()
        if self._printing is not None:
            self._printing.cancel()
        for transport in self._transports:
            transport.close()
        if self._writing is not None and not self._writing.is_closing():
            self._writing.abort()
        # The pipes are closed by the loop's next turn.
        await asyncio.sleep(0)

    async def _connect(self, on_print: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), self._answers)
        printed = asyncio.StreamReader()
        prints, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(printed), self._prints)
        self._writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._lines)
        self._transports = [transport, prints]
        self._printing = asyncio.ensure_future(self._keep_tail(printed, on_print))

    async def _keep_tail(self, printed: asyncio.StreamReader, on_print: Callable[[bytes], None]) -> None:
        while part := await printed.read(65536):
            self.tail = (self.tail + part)[-_TAIL_BYTES:]
            on_print(part)

    async def _drained(self) -> None:
        if self._printing is not None:
            await asyncio.shield(self._printing)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_SETTINGS)}
    return {**kept, "PYTHONUNBUFFERED": "1"}
