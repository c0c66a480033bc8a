"""Makes http calls: within the deadline, to allowed addresses only, with bounded answers, and tells what happened.

What a failure means for the effect: until the first byte of the request has left, nothing was executed (no address, no
connection, no TLS); from then on only an answer can say so, and without one the effect is unknown.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import urlsplit

import httpcore
import httpx

from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import AgentToolSpec, HttpCall
from agentrun_worker.executor import SecretMissingError, SecretSource, ToolCall
from agentrun_worker.guarded_transport import (
    AddressRefusedError,
    GuardedTransport,
    Resolve,
    SendGuard,
    TooLateToSendError,
    resolve_host,
)
from agentrun_worker.http_answer import HttpAnswer, read_answer
from agentrun_worker.http_body import ACCEPTED_ENCODING, read_body
from agentrun_worker.http_request import HttpRequest, RequestRefusedError, build_request
from agentrun_worker.outcomes import failed, not_started
from agentrun_worker.redaction import Redactor

_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OWN_HEADERS = frozenset({"accept-encoding", "idempotency-key", "x-deadline-ms", "x-request-id"})
"""What the worker says about a call; a tool's definition does not change it."""
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


class HttpExecutor:
    """Executes tools of type http."""

    def __init__(
        self, secrets: SecretSource, resolve: Resolve = resolve_host, trust: ssl.SSLContext | None = None
    ) -> None:
        """``trust`` None: the certificates that this machine trusts (``SSL_CERT_FILE`` adds to them)."""
        self._secrets = secrets
        self._resolve = resolve
        self._given_trust = trust

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Make the call; secrets are gone from whatever is returned."""
        definition = call.tool.http
        if definition is None:
            return not_started(Reason.TOOL_NOT_LOADABLE, f"tool {call.tool_name} has no http block")
        try:
            request = build_request(definition, call.params, self._secrets)
        except RequestRefusedError as error:
            return not_started(Reason.PARAMS_INVALID, str(error))
        except SecretMissingError as error:
            return not_started(Reason.SECRET_MISSING, str(error))
        request = replace(request, headers=_with_call_headers(request.headers, call))
        redactor = Redactor(request.secrets)
        outcome = await self._exchange(call, definition, request, redactor)
        return outcome.model_copy(update={"result": redactor.value(outcome.result)})

    async def _exchange(
        self, call: ToolCall, definition: HttpCall, request: HttpRequest, redactor: Redactor
    ) -> AttemptOutcome:
        loop = asyncio.get_running_loop()

        def may_send() -> bool:
            in_time = loop.time() < min(call.send_before, call.deadline)
            return in_time and not call.cancelled.is_set() and not call.stop_requested.is_set()

        guard = SendGuard(may_send)
        sending = asyncio.ensure_future(self._send(call.tool, definition, request, guard, call.deadline, redactor))
        cancelled = asyncio.ensure_future(call.cancelled.wait())
        try:
            await asyncio.wait(
                (sending, cancelled), timeout=max(0.0, call.deadline - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if sending.done():
                return _outcome_of(sending, call, guard, redactor)
            why, reason = "the deadline passed", Reason.ATTEMPT_TIMEOUT
            if cancelled.done():
                why, reason = "it was cancelled", Reason.CANCELLED
            sending.cancel()
            await asyncio.wait((sending,))
            if not sending.cancelled():
                return _outcome_of(sending, call, guard, redactor)
            return _interrupted(guard, why, reason)
        finally:
            sending.cancel()
            cancelled.cancel()
            await asyncio.gather(sending, cancelled, return_exceptions=True)

    async def _send(
        self,
        tool: AgentToolSpec,
        definition: HttpCall,
        request: HttpRequest,
        guard: SendGuard,
        deadline: float,
        redactor: Redactor,
    ) -> AttemptOutcome:
        url, headers = request.url, request.headers
        for _ in range(_MAX_REDIRECTS + 1):
            transport = GuardedTransport(
                guard,
                allow_private=definition.allow_private_addresses,
                resolve=self._resolve,
                trust=self._trust,
            )
            timeout = httpx.Timeout(max(0.05, deadline - asyncio.get_running_loop().time()))
            client = httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False, follow_redirects=False)
            async with (
                client,
                client.stream(request.method, url, headers=headers, content=request.content or None) as answer,
            ):
                location = answer.headers.get("location", "")
                if answer.status_code in _REDIRECTS and location and request.method in ("GET", "HEAD"):
                    target = str(answer.url.join(location))
                    refusal = _refuse_redirect(definition, url, target)
                    if refusal is not None:
                        said = redactor.text(refusal)
                        return failed(Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.ADDRESS_REFUSED, said)
                    if urlsplit(target).netloc != urlsplit(url).netloc:
                        dropped = request.secret_headers | _CREDENTIALS
                        headers = {name: value for name, value in headers.items() if name.lower() not in dropped}
                    url = target
                    continue
                found = HttpAnswer(
                    status=answer.status_code,
                    content_type=answer.headers.get("content-type", ""),
                    retry_after=answer.headers.get("retry-after", ""),
                    body=await read_body(answer, definition.max_response_bytes),
                )
                return read_answer(definition, tool.side_effect, found, redactor, datetime.now(UTC))
        said = f"more than {_MAX_REDIRECTS} redirects"
        return failed(Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.ADDRESS_REFUSED, said)

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        # Reading the certificates takes longer than most calls.
        return self._given_trust or ssl.create_default_context()


def _outcome_of(
    sending: asyncio.Future[AttemptOutcome], call: ToolCall, guard: SendGuard, redactor: Redactor
) -> AttemptOutcome:
    try:
        return sending.result()
    except AddressRefusedError as error:
        return failed(Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.ADDRESS_REFUSED, str(error))
    except TooLateToSendError:
        if call.cancelled.is_set() or call.stop_requested.is_set():
            return _interrupted(guard, "it was cancelled", Reason.CANCELLED)
        return _interrupted(guard, "the claim or the deadline ran out", Reason.ATTEMPT_TIMEOUT)
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        return _interrupted(guard, f"no connection: {redactor.text(str(error))}", Reason.CONNECTION_REFUSED)
    except httpcore.LocalProtocolError as error:
        if not guard.sent:
            return not_started(Reason.PARAMS_INVALID, f"no usable request: {redactor.text(str(error))}")
        return _interrupted(guard, f"the connection was lost: {redactor.text(str(error))}", Reason.CONNECTION_LOST)
    except (httpcore.TimeoutException, httpx.TimeoutException) as error:
        return _interrupted(guard, f"no answer came in time ({type(error).__name__})", Reason.ATTEMPT_TIMEOUT)
    except (httpcore.NetworkError, httpcore.ProtocolError, httpx.HTTPError, OSError) as error:
        return _interrupted(guard, f"the connection was lost: {redactor.text(str(error))}", Reason.CONNECTION_LOST)
    except Exception as error:  # noqa: BLE001 - the last place that knows whether a byte has left, and the secrets
        said = f"{type(error).__name__}: {redactor.text(str(error))}"
        if not guard.sent:
            return not_started(Reason.PARAMS_INVALID, f"no usable request: {said}")
        return _interrupted(guard, said, Reason.TOOL_CRASHED)


def _interrupted(guard: SendGuard, why: str, reason: Reason) -> AttemptOutcome:
    if not guard.sent:
        return not_started(reason, f"{why}, before anything was sent", FailureClass.RETRYABLE)
    lost = Reason.CONNECTION_LOST if reason is Reason.CONNECTION_REFUSED else reason
    return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, lost, f"{why}, after the request was sent")


def _refuse_redirect(definition: HttpCall, url: str, target: str) -> str | None:
    before, after = urlsplit(url), urlsplit(target)
    if after.scheme not in ("http", "https") or (before.scheme == "https" and after.scheme == "http"):
        return f"redirect to {after.scheme}: is not followed"
    if after.hostname != before.hostname and after.hostname not in definition.allowed_redirect_hosts:
        return f"redirect to host {after.hostname} is not followed: name it in http.allowedRedirectHosts"
    return None


def _with_call_headers(headers: dict[str, str], call: ToolCall) -> dict[str, str]:
    left_ms = max(0, round((call.deadline - asyncio.get_running_loop().time()) * 1000))
    kept = {name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS}
    return {
        **{
            name: value
            for name, value in (("Accept", "application/json"), ("User-Agent", "agentrun-worker"))
            if name.lower() not in (known.lower() for known in kept)
        },
        **kept,
        "Accept-Encoding": ACCEPTED_ENCODING,
        "Idempotency-Key": call.idempotency_key,
        "X-Request-Id": call.request_id,
        "X-Deadline-Ms": str(left_ms),
    }
