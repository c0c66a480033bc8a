"""Names of Services for pods, as a cluster's own DNS gives them: one thread that asks the API server for each answer.

Knows ``<service>.<namespace>.svc.cluster.local`` with a cluster address, over UDP. Every other name does not exist, so no
question leaves the machine.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import subprocess
import threading
from pathlib import Path

_A, _AAAA = 1, 28
_NO_SUCH_NAME = 3
_LIVES_SECONDS = 1
_DOMAIN = ["svc", "cluster", "local"]


class NameServer:
    """A server on port 53 of one address."""

    def __init__(self, address: str, kubeconfig: Path) -> None:
        self._address = address
        self._kubeconfig = kubeconfig
        self._server: socketserver.ThreadingUDPServer | None = None

    def start(self) -> None:
        """Listen."""
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                question, reply_to = self.request
                answer = outer.answer(question)
                if answer:
                    reply_to.sendto(answer, self.client_address)

        self._server = socketserver.ThreadingUDPServer((self._address, 53), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="names", daemon=True).start()

    def stop(self) -> None:
        """Listen no more. Safe to call twice."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, question: bytes) -> bytes:
        """Return the answer to a packet; none to what cannot be read."""
        try:
            labels, end = _read_name(question, 12)
            (kind,) = struct.unpack_from("!H", question, end)
        except (IndexError, struct.error, UnicodeDecodeError):
            return b""
        asked = question[12 : end + 4]
        address = self._find_address(labels)
        records = b""
        if address and kind == _A:
            records = struct.pack("!HHHIH4s", 0xC00C, _A, 1, _LIVES_SECONDS, 4, socket.inet_aton(address))
        code = 0 if address else _NO_SUCH_NAME
        # Authoritative, and asked no further: what is not here is nowhere.
        header = question[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, 1 if records else 0, 0, 0)
        return header + asked + records

    def _find_address(self, labels: list[str]) -> str:
        if len(labels) != 5 or labels[2:] != _DOMAIN:
            return ""
        name, namespace = labels[:2]
        command = ["kubectl", "--kubeconfig", str(self._kubeconfig), "--namespace", namespace, "get", "service", name]
        found = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=10, check=False)
        address = json.loads(found.stdout)["spec"].get("clusterIP", "") if found.returncode == 0 else ""
        return "" if address == "None" else str(address)


def _read_name(packet: bytes, at: int) -> tuple[list[str], int]:
    labels = []
    while (length := packet[at]) != 0:
        labels.append(packet[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    return labels, at + 1
