"""How often the API client asks who we are."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes import client

from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_client import ApiClient


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
