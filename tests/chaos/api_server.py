"""The harness's own way to the API server, independent of the product's."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml  # type: ignore[import-untyped]

GROUP = "/apis/agentrun.dev/v1alpha1"
MERGE = "application/merge-patch+json"
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.3


class ApiAwayError(Exception):
    """The API server did not answer, or could not."""


class RefusedError(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ApiServer:
    """A session with the API server of a kubeconfig; an async context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._server = config["clusters"][0]["cluster"]["server"]
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._session = aiohttp.ClientSession(
            self._server,
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=context),
            read_bufsize=4 * 1024 * 1024,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.close()

    async def request(self, verb: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Send one request. Raises :class:`ApiAwayError` and :class:`RefusedError`."""
        data = None if body is None else json.dumps(body).encode()
        try:
            async with self._open.request(
                verb,
                path,
                data=data,
                headers={"Content-Type": content_type},
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
            ) as response:
                answer = await response.json(content_type=None)
                if response.status >= 500 or response.status == 429:
                    raise ApiAwayError(f"{response.status} {answer}")
                if response.status >= 400:
                    raise RefusedError(response.status, str(answer.get("message") if answer else ""))
                return answer
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise ApiAwayError(f"{verb} {path}: {type(error).__name__}") from error

    async def insist(self, verb: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Send one request again and again until it was answered. Raises :class:`RefusedError`."""
        while True:
            try:
                return await self.request(verb, path, body, content_type)
            except ApiAwayError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def list_all(self, namespace: str, plural: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects of a kind and the version that a watch goes on from. Raises :class:`ApiAwayError`."""
        found = await self.request("GET", f"{GROUP}/namespaces/{namespace}/{plural}")
        return found["items"], found["metadata"]["resourceVersion"]

    async def watch(self, namespace: str, plural: str, version: str) -> AsyncIterator[dict[str, Any]]:
        """Give events until the server ends the watch. Raises :class:`ApiAwayError`."""
        params = {"watch": "true", "resourceVersion": version}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_SECONDS, sock_read=60)
        try:
            async with self._open.get(
                f"{GROUP}/namespaces/{namespace}/{plural}", params=params, timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise ApiAwayError(str(response.status))
                async for line in response.content:
                    yield json.loads(line)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise ApiAwayError(f"watch {plural}: {type(error).__name__}") from error

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the session is not open")
        return self._session
