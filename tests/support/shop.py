"""The example's shop as a fixture: a real HTTP service over a real database, in a thread of the test's process."""

from __future__ import annotations

import importlib.util
import sqlite3
import threading
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]


def load_shop_module() -> ModuleType:
    """Return the example's module."""
    spec = importlib.util.spec_from_file_location("example_shop", ROOT / "examples" / "stock-transfer" / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RunningShop:
    """The shop on a free loopback port."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "shop.db"
        self._server = load_shop_module().build_server(self.database, 0)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._server.server_address[1]
        return port

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def stats(self) -> dict[str, Any]:
        """Its counters."""
        found: dict[str, Any] = self._server.RequestHandlerClass.shop.stats()
        return found

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        with sqlite3.connect(self.database) as database:
            count: int = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
