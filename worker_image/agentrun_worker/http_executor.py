"""Makes http calls: within the deadline, to allowed addresses only, with bounded answers, and tells what happened."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpcore
import httpx

from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import HttpCall
from agentrun_worker.executor import SecretMissingError, SecretSource, ToolCall
from agentrun_worker.guarded_transport import (
    AddressRefusedError,
    GuardedTransport,
    Resolve,
    SendGuard,
    TooLateToSendError,
    resolve_host,
)
from agentrun_worker.http_answer import read_answer, read_cut_answer
from agentrun_worker.http_request import HttpRequest, RequestRefusedError, build_request
from agentrun_worker.outcomes import failed, not_started
from agentrun_worker.redaction import Redactor

_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MANY_BYTES_IN_HEAD = 4096


class _CutShortError(Exception):
    """The answer's body ended early or is too large; head and reason are known."""

    def __init__(self, status: int, problem: str, shown: str, reason: Reason) -> None:
        super().__init__(problem)
        self.status, self.problem, self.shown, self.reason = status, problem, shown, reason


class HttpExecutor:
    """Executes tools of type http."""

    def __init__(self, secrets: SecretSource, resolve: Resolve = resolve_host) -> None:
        self._secrets = secrets
        self._resolve = resolve

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
        return _redacted(await self._exchange(call, definition, request), Redactor(request.secrets))

    async def _exchange(self, call: ToolCall, definition: HttpCall, request: HttpRequest) -> AttemptOutcome:
        loop = asyncio.get_running_loop()
        guard = SendGuard(lambda: loop.time() < min(call.send_before, call.deadline) and not call.cancelled.is_set())
        sending = asyncio.ensure_future(self._send(definition, request, guard, call.deadline))
        cancelled = asyncio.ensure_future(call.cancelled.wait())
        try:
            await asyncio.wait(
                (sending, cancelled), timeout=max(0.0, call.deadline - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if sending.done():
                return _outcome_of(sending, definition, guard)
            why, reason = "the deadline passed", Reason.ATTEMPT_TIMEOUT
            if cancelled.done():
                why, reason = "it was cancelled", Reason.CANCELLED
            sending.cancel()
            await asyncio.wait((sending,))
            if not sending.cancelled():
                return _outcome_of(sending, definition, guard)
            return _interrupted(guard, why, reason)
        finally:
            sending.cancel()
            cancelled.cancel()

    async def _send(
        self, definition: HttpCall, request: HttpRequest, guard: SendGuard, deadline: float
    ) -> AttemptOutcome:
        url, headers = request.url, request.headers
        for _ in range(_MAX_REDIRECTS + 1):
            transport = GuardedTransport(guard, allow_private=definition.allow_private_addresses, resolve=self._resolve)
            left = max(0.05, deadline - asyncio.get_running_loop().time())
            timeout = httpx.Timeout(left)
            async with (
                httpx.AsyncClient(
                    transport=transport, timeout=timeout, trust_env=False, follow_redirects=False
                ) as client,
                client.stream(request.method, url, headers=headers, content=request.content or None) as answer,
            ):
                location = answer.headers.get("location", "")
                if answer.status_code in _REDIRECTS and location and request.method in ("GET", "HEAD"):
                    target = str(answer.url.join(location))
                    refusal = _refuse_redirect(definition, url, target)
                    if refusal is not None:
                        return failed(Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.ADDRESS_REFUSED, refusal)
                    if urlsplit(target).netloc != urlsplit(url).netloc:
                        headers = {
                            name: value for name, value in headers.items() if name.lower() not in request.secret_headers
                        }
                    url = target
                    continue
                body = await _read_body(answer, definition.max_response_bytes)
                return read_answer(
                    definition,
                    answer.status_code,
                    answer.headers.get("content-type", ""),
                    body,
                    answer.headers.get("retry-after", ""),
                    datetime.now(UTC),
                )
        return failed(
            Effect.NOT_EXECUTED,
            FailureClass.PERMANENT,
            Reason.ADDRESS_REFUSED,
            f"more than {_MAX_REDIRECTS} redirects",
        )


async def _read_body(answer: httpx.Response, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async for part in answer.aiter_bytes(65536):
            size += len(part)
            parts.append(part)
            if size > limit:
                raise _CutShortError(
                    answer.status_code,
                    f"a body of more than {limit} bytes",
                    _shown(parts),
                    Reason.RESULT_TOO_LARGE,
                )
    except (httpcore.ReadError, httpcore.RemoteProtocolError, httpcore.ReadTimeout, httpx.HTTPError) as error:
        raise _CutShortError(
            answer.status_code, f"the body was cut: {error}", _shown(parts), Reason.INVALID_ANSWER
        ) from error
    return b"".join(parts)


def _shown(parts: list[bytes]) -> str:
    return b"".join(parts)[:_MANY_BYTES_IN_HEAD].decode("utf-8", "replace")


def _outcome_of(sending: asyncio.Future[AttemptOutcome], definition: HttpCall, guard: SendGuard) -> AttemptOutcome:
    try:
        return sending.result()
    except AddressRefusedError as error:
        return failed(Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.ADDRESS_REFUSED, str(error))
    except TooLateToSendError:
        said = "the claim or the deadline ran out before the first byte"
        return not_started(Reason.ATTEMPT_TIMEOUT, said, FailureClass.RETRYABLE)
    except _CutShortError as error:
        return read_cut_answer(definition, error.status, error.problem, error.shown, error.reason)
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        if not guard.sent:
            return not_started(Reason.CONNECTION_REFUSED, f"no connection: {error}", FailureClass.RETRYABLE)
        return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.CONNECTION_LOST, f"connection lost: {error}")
    except (httpcore.TimeoutException, httpx.TimeoutException) as error:
        return _interrupted(guard, f"no answer came in time ({type(error).__name__})", Reason.ATTEMPT_TIMEOUT)
    except (httpcore.NetworkError, httpcore.ProtocolError, httpx.HTTPError, OSError) as error:
        return _interrupted(guard, f"the connection was lost: {error}", Reason.CONNECTION_LOST)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        return not_started(Reason.PARAMS_INVALID, f"no usable request: {error}")


def _interrupted(guard: SendGuard, why: str, reason: Reason) -> AttemptOutcome:
    if not guard.sent:
        return not_started(reason, f"{why} before anything was sent", FailureClass.RETRYABLE)
    return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, f"{why} after the request was sent")


def _refuse_redirect(definition: HttpCall, url: str, target: str) -> str | None:
    before, after = urlsplit(url), urlsplit(target)
    if after.scheme not in ("http", "https") or (before.scheme == "https" and after.scheme == "http"):
        return f"redirect to {after.scheme}: is not followed"
    if after.hostname != before.hostname and after.hostname not in definition.allowed_redirect_hosts:
        return f"redirect to host {after.hostname} is not followed: name it in http.allowedRedirectHosts"
    return None


def _with_call_headers(headers: dict[str, str], call: ToolCall) -> dict[str, str]:
    left_ms = max(0, round((call.deadline - asyncio.get_running_loop().time()) * 1000))
    return {
        "Accept": "application/json",
        "User-Agent": "agentrun-worker",
        **headers,
        "Idempotency-Key": call.idempotency_key,
        "X-Request-Id": call.request_id,
        "X-Deadline-Ms": str(left_ms),
    }


def _redacted(outcome: AttemptOutcome, redactor: Redactor) -> AttemptOutcome:
    failure = outcome.failure
    if failure is not None:
        failure = Failure.model_validate(
            failure.model_dump() | {"message": redactor.text(failure.message), "reason": redactor.text(failure.reason)}
        )
    return outcome.model_copy(
        update={
            "failure": failure,
            "raw_output": redactor.text(outcome.raw_output),
            "result": redactor.value(outcome.result),
        }
    )
