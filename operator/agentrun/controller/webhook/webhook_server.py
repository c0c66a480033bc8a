"""Serves admission reviews over TLS, on every replica, leader or not.

Whatever goes wrong is answered as a refusal with its cause: without an answer the API server would tell the requester
no more than that a webhook failed.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web

from agentrun.contract.exact_json import JsonObject, JsonRefusedError, canonical_json, parse_json
from agentrun.controller.api_errors import ObjectRefusedError
from agentrun.controller.webhook.approval_admission import (
    ApprovalAdmission,
    MalformedReviewError,
    refuse,
)
from agentrun.controller.webhook.certificates import KeyPair
from agentrun.controller.webhook.object_admission import ObjectAdmission
from agentrun.controller.webhook.seal_key import UnusableKeyError
from agentrun.controller.webhook.webhook_configurations import OBJECTS_PATH, PATHS, TIMEOUT_SECONDS
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError
from agentrun.telemetry.listen_address import ListenAddress
from agentrun.telemetry.probe_server import CannotListenError

_WITHIN = TIMEOUT_SECONDS - 0.5
"""Seconds for an answer: a little less than the API server waits."""
_LONGEST = 8 * 1024 * 1024
"""Bytes of a review; it holds the object twice."""
_log = structlog.get_logger("agentrun.controller")


class WebhookServer:
    """One address that API servers reach; certificates may change while it serves."""

    def __init__(self, address: ListenAddress, approvals: ApprovalAdmission, objects: ObjectAdmission) -> None:
        self._address = address
        self._approvals = approvals
        self._objects = objects
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._runner: web.AppRunner | None = None

    def use(self, serving: KeyPair) -> None:
        """Show this certificate to every connection from now on."""
        # OpenSSL reads certificates from files alone.
        with tempfile.TemporaryDirectory(prefix="agentrun-webhook-") as folder:
            certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
            certificate.write_bytes(serving.certificate)
            key.touch(mode=0o600)
            key.write_bytes(serving.key)
            self._context.load_cert_chain(certificate, key)

    async def start(self) -> None:
        """Serve from now on. Raises :class:`~agentrun.telemetry.probe_server.CannotListenError`."""
        app = web.Application(client_max_size=_LONGEST)
        for stage, path in PATHS.items():
            app.router.add_post(path, _handler(partial(_answer, partial(self._approvals.review, stage))))
        app.router.add_post(OBJECTS_PATH, _handler(partial(_answer, self._objects.review)))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_WITHIN)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address.host, self._address.port, ssl_context=self._context).start()
        except OSError as error:
            await self.stop()
            raise CannotListenError(f"cannot listen on {self._address} for the webhook: {error}") from error
        _log.info("webhook_listening", address=str(self._address))

    async def stop(self) -> None:
        """Answer what was asked, and serve no longer."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


_Review = Callable[[JsonObject], Awaitable[JsonObject]]


async def _answer(judge: _Review, review: JsonObject) -> JsonObject:
    request = review.get("request")
    uid = str(request.get("uid") or "") if isinstance(request, dict) else ""
    try:
        async with asyncio.timeout(_WITHIN):
            return await judge(review)
    except MalformedReviewError:
        raise
    except TimeoutError:
        return _failed(uid, f"no answer within {_WITHIN} s", 504)
    except (ClusterUnavailableError, ConflictError, GoneError, ObjectRefusedError, UnusableKeyError) as error:
        _log.warning("review_failed", cause=str(error))
        return _failed(uid, str(error), 503)
    except Exception as error:  # noqa: BLE001 - the server's edge: a bug admits nothing
        _log.exception("review_failed")
        return _failed(uid, type(error).__name__, 500)


def _handler(answer_review: _Review) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            review = parse_json(await request.read())
        except JsonRefusedError as error:
            return web.Response(status=400, text=str(error))
        if not isinstance(review, dict):
            return web.Response(status=400, text="expected an object")
        try:
            answer = await answer_review(review)
        except MalformedReviewError as error:
            return web.Response(status=400, text=str(error))
        return web.Response(text=canonical_json(answer), content_type="application/json")

    return handle


def _failed(uid: str, cause: str, code: int) -> JsonObject:
    return refuse(uid, f"the request could not be checked, try again: {cause}", code)
