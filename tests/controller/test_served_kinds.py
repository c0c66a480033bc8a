"""What the operator says while it waits for its kinds: each hindrance with the remedy of its own."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes import client
from structlog.testing import capture_logs

from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_objects import PLURALS
from agentrun.controller.served_kinds import wait_for_kinds, warn_of_missing_namespaces

ALL = [{"name": name} for plural in PLURALS.values() for name in (plural, f"{plural}/status")]


def server_that_answers(*answers: web.Response) -> TestServer:
    """A server that gives these answers in turn, the last one for ever."""
    left = list(answers)

    async def answer(_: web.Request) -> web.Response:
        found = left.pop(0) if len(left) > 1 else left[0]
        return web.Response(status=found.status, body=found.body, content_type=found.content_type)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    return TestServer(app)


def refusal(status: int, reason: str) -> web.Response:
    said = {"kind": "Status", "reason": reason, "message": f"{reason}: system:anonymous", "code": status}
    return web.json_response(said, status=status)


@pytest.mark.parametrize(
    "first, want_event, want_remedy",
    [
        pytest.param(
            web.Response(status=404, text="404 page not found"), "kinds_not_served", "kubectl apply", id="404"
        ),
        pytest.param(refusal(404, "NotFound"), "kinds_not_served", "--validate=false", id="404 with a status"),
        pytest.param(web.json_response({"resources": ALL[:3]}), "kinds_not_served", "kubectl apply", id="some kinds"),
        pytest.param(refusal(401, "Unauthorized"), "api_server_refuses", "credentials", id="401"),
        pytest.param(refusal(403, "Forbidden"), "api_server_refuses", "grant the rights", id="403"),
        pytest.param(refusal(503, "ServiceUnavailable"), "api_server_unavailable", "asked again", id="503"),
    ],
)
async def test_each_answer_has_a_remedy_of_its_own(first: web.Response, want_event: str, want_remedy: str) -> None:
    async with server_that_answers(first, web.json_response({"resources": ALL})) as server:
        access = ApiAccess(client.Configuration(host=str(server.make_url(""))))
        async with ApiClient(access) as api, asyncio.timeout(10):
            with capture_logs() as logs:
                await wait_for_kinds(api)
    assert [line["event"] for line in logs] == [want_event]
    assert want_remedy in logs[0]["remedy"]
    assert ("kubectl apply" in logs[0]["remedy"]) == (want_event == "kinds_not_served")


async def test_nobody_who_answers_is_no_missing_definition() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        access = ApiAccess(client.Configuration(host=f"http://127.0.0.1:{free.getsockname()[1]}"))
        async with ApiClient(access) as api:
            with capture_logs() as logs:
                waiting = asyncio.create_task(wait_for_kinds(api))
                async with asyncio.timeout(10):
                    while not logs:
                        await asyncio.sleep(0.01)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
    assert logs[0]["event"] == "api_server_unreachable"
    assert "start the API server" in logs[0]["remedy"]


async def test_a_namespace_that_does_not_exist_is_named() -> None:
    answers = (refusal(404, "NotFound"), refusal(403, "Forbidden"), web.json_response({"kind": "Namespace"}))
    async with server_that_answers(*answers) as server:
        access = ApiAccess(client.Configuration(host=str(server.make_url(""))))
        async with ApiClient(access) as api:
            with capture_logs() as logs:
                await warn_of_missing_namespaces(api, ["nosuch", "hidden", "here"])
    warned = [line for line in logs if line["log_level"] == "warning"]
    assert [(line["event"], line["namespace"]) for line in warned] == [("namespace_not_found", "nosuch")]
    assert warned[0]["remedy"] == "kubectl create namespace nosuch, or correct --namespace"
