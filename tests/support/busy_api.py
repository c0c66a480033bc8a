"""A proxy in front of the API server that asks for patience: every so many requests are answered 429 with Retry-After.

The API server does so itself under load (its flow control), but not at will. Used by the cluster tests as a context
manager; it serves on a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml  # type: ignore[import-untyped]
from aiohttp import web
from multidict import CIMultiDict

_HOP = {"host", "content-length", "transfer-encoding", "connection", "content-encoding"}


class BusyApi:
    """Forwards to the server of a kubeconfig; one request of ``refuse_each`` is refused, unread."""

    def __init__(self, kubeconfig: Path, folder: Path, refuse_each: int, retry_after: int = 1) -> None:
        self._config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        self._far = self._config["clusters"][0]["cluster"]["server"]
        self._folder = folder
        self._refuse_each = refuse_each
        self._retry_after = retry_after
        self._seen = 0
        self.refused = 0
        """How many requests were refused so far."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.kubeconfig = folder / "busy.kubeconfig"
        """A kubeconfig that leads through this proxy."""

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        self._config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        self.kubeconfig.write_text(yaml.safe_dump(self._config))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _start(self) -> int:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def _stop(self) -> None:
        if self._session is not None:
            await self._session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._seen += 1
        if self._seen % self._refuse_each == 0:
            self.refused += 1
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests"}
            return web.json_response(
                {**status, "code": 429, "message": "please try again later"},
                status=429,
                headers={"Retry-After": str(self._retry_after)},
            )
        assert self._session is not None
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _HOP]
        async with self._session.request(
            request.method, f"{self._far}{request.rel_url}", data=await request.read() or None, headers=headers
        ) as far:
            kept = CIMultiDict((name, value) for name, value in far.headers.items() if name.lower() not in _HOP)
            answer = web.StreamResponse(status=far.status, headers=kept)
            # Whoever asked may be gone: it was killed, or gave up a watch.
            with contextlib.suppress(ConnectionError):
                await answer.prepare(request)
                async for part in far.content.iter_any():
                    await answer.write(part)
                await answer.write_eof()
            return answer
