"""The business system of the node's tests: counts what it was asked to do, by word, and lets some of it wait.

Started as a pod of its own: ``python /tools/node_provider.py``. GET alone, so that an API server's proxy can ask as well.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LONGEST_SECONDS = 300.0


class Provider:
    """What was done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._did: dict[str, int] = {}
        self._released: dict[str, threading.Event] = {}
        self._seen: list[str] = []

    def do(self, word: str, authorization: str) -> None:
        """Count one call under a word."""
        with self._lock:
            self._did[word] = self._did.get(word, 0) + 1
            if authorization:
                self._seen.append(f"{word} {authorization}")

    def release(self, word: str) -> threading.Event:
        """Return what a held call of this word waits for."""
        with self._lock:
            return self._released.setdefault(word, threading.Event())

    def counts(self) -> dict[str, object]:
        """Return everything that was done."""
        with self._lock:
            return {"did": dict(self._did), "seen": list(self._seen)}


def build_handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    """Return what answers each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            verb, _, word = self.path.strip("/").partition("/")
            match verb:
                case "did":
                    provider.do(word, self.headers.get("Authorization", ""))
                case "hold":
                    provider.do(word, "")
                    provider.release(word).wait(_LONGEST_SECONDS)
                case "release":
                    provider.release(word).set()
            body = json.dumps(provider.counts()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *told: object) -> None:
            pass

    return Handler


if __name__ == "__main__":
    # Process 1 of its container: a signal that it does not ask for passes by, and its pod would stay for its whole grace.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ThreadingHTTPServer(("0.0.0.0", 8000), build_handler(Provider())).serve_forever()
