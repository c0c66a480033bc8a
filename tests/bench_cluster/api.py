"""The bench's own way to the API server; its requests are counted, so that they can be told from the operator's."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import yaml  # type: ignore[import-untyped]

from bench_cluster.server_metrics import write_kind

GROUP = "/apis/agentrun.dev/v1alpha1"
MERGE = "application/merge-patch+json"
JSON = "application/json"
_ANSWER_SECONDS = 120.0
_CONNECTIONS = 64
_PAGE = 500
Item = TypeVar("Item")


class RefusedError(Exception):
    """The API server said no; the message holds its words."""


class Api:
    """A session with the API server of a kubeconfig; an async context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._server = config["clusters"][0]["cluster"]["server"]
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self._session: aiohttp.ClientSession | None = None
        self.writes: Counter[str] = Counter()
        """Writes sent so far, by kind."""

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._session = aiohttp.ClientSession(
            self._server,
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=context, limit=_CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.close()

    async def request(self, verb: str, path: str, body: bytes | None = None, content_type: str = JSON) -> bytes:
        """Send one request and return the answer's bytes. Raises :class:`RefusedError`."""
        if verb != "GET":
            self.writes[kind_of(verb, path)] += 1
        headers = {"Content-Type": content_type}
        async with self._open.request(verb, path, data=body, headers=headers) as response:
            answer = await response.read()
            if response.status >= 400:
                raise RefusedError(f"{verb} {path}: {response.status} {answer[:500].decode(errors='replace')}")
            return answer

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return it."""
        return dict(json.loads(await self.request("POST", path, json.dumps(body).encode())))

    async def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        await self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def list_pages(self, plural: str, namespace: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Give all objects of a kind."""
        where = f"/namespaces/{namespace}" if namespace else ""
        more = ""
        while True:
            found = json.loads(await self.request("GET", f"{GROUP}{where}/{plural}?limit={_PAGE}{more}"))
            for item in found["items"]:
                yield item
            if not found["metadata"].get("continue"):
                return
            more = f"&continue={found['metadata']['continue']}"

    async def list_all(self, plural: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return all objects of a kind."""
        return [item async for item in self.list_pages(plural, namespace)]

    async def metrics(self) -> str:
        """Return the API server's own metrics."""
        return (await self.request("GET", "/metrics")).decode()

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the session is not open")
        return self._session


async def work_off(items: Iterable[Item], writers: int, act: Callable[[Item], Awaitable[None]]) -> None:
    """Act on all items, so many at once."""
    left = iter(items)

    async def write() -> None:
        for item in left:
            await act(item)

    await asyncio.gather(*(write() for _ in range(writers)))


def collection(plural: str, namespace: str) -> str:
    """Return the path of a namespace's objects of a kind."""
    return f"{GROUP}/namespaces/{namespace}/{plural}"


def kind_of(verb: str, path: str) -> str:
    """Return the name under which the API server's own metric has a request, see :func:`write_kind`."""
    parts = path.partition("?")[0].strip("/").split("/")
    if "namespaces" in parts[:-2] and parts[-1] != "status":
        parts = parts[parts.index("namespaces") + 2 :]
    elif parts[-1] == "status":
        return write_kind(verb, parts[-3], "status")
    else:
        parts = parts[2:]
    return write_kind("DELETECOLLECTION" if verb == "DELETE" and len(parts) == 1 else verb, parts[0])
