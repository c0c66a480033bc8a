"""Requests to the API server over one aiohttp session: JSON in and out, refusals as the cluster port's errors."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self

import aiohttp

from agentrun.contract.exact_json import JsonObject, JsonRefusedError, canonical_json, parse_json
from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_errors import NoAnswerError, WatchExpiredError, api_error
from agentrun.engine.cluster_port import ClusterUnavailableError

_ANSWER_WITHIN = timedelta(seconds=30)
_CONNECT_WITHIN = timedelta(seconds=10)
_SILENCE = timedelta(seconds=330)
"""A watch without any line for this long is taken for dead: the server ends every watch before."""
_AUTHORIZATION_KEPT = timedelta(seconds=5)
"""The Kubernetes client reads its whole kubeconfig again whenever it is asked who we are: 0.13 ms at least."""
_THROTTLED_WITHIN = timedelta(seconds=10)
"""How long one request may be put off by a server that asks for patience; whoever sent it backs off after that."""
_CONNECTIONS = 64
_LONGEST_LINE = 4 * 1024 * 1024
_PAGE = 500
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What to accept for an object's metadata alone (Kubernetes 1.15 and later)."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""What to accept for a list of metadata alone (Kubernetes 1.15 and later)."""


class ApiClient:
    """A session with one API server; an async context manager."""

    def __init__(
        self,
        access: ApiAccess,
        note: Callable[[str, str, int | None], None] = lambda verb, path, status: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``note`` is told of each request: verb, path, and the answer's status, None where no answer came.

        ``sleep`` waits so many seconds where the server asks for patience.
        """
        self._access = access
        self._note = note
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None
        self._authorization: str | None = None
        self._authorization_until = -math.inf
        self.requests_total: Counter[str] = Counter()
        """Requests sent so far, by verb."""

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=self._access.build_ssl())
        self._session = aiohttp.ClientSession(
            self._access.server, connector=connector, read_bufsize=_LONGEST_LINE, trust_env=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        verb: str,
        path: str,
        body: JsonObject | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> JsonObject:
        """Send one request and return the answer's JSON object; wait where the server asks for it (429, Retry-After).

        Raises :class:`ClusterUnavailableError` when no answer came (it may have been carried out all the same), and
        what :func:`~agentrun.controller.api_errors.api_error` makes of a refusal.
        """
        data = None if body is None else canonical_json(body).encode()
        patience = _THROTTLED_WITHIN.total_seconds()
        while True:
            status, wait, answer = await self._send(verb, path, data, params, content_type, accept)
            if status != 429 or wait is None or wait > patience:
                break
            # Nothing was carried out: the server said so before it looked at the request.
            patience -= wait
            await self._sleep(wait)
        if status == 401:
            self._authorization_until = -math.inf
        if status >= 400:
            raise api_error(status, answer, f"{verb} {path}")
        return answer

    async def _send(
        self,
        verb: str,
        path: str,
        data: bytes | None,
        params: Mapping[str, str] | None,
        content_type: str,
        accept: str,
    ) -> tuple[int, float | None, JsonObject]:
        """Send a request once; return the answer's status, its Retry-After in seconds, and its object."""
        timeout = aiohttp.ClientTimeout(
            total=_ANSWER_WITHIN.total_seconds(), sock_connect=_CONNECT_WITHIN.total_seconds()
        )
        self.requests_total[verb] += 1
        try:
            async with self._open.request(
                verb, path, data=data, params=params, headers=self._headers(content_type, accept), timeout=timeout
            ) as response:
                status, text = response.status, await response.read()
                wait = _retry_after(response.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._note(verb, path, None)
            raise NoAnswerError(f"{verb} {path}: {type(error).__name__}: {error}") from error
        self._note(verb, path, status)
        return status, wait, _read(text)

    async def list_all(
        self, path: str, params: Mapping[str, str] | None = None, accept: str = JSON
    ) -> tuple[list[JsonObject], str]:
        """Return every object of a collection, read in pages, and the version that a watch may go on from."""
        found: list[JsonObject] = []
        version = ""
        async for items, version in self._pages(path, params, accept):  # noqa: B007 - the last one's counts
            found.extend(items)
        return found, version

    async def list_pages(self, path: str) -> AsyncIterator[JsonObject]:
        """Give every object of a collection while it is read in pages. A list that takes too long begins again."""
        given: set[str] = set()
        while True:
            try:
                async for items, _ in self._pages(path, None, JSON):
                    for item in items:
                        uid = _uid(item)
                        if uid not in given:
                            given.add(uid)
                            yield item
            except WatchExpiredError:
                continue
            return

    async def _pages(
        self, path: str, params: Mapping[str, str] | None, accept: str
    ) -> AsyncIterator[tuple[list[JsonObject], str]]:
        page: dict[str, str] = {**(params or {}), "limit": str(_PAGE)}
        while True:
            answer = await self.request("GET", path, params=page, accept=accept)
            items = answer.get("items")
            meta = answer.get("metadata")
            meta = meta if isinstance(meta, dict) else {}
            yield [item for item in items or () if isinstance(item, dict)], str(meta.get("resourceVersion") or "")
            if not meta.get("continue"):
                return
            page["continue"] = str(meta["continue"])

    async def watch_lines(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Give a watch's lines as they come, until the server ends it. Raises as :meth:`request`."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_WITHIN.total_seconds(), sock_read=_SILENCE.total_seconds()
        )
        self.requests_total["WATCH"] += 1
        answered = False
        try:
            async with self._open.get(
                path, params={**params, "watch": "true"}, headers=self._headers(JSON), timeout=timeout
            ) as response:
                answered = True
                self._note("WATCH", path, response.status)
                if response.status >= 400:
                    raise api_error(response.status, _read(await response.read()), f"WATCH {path}")
                async for line in response.content:
                    yield line
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            if not answered:
                self._note("WATCH", path, None)
            raise ClusterUnavailableError(f"WATCH {path}: {type(error).__name__}: {error}") from error

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the session with the API server is not open")
        return self._session

    def _headers(self, content_type: str, accept: str = JSON) -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": "agentrun-operator"}
        now = time.monotonic()
        if now >= self._authorization_until:
            self._authorization = self._access.authorization()
            self._authorization_until = now + _AUTHORIZATION_KEPT.total_seconds()
        return headers if self._authorization is None else {**headers, "Authorization": self._authorization}


def _uid(item: JsonObject) -> str:
    meta = item.get("metadata")
    return str(meta.get("uid")) if isinstance(meta, dict) else ""


def _retry_after(text: str) -> float | None:
    """Return the seconds of a Retry-After; None where none is given, or a date, which the API server never sends."""
    return max(float(text), 0.1) if text.isascii() and text.isdigit() else None


def _read(text: bytes) -> JsonObject:
    try:
        answer = parse_json(text)
    except JsonRefusedError:
        # A proxy's page, or an object that holds what no JSON reader may take for granted.
        return {"message": text[:200].decode("utf-8", "replace")}
    return answer if isinstance(answer, dict) else {}
