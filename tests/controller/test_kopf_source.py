"""The source of events against an API server that has just been started, or that breaks off."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes import client
from pydantic import ValidationError

from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_objects import PLURALS
from agentrun.controller.kopf_source import KopfSource, Listeners
from agentrun.engine.cluster_port import ClusterChange
from support.manifest_texts import build_tools

GROUP = "agentrun.dev"
EXTENSIONS = "apiextensions.k8s.io"
COLLECTION = f"/apis/{GROUP}/v1alpha1/namespaces/shop"
OBSERVED = ("agenttools", "agentruns", "agentapprovals")
VERBS = ["list", "watch", "get", "patch"]


class YoungServer:
    """An API server that finds its custom resources some time after it has begun to answer."""

    def __init__(self) -> None:
        self.scans_that_find_nothing = 0
        self.watches_that_fail = 0
        (self.tool,) = build_tools("act: {timeout: 10s}")
        self.watched: set[str] = set()
        """The collections that are being watched now."""
        self.whole = asyncio.Event()

    def build_app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/api":
            return web.json_response({"versions": ["v1"]})
        if path == "/api/v1":
            return web.json_response({"resources": [_resource("Namespace", "namespaces")]})
        if path == "/apis":
            return web.json_response({"groups": [_group(GROUP, "v1alpha1"), _group(EXTENSIONS, "v1")]})
        if path == f"/apis/{EXTENSIONS}/v1":
            kinds = [_resource("CustomResourceDefinition", "customresourcedefinitions")]
            return web.json_response({"resources": kinds})
        if path == f"/apis/{GROUP}/v1alpha1":
            if self.scans_that_find_nothing:
                self.scans_that_find_nothing -= 1
                return web.Response(status=404, text="404 page not found\n")
            return web.json_response({"resources": [_resource(kind, plural) for kind, plural in PLURALS.items()]})
        if path.startswith(COLLECTION):
            return await self._collection(request)
        return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            is_tools = request.path.endswith("/agenttools")
            wire = self.tool.model_dump(mode="json", by_alias=True, exclude_none=True)
            items = [{**wire, "metadata": {**wire["metadata"], "namespace": "shop", "uid": "u-1"}}] if is_tools else []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        if self.watches_that_fail:
            self.watches_that_fail -= 1
            return web.Response(status=404, text="404 page not found\n")
        self.watched.add(request.path)
        if len(self.watched) == len(OBSERVED):
            self.whole.set()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with suppress(ConnectionError, asyncio.CancelledError):
            while True:
                bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}
                await response.write(json.dumps(bookmark).encode() + b"\n")
                await asyncio.sleep(0.2)
        self.watched.discard(request.path)
        return response


def _group(name: str, version: str) -> dict[str, Any]:
    return {"name": name, "versions": [{"version": version}], "preferredVersion": {"version": version}}


def _resource(kind: str, plural: str) -> dict[str, Any]:
    return {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": True, "verbs": VERBS}


class Sight:
    """What the source has told."""

    def __init__(self) -> None:
        self.changes: list[ClusterChange] = []
        self.told = asyncio.Event()

    def tell(self, change: ClusterChange) -> None:
        self.changes.append(change)
        self.told.set()

    async def refuse(self, kind: str, raw: Any, error: ValidationError) -> None:
        raise AssertionError(f"{kind} is readable: {error}")


@asynccontextmanager
async def observed(young: YoungServer) -> AsyncIterator[Sight]:
    sight = Sight()

    async def served() -> None:
        return

    async with TestServer(young.build_app()) as server:
        access = ApiAccess(client.Configuration(host=str(server.make_url("")).rstrip("/")))
        source = KopfSource(access, ["shop"], Listeners(sight.tell, sight.refuse), served)
        running = asyncio.ensure_future(source.run())
        try:
            yield sight
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_what_the_server_did_not_serve_at_first_is_observed_later() -> None:
    young = YoungServer()
    young.scans_that_find_nothing = 1
    async with observed(young) as sight, asyncio.timeout(30):
        await sight.told.wait()
    assert sight.changes[0].object.metadata.name == "act"


async def test_watches_that_break_off_begin_again_and_end_nothing_else() -> None:
    young = YoungServer()
    young.watches_that_fail = 3
    bystander = asyncio.ensure_future(asyncio.Event().wait())
    async with observed(young) as sight, asyncio.timeout(60):
        await young.whole.wait()
    assert sight.changes
    assert not bystander.done()
    bystander.cancel()


async def test_a_user_whom_the_machine_does_not_know_observes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    # A pod's user has a number and no entry in /etc/passwd.
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "POD_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_000)
    async with observed(YoungServer()) as sight, asyncio.timeout(30):
        await sight.told.wait()
    assert sight.changes
