"""The webhook over TLS: what a caller is told when something is wrong, and certificates that change while it serves."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from agentrun.controller.webhook.access_reviews import Access, Requester
from agentrun.controller.webhook.approval_admission import ApprovalAdmission, Stage
from agentrun.controller.webhook.certificates import CertificateSet, make_certificates
from agentrun.controller.webhook.object_admission import ObjectAdmission
from agentrun.controller.webhook.webhook_configurations import OBJECTS_PATH, PATHS
from agentrun.controller.webhook.webhook_server import WebhookServer
from agentrun.engine.clock import SystemClock
from agentrun.engine.cluster_port import ClusterUnavailableError
from agentrun.telemetry.listen_address import ListenAddress
from agentrun.telemetry.probe_server import CannotListenError
from support.approval_reviews import FixedKey, Roles, a_review, an_approval

NAMES = frozenset({"127.0.0.1"})
APPROVAL = a_review(an_approval(), an_approval({"verdict": "Approve"}))


class _Broken:
    """A judge that does not answer as it should."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    async def may(self, requester: Requester, namespace: str, name: str, access: Access) -> bool:
        if self._failure is not None:
            raise self._failure
        await asyncio.sleep(60)
        return True


def build_server(port: int, judge: Any) -> WebhookServer:
    approvals = ApprovalAdmission(judge, FixedKey(), SystemClock())
    return WebhookServer(ListenAddress("127.0.0.1", port), approvals, ObjectAdmission(judge, lambda schema: ()))


class Served:
    """A server and who asks it."""

    def __init__(self, judge: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.certificates = make_certificates(NAMES, datetime.now(UTC), timedelta(hours=1))
        self.server = build_server(self.port, judge)
        self.server.use(self.certificates.serving)

    async def ask(
        self, body: Any, trusts: CertificateSet | None = None, path: str = PATHS[Stage.MUTATE]
    ) -> tuple[int, Any]:
        context = ssl.create_default_context(cadata=(trusts or self.certificates).bundle.decode())
        url = f"https://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=body, ssl=context) as response,
        ):
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())


@pytest.fixture
async def serve() -> AsyncIterator[Any]:
    started: list[Served] = []

    async def start(judge: Any) -> Served:
        served = Served(judge)
        started.append(served)
        await served.server.start()
        return served

    yield start
    for served in started:
        await served.server.stop()


async def test_a_review_is_answered_with_a_patch(serve: Any) -> None:
    served = await serve(Roles(frozenset({"approve"})))
    status, answer = await served.ask(APPROVAL)
    assert status == 200
    assert answer["response"]["uid"] == "req-1"
    assert answer["response"]["allowed"]
    assert answer["response"]["patchType"] == "JSONPatch"


TOOL = {
    "apiVersion": "agentrun.dev/v1alpha1",
    "kind": "AgentTool",
    "metadata": {"name": "t"},
    "spec": {"type": "python", "python": {"entryPoint": "m:f"}},
}
NEW_TOOL = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "req-1", "object": TOOL, "userInfo": {}}}


@pytest.mark.parametrize("path, body", [(PATHS[Stage.MUTATE], APPROVAL), (OBJECTS_PATH, NEW_TOOL)])
@pytest.mark.parametrize(
    "failure, want_code, want",
    [
        pytest.param(ClusterUnavailableError("no rights"), 503, "no rights", id="API server away"),
        pytest.param(KeyError("x"), 500, "KeyError", id="bug"),
        pytest.param(None, 504, "no answer within", id="slow"),
    ],
)
async def test_what_cannot_be_checked_is_refused_with_the_cause(
    serve: Any, failure: Exception | None, want_code: int, want: str, path: str, body: Any
) -> None:
    served = await serve(_Broken(failure))
    status, answer = await served.ask(body, path=path)
    assert (status, answer["response"]["uid"], answer["response"]["allowed"]) == (200, "req-1", False)
    assert answer["response"]["status"]["code"] == want_code
    assert want in answer["response"]["status"]["message"]


@pytest.mark.parametrize("path", [PATHS[Stage.MUTATE], OBJECTS_PATH])
@pytest.mark.parametrize("body", [[], {}, "x", {"apiVersion": "admission.k8s.io/v1", "request": {}}])
async def test_what_is_no_review_is_a_bad_request(serve: Any, body: Any, path: str) -> None:
    served = await serve(Roles())
    status, _ = await served.ask(body, path=path)
    assert status == 400


async def test_a_new_certificate_is_served_without_a_restart(serve: Any) -> None:
    served = await serve(Roles(frozenset({"approve"})))
    before = served.certificates
    now = datetime.now(UTC)
    renewed = before.prepare(now, timedelta(hours=1)).note_shown(now)
    assert (await served.ask(APPROVAL, trusts=renewed))[0] == 200
    switched = renewed.switch(NAMES, now)
    served.server.use(switched.serving)
    assert (await served.ask(APPROVAL, trusts=renewed))[0] == 200
    assert (await served.ask(APPROVAL, trusts=switched))[0] == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await served.ask(APPROVAL, trusts=before)


async def test_an_address_that_is_taken_is_said(serve: Any) -> None:
    served = await serve(Roles())
    other = build_server(served.port, Roles())
    with pytest.raises(CannotListenError, match="for the webhook"):
        await other.start()
