#!/usr/bin/env python3
"""A small shop with two warehouses: a real HTTP service over a real SQLite database, for the demo and the tests.

    GET  /warehouses/{name}/stock       what a warehouse holds
    POST /transfers                     move goods; needs the header Idempotency-Key
    GET  /transfers/by-key/{key}        what became of a transfer: done, running or unknown
    POST /notes                         leave a note
    GET  /stats                         counts of requests, and how many ran at once

It knows nothing of AgentRun. The header X-Shop-Fault makes it misbehave on purpose: ``delay=0.5`` answers late,
``status=503`` answers that, ``drop`` closes the connection before the work, ``drop-after`` closes it after the work.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

STOCK = {
    "north": {"kettle": 14, "toaster": 2, "lamp": 30},
    "south": {"kettle": 3, "toaster": 9, "lamp": 30},
}


class Shop:
    """The database and the counters."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._now = 0
        self.most_at_once = 0
        self.requests: dict[str, int] = {}
        with self._open() as database:
            database.executescript(
                """
                PRAGMA journal_mode = WAL;
                CREATE TABLE IF NOT EXISTS stock (
                    warehouse TEXT, item TEXT, quantity INTEGER CHECK (quantity >= 0), PRIMARY KEY (warehouse, item));
                CREATE TABLE IF NOT EXISTS transfers (
                    id INTEGER PRIMARY KEY, key TEXT NOT NULL, source TEXT, target TEXT, items TEXT, at REAL);
                CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT);
                """
            )
            for warehouse, items in STOCK.items():
                for item, quantity in items.items():
                    database.execute("INSERT OR IGNORE INTO stock VALUES (?, ?, ?)", (warehouse, item, quantity))

    def begin(self, what: str) -> None:
        """Count a request that starts."""
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.requests[what] = self.requests.get(what, 0) + 1

    def end(self) -> None:
        """Count a request that ends."""
        with self._lock:
            self._now -= 1

    def stock(self, warehouse: str) -> dict[str, Any] | None:
        """Return what a warehouse holds, or None when there is none of that name."""
        with self._open() as database:
            rows = database.execute(
                "SELECT item, quantity FROM stock WHERE warehouse = ? ORDER BY item", (warehouse,)
            ).fetchall()
        return {"warehouse": warehouse, "items": dict(rows)} if rows else None

    def transfer(self, key: str, order: dict[str, Any]) -> dict[str, Any]:
        """Move goods. It trusts its caller: called twice, it moves twice."""
        with self._open() as database:
            for line in order["items"]:
                for warehouse, sign in ((order["source"], -1), (order["target"], 1)):
                    database.execute(
                        "UPDATE stock SET quantity = quantity + ? WHERE warehouse = ? AND item = ?",
                        (sign * line["quantity"], warehouse, line["item"]),
                    )
            cursor = database.execute(
                "INSERT INTO transfers (key, source, target, items, at) VALUES (?, ?, ?, ?, ?)",
                (key, order["source"], order["target"], json.dumps(order["items"]), time.time()),
            )
        return {"id": cursor.lastrowid, "items": order["items"]}

    def find_transfer(self, key: str) -> dict[str, Any]:
        """Return what became of a transfer."""
        with self._open() as database:
            row = database.execute("SELECT id, items FROM transfers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return {"state": "unknown"}
        return {"state": "done", "transfer": {"id": row[0], "items": json.loads(row[1])}}

    def note(self, text: str) -> dict[str, Any]:
        """Keep a note."""
        with self._open() as database:
            cursor = database.execute("INSERT INTO notes (text) VALUES (?)", (text,))
        return {"id": cursor.lastrowid}

    def stats(self) -> dict[str, Any]:
        """Return the counters, and how many rows were written."""
        with self._open() as database:
            transfers = database.execute("SELECT count(*) FROM transfers").fetchone()[0]
        return {"requests": self.requests, "mostAtOnce": self.most_at_once, "transfers": transfers}

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection after the other."""

    protocol_version = "HTTP/1.1"
    shop: Shop

    def do_GET(self) -> None:
        """Answer a question."""
        self._serve(self._get)

    def do_POST(self) -> None:
        """Do something."""
        self._serve(self._post)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: the demo's own output is what counts."""

    def _serve(self, work: Any) -> None:
        parts = [unquote(part) for part in self.path.split("?")[0].strip("/").split("/")]
        self.shop.begin(f"{self.command} /{parts[0]}")
        try:
            fault = self.headers.get("X-Shop-Fault", "")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if fault.startswith("delay="):
                time.sleep(float(fault.removeprefix("delay=")))
            if fault == "drop":
                self.close_connection = True
                return
            if fault.startswith("status="):
                self._answer(int(fault.removeprefix("status=")), {"error": "as you wished"})
                return
            status, answer = work(parts, body)
            if fault == "drop-after":
                self.close_connection = True
                return
            self._answer(status, answer)
        finally:
            self.shop.end()

    def _get(self, parts: list[str], body: bytes) -> tuple[int, Any]:
        match parts:
            case ["warehouses", name, "stock"]:
                found = self.shop.stock(name)
                return (200, found) if found else (404, {"error": f"there is no warehouse {name}"})
            case ["transfers", "by-key", key]:
                return 200, self.shop.find_transfer(key)
            case ["stats"]:
                return 200, self.shop.stats()
            case ["health"]:
                return 200, {"ok": True}
        return 404, {"error": "no such place"}

    def _post(self, parts: list[str], body: bytes) -> tuple[int, Any]:
        try:
            sent = json.loads(body or b"{}")
        except ValueError:
            return 400, {"error": "no JSON"}
        match parts:
            case ["transfers"]:
                key = self.headers.get("Idempotency-Key")
                if not key:
                    return 400, {"error": "the header Idempotency-Key is missing"}
                return 201, self.shop.transfer(key, sent)
            case ["notes"]:
                return 201, self.shop.note(str(sent.get("text", "")))
        return 404, {"error": "no such place"}

    def _answer(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    """Threads, and room for many connections at once."""

    daemon_threads = True
    request_queue_size = 1024


def build_server(database: Path, port: int) -> Server:
    """Return the service, bound to a loopback port (0: a free one)."""
    handler = type("ShopHandler", (Handler,), {"shop": Shop(database)})
    return Server(("127.0.0.1", port), handler)


def main() -> None:
    """Serve until it is told to end."""
    parser = argparse.ArgumentParser(description="A small shop over SQLite.")
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--port-file", type=Path, help="where to write the port")
    arguments = parser.parse_args()
    server = build_server(arguments.database, arguments.port)
    if arguments.port_file:
        written = arguments.port_file.with_suffix(".new")
        written.write_text(str(server.server_address[1]))
        written.rename(arguments.port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
