"""Serves ``/metrics``, ``/healthz`` and ``/readyz`` for operator and worker, from a thread of its own.

The event loop does not serve it: a loop that hangs could not say so, and a probe's short timeout would take a loop that
is busy for a second for a dead one. Answers that nobody may cache, to GET only, a few at once.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import HTTPServer
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, MetricsHandler

from agentrun.telemetry.listen_address import ListenAddress

_AT_ONCE = 16
"""Connections beyond this are closed unanswered: probes and scrapes need two or three."""
_PATIENCE = 10.0
"""Seconds a connection may be silent."""
_LOOK_UP = 0.1
"""Seconds between two looks at whether to stop."""
_log = structlog.get_logger("agentrun.telemetry")


class CannotListenError(Exception):
    """The address is taken, or not this machine's. Give another one."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What a probe is told."""

    good: bool
    text: str


@dataclass(frozen=True, slots=True)
class Probes:
    """Where answers come from; called by the threads that serve them."""

    healthz: Callable[[], ProbeAnswer]
    readyz: Callable[[], ProbeAnswer]


class ProbeServer:
    """One address that probes and scrapes reach."""

    def __init__(self, address: ListenAddress, registry: CollectorRegistry, probes: Probes) -> None:
        self._wanted = address
        self._registry = registry
        self._probes = probes
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> ListenAddress:
        """Serve from now on and return the address, with the port that was found free. Raises CannotListenError."""
        wanted = self._wanted
        try:
            family, _, _, _, place = socket.getaddrinfo(
                wanted.host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._server = _Server(family, place, self._registry, self._probes)
        except OSError as error:
            raise CannotListenError(f"cannot listen on {wanted}: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_UP,), name="probes", daemon=True)
        self._thread.start()
        found = ListenAddress(wanted.host, self._server.server_address[1])
        _log.info("listening", address=str(found))
        return found

    def stop(self) -> None:
        """Serve no longer."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    request_queue_size = 64
    daemon_threads = True
    block_on_close = False

    def __init__(self, family: int, place: Any, registry: CollectorRegistry, probes: Probes) -> None:
        self.address_family = family
        self.registry = registry
        self.probes = probes
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(place, _Handler)

    def server_bind(self) -> None:
        # HTTPServer asks the name service for the host's full name here, which may take as long as it likes.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1]
        # Whoever asked has gone away, most of the time.
        _log.debug("probe_not_answered", cause=f"{type(error).__name__}: {error}")


class _Handler(MetricsHandler):
    timeout = _PATIENCE
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.registry = self.server.registry

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        probes = self.server.probes
        match self.path.partition("?")[0]:
            case "/metrics":
                super().do_GET()
            case "/healthz":
                self._tell(probes.healthz())
            case "/readyz":
                self._tell(probes.readyz())
            case _:
                self.send_error(404)

    def _tell(self, answer: ProbeAnswer) -> None:
        text = f"{answer.text}\n".encode()
        self.send_response(200 if answer.good else 503)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(text)
