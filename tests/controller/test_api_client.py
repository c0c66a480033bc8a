"""How often the API client asks who we are, and what it makes of an object that is not there."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes import client

from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_client import ApiClient
from agentrun.engine.cluster_port import ClusterUnavailableError, GoneError


class _Renewing:
    """Credentials that are renewed whenever they are asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def renew(self, configuration: client.Configuration) -> None:
        self.asked += 1
        configuration.api_key["authorization"] = f"Bearer token-{self.asked}"


async def test_credentials_are_asked_for_again_only_after_a_while_or_a_refusal() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({}, status=401 if request.path == "/refused" else 200)

    app = web.Application()
    app.router.add_get("/{path}", answer)
    renewing = _Renewing()
    async with TestServer(app) as server:
        configuration = client.Configuration(host=str(server.make_url("")))
        configuration.refresh_api_key_hook = renewing.renew
        async with ApiClient(ApiAccess(configuration)) as api:
            for _ in range(3):
                await api.request("GET", "/good")
            with pytest.raises(Exception, match="401"):
                await api.request("GET", "/refused")
            await api.request("GET", "/good")

    assert seen == ["Bearer token-1"] * 4 + ["Bearer token-2"]


async def test_only_an_answer_that_names_an_object_says_that_it_is_gone() -> None:
    """A server that was just started serves no custom resource yet, and says 404 to everything."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/gone":
            return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)
        return web.Response(status=404, text="404 page not found\n")

    app = web.Application()
    app.router.add_get("/{path}", answer)
    async with (
        TestServer(app) as server,
        ApiClient(ApiAccess(client.Configuration(host=str(server.make_url(""))))) as api,
    ):
        with pytest.raises(GoneError):
            await api.request("GET", "/gone")
        with pytest.raises(ClusterUnavailableError, match="not served, or not yet"):
            await api.request("GET", "/starting")


async def _ask_a_busy_server(refusals: int, headers: dict[str, str]) -> tuple[int, list[float]]:
    """Return how often a server was asked that refuses so often for load, and what was waited, in seconds."""
    asked = 0
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        busy = asked <= refusals
        return web.json_response({}, status=429 if busy else 200, headers=headers if busy else {})

    app = web.Application()
    app.router.add_post("/busy", answer)
    async with (
        TestServer(app) as server,
        ApiClient(ApiAccess(client.Configuration(host=str(server.make_url("")))), sleep=sleep) as api,
    ):
        if refusals > 9 or not headers.get("Retry-After", "").isdigit():
            with pytest.raises(ClusterUnavailableError, match="429"):
                await api.request("POST", "/busy", {})
        else:
            await api.request("POST", "/busy", {})
    return asked, waits


async def test_a_server_that_asks_for_patience_gets_it() -> None:
    assert await _ask_a_busy_server(2, {"Retry-After": "3"}) == (3, [3.0, 3.0])


async def test_patience_ends() -> None:
    """Whoever sent the request has a backoff of its own, and something to say to its user."""
    assert await _ask_a_busy_server(99, {"Retry-After": "3"}) == (4, [3.0, 3.0, 3.0])


async def test_a_wait_of_nothing_is_no_busy_loop() -> None:
    asked, waits = await _ask_a_busy_server(9999, {"Retry-After": "0"})
    assert asked <= 101
    assert set(waits) == {0.1}


@pytest.mark.parametrize("said", [{}, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {"Retry-After": "-1"}])
async def test_a_refusal_that_names_no_time_is_left_to_the_caller(said: dict[str, str]) -> None:
    assert await _ask_a_busy_server(99, said) == (1, [])
