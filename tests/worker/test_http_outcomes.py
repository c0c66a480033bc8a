"""What an http tool's call tells about the world, by everything a real server can do to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun_worker.attempt import CallWindow
from agentrun_worker.http_executor import HttpExecutor
from support.provider import (
    Behaviour,
    Provider,
    answer,
    drip,
    gzip_bomb,
    hang_up,
    keep_silent,
    reset,
    say,
    serving,
    then,
)
from support.tool_calls import FixedSecrets, build_http_tool, make_call, summary

OBJECT_WITH_ID = {"schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}
NOT_EXECUTED, EXECUTED, UNKNOWN = "NotExecuted", "Executed", "Unknown"
RETRYABLE, PERMANENT = "Retryable", "Permanent"
HALF = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"id": '
CHUNKS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


async def call_provider(
    behaviour: Behaviour, http: JsonObject | None = None, *, seconds: float = 10.0, **spec: object
) -> AttemptOutcome:
    async with serving(behaviour) as provider:
        tool = build_http_tool(f"{provider.url}/orders", http, **spec)
        return await make_call(HttpExecutor(FixedSecrets()), tool, {"n": 1}, seconds=seconds)


@pytest.mark.parametrize(
    "behaviour, http, want",
    [
        pytest.param(answer(200, '{"id": 7}'), {}, (EXECUTED, "Succeeded", "Succeeded"), id="ok"),
        pytest.param(answer(201, '{"id": 7}'), {}, (EXECUTED, "Succeeded", "Succeeded"), id="created"),
        pytest.param(answer(200, '{"id": 7.0}'), {}, (EXECUTED, "Succeeded", "Succeeded"), id="a whole 7.0"),
        pytest.param(
            answer(200, '{"id": 7}', "application/hal+json; charset=utf-8"),
            {},
            (EXECUTED, "Succeeded", "Succeeded"),
            id="a kind of json",
        ),
        pytest.param(answer(400, "no"), {}, (NOT_EXECUTED, PERMANENT, "HttpStatus"), id="400"),
        pytest.param(answer(401), {}, (NOT_EXECUTED, PERMANENT, "HttpStatus"), id="401"),
        pytest.param(answer(404), {}, (NOT_EXECUTED, PERMANENT, "HttpStatus"), id="404"),
        pytest.param(answer(408), {}, (UNKNOWN, RETRYABLE, "HttpStatus"), id="408"),
        pytest.param(answer(409), {}, (UNKNOWN, PERMANENT, "HttpStatus"), id="409"),
        pytest.param(answer(425), {}, (NOT_EXECUTED, RETRYABLE, "HttpStatus"), id="425"),
        pytest.param(answer(429), {}, (NOT_EXECUTED, RETRYABLE, "RateLimited"), id="429"),
        pytest.param(answer(500), {}, (UNKNOWN, RETRYABLE, "HttpStatus"), id="500"),
        pytest.param(answer(502), {}, (UNKNOWN, RETRYABLE, "HttpStatus"), id="502"),
        pytest.param(answer(503), {}, (UNKNOWN, RETRYABLE, "HttpStatus"), id="503"),
        pytest.param(answer(504), {}, (UNKNOWN, RETRYABLE, "HttpStatus"), id="504"),
        pytest.param(answer(303, Location="/done"), {}, (UNKNOWN, PERMANENT, "HttpStatus"), id="a redirected post"),
        pytest.param(
            answer(503), {"notExecutedOn": [503]}, (NOT_EXECUTED, RETRYABLE, "HttpStatus"), id="503 declared harmless"
        ),
        pytest.param(
            answer(409), {"notExecutedOn": [409]}, (NOT_EXECUTED, RETRYABLE, "HttpStatus"), id="409 declared harmless"
        ),
        pytest.param(
            answer(404), {"retryOn": [404]}, (NOT_EXECUTED, RETRYABLE, "HttpStatus"), id="404 declared passing"
        ),
        pytest.param(hang_up, {}, (UNKNOWN, RETRYABLE, "ConnectionLost"), id="no answer"),
        pytest.param(reset, {}, (UNKNOWN, RETRYABLE, "ConnectionLost"), id="reset"),
        pytest.param(say(b"SSH-2.0-OpenSSH\r\n\r\n"), {}, (UNKNOWN, RETRYABLE, "ConnectionLost"), id="no http"),
        pytest.param(say(HALF), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="a body cut short"),
        pytest.param(then(say(HALF), reset), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="a body torn off"),
        pytest.param(
            then(say(CHUNKS + b'5\r\n{"id"\r\n'), reset), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="torn chunks"
        ),
        pytest.param(answer(200, "<html>"), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="not json"),
        pytest.param(
            answer(200, '{"id": 7}', "text/html"), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="wrong kind"
        ),
        pytest.param(answer(200, '{"id": 7}', None), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="no kind"),
        pytest.param(answer(200, '{"id": NaN}'), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="NaN"),
        pytest.param(answer(200, '{"id": 1e400}'), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="1e400"),
        pytest.param(answer(200, '{"id": 1, "id": 2}'), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="doubled key"),
        pytest.param(answer(200, r'{"id": "\ud83d"}'), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="lone surrogate"),
        pytest.param(answer(200, r'{"id": "a\u0000"}'), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="NUL"),
        pytest.param(answer(200, b'{"id": "\xff"}'), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="not utf-8"),
        pytest.param(answer(200, "[" * 5000), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="too deep"),
        pytest.param(answer(200, '{"id": "7"}'), {}, (EXECUTED, PERMANENT, "ResultInvalid"), id="a text for a number"),
        pytest.param(answer(200, '{"id": 1.9}'), {}, (EXECUTED, PERMANENT, "ResultInvalid"), id="1.9 for an integer"),
        pytest.param(answer(200, '{"id": true}'), {}, (EXECUTED, PERMANENT, "ResultInvalid"), id="true for an integer"),
        pytest.param(answer(200, "{}"), {}, (EXECUTED, PERMANENT, "ResultInvalid"), id="a field is missing"),
        pytest.param(answer(204), {}, (EXECUTED, PERMANENT, "ResultInvalid"), id="nothing where an object is due"),
        pytest.param(
            answer(200, '{"id": 7, "text": "' + "a" * 100_000 + '"}'),
            {},
            (EXECUTED, PERMANENT, "ResultTooLarge"),
            id="a result too large to keep",
        ),
        pytest.param(
            answer(200, '"' + "a" * 1_100_000 + '"'), {}, (EXECUTED, PERMANENT, "ResultTooLarge"), id="a body too large"
        ),
        pytest.param(gzip_bomb(20_000_000), {}, (EXECUTED, PERMANENT, "ResultTooLarge"), id="gzip bomb"),
        pytest.param(
            answer(200, "{}", Content_Encoding="gzip"), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="no gzip"
        ),
        pytest.param(
            answer(200, "{}", Content_Encoding="br"), {}, (EXECUTED, PERMANENT, "InvalidAnswer"), id="unasked encoding"
        ),
        pytest.param(
            then(say(CHUNKS), drip(b"8000\r\n" + b"a" * 32768 + b"\r\n", 0)),
            {},
            (EXECUTED, PERMANENT, "ResultTooLarge"),
            id="a body without end",
        ),
    ],
)
async def test_an_answer_tells_effect_class_and_reason(
    behaviour: Behaviour, http: JsonObject, want: tuple[str, str, str]
) -> None:
    outcome = await call_provider(behaviour, http, result=OBJECT_WITH_ID)
    assert summary(outcome) == want, outcome.failure


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(keep_silent, id="no headers"),
        pytest.param(drip(b"H", 0.02), id="headers letter by letter"),
        pytest.param(then(say(b"HTTP/1.1 200 OK\r\n"), drip(b"X: y\r\n", 0.02)), id="headers without end"),
        pytest.param(then(say(HALF), keep_silent), id="a body that stands still"),
        pytest.param(then(say(CHUNKS), drip(b"1\r\n \r\n", 0.02)), id="a body in drops"),
    ],
)
async def test_the_whole_exchange_ends_at_the_deadline(behaviour: Behaviour) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    outcome = await call_provider(behaviour, seconds=1.5)
    assert loop.time() - began < 6
    assert summary(outcome) == (UNKNOWN, RETRYABLE, "AttemptTimeout")


async def test_a_question_whose_answer_is_torn_off_may_be_asked_again() -> None:
    outcome = await call_provider(then(say(HALF), reset), {"method": "GET", "body": None}, sideEffect="None")
    assert summary(outcome) == (UNKNOWN, RETRYABLE, "ConnectionLost")


async def test_a_refused_connection_is_no_effect() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else takes it, and it refuses
        tool = build_http_tool(f"http://127.0.0.1:{taken.getsockname()[1]}/")
        outcome = await make_call(HttpExecutor(FixedSecrets()), tool)
    assert summary(outcome) == (NOT_EXECUTED, RETRYABLE, "ConnectionRefused")


async def test_a_name_that_does_not_resolve_is_no_effect() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    outcome = await make_call(HttpExecutor(FixedSecrets(), resolve), build_http_tool("http://nowhere.test/"))
    assert summary(outcome) == (NOT_EXECUTED, RETRYABLE, "ConnectionRefused")
    assert outcome.failure is not None
    assert "nowhere.test" in outcome.failure.message


async def test_a_failed_tls_handshake_is_no_effect() -> None:
    async def speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(speak_plainly, "127.0.0.1", 0) as server:
        tool = build_http_tool(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        outcome = await make_call(HttpExecutor(FixedSecrets()), tool)
    assert summary(outcome) == (NOT_EXECUTED, RETRYABLE, "ConnectionRefused")


async def test_the_next_address_is_tried_when_one_refuses() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.99", "127.0.0.1"]

    async with serving(answer(200, "{}")) as provider:
        tool = build_http_tool(f"http://shop.test:{provider.port}/")
        outcome = await make_call(HttpExecutor(FixedSecrets(), resolve), tool)
    assert outcome.succeeded


@pytest.mark.parametrize(
    "header, want_ms",
    [
        ("120", 120_000),
        ("0", 0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("9" * 400, 10**12),
    ],
)
async def test_retry_after_is_carried_on(header: str, want_ms: int | None) -> None:
    outcome = await call_provider(answer(429, Retry_After=header))
    assert outcome.failure is not None
    assert outcome.failure.retry_after_ms == want_ms


async def test_retry_after_may_be_a_date_ahead() -> None:
    outcome = await call_provider(answer(503, Retry_After="Fri, 31 Dec 2999 23:59:59 GMT"))
    assert outcome.failure is not None
    assert outcome.failure.retry_after_ms is not None
    assert outcome.failure.retry_after_ms > 10**12


async def test_a_late_send_check_sends_nothing() -> None:
    async with serving(answer(200, "{}")) as provider:
        now = asyncio.get_running_loop().time()
        window = CallWindow(deadline=now + 10, send_before=now - 0.001)
        outcome = await make_call(HttpExecutor(FixedSecrets()), build_http_tool(provider.url), window=window)
    assert summary(outcome) == (NOT_EXECUTED, RETRYABLE, "AttemptTimeout")
    assert provider.requests == []


async def test_the_send_check_is_made_after_the_connection_stands() -> None:
    """Resolving and connecting take time: the claim is looked at when the first byte is about to leave."""
    loop = asyncio.get_running_loop()
    window = CallWindow(deadline=loop.time() + 10, send_before=loop.time() + 0.15)

    async def resolve(host: str, port: int) -> list[str]:
        # As slow as this name server is, the claim has run out.
        await asyncio.sleep(window.send_before - loop.time() + 0.01)
        return ["127.0.0.1"]

    async with serving(answer(200, "{}")) as provider:
        tool = build_http_tool(f"http://slow.test:{provider.port}/")
        outcome = await make_call(HttpExecutor(FixedSecrets(), resolve), tool, window=window)
    assert summary(outcome) == (NOT_EXECUTED, RETRYABLE, "AttemptTimeout")
    assert provider.requests == []


@asynccontextmanager
async def a_call_under_way(
    behaviour: Behaviour,
) -> AsyncIterator[tuple[Provider, CallWindow, asyncio.Task[AttemptOutcome]]]:
    now = asyncio.get_running_loop().time()
    window = CallWindow(deadline=now + 10, send_before=now + 10)
    async with serving(behaviour) as provider:
        tool = build_http_tool(provider.url)
        calling = asyncio.create_task(make_call(HttpExecutor(FixedSecrets()), tool, window=window))
        await provider.asked.wait()
        yield provider, window, calling


async def test_the_word_to_stop_lets_a_sent_request_be_answered() -> None:
    answered = asyncio.Event()

    async def wait(*_: object) -> None:
        await answered.wait()

    async with a_call_under_way(then(wait, answer(200, "{}"))) as (_, window, calling):
        window.stop_requested.set()
        answered.set()
        assert (await calling).succeeded


async def test_an_interrupted_request_is_unknown_and_says_why() -> None:
    async with a_call_under_way(keep_silent) as (_, window, calling):
        window.interrupt("HeartbeatLost", "the claim was lost")  # type: ignore[arg-type]
        outcome = await calling
    assert summary(outcome) == (UNKNOWN, RETRYABLE, "HeartbeatLost")


async def test_a_stopped_call_sends_nothing() -> None:
    now = asyncio.get_running_loop().time()
    window = CallWindow(deadline=now + 10, send_before=now + 10)
    window.stop_requested.set()
    async with serving(answer(200, "{}")) as provider:
        outcome = await make_call(HttpExecutor(FixedSecrets()), build_http_tool(provider.url), window=window)
    assert summary(outcome) == (NOT_EXECUTED, RETRYABLE, "Cancelled")
    assert provider.requests == []


@pytest.mark.parametrize(
    "status, want",
    [(200, Amount(micros=5)), (400, Amount()), (500, Amount())],
    ids=["executed: its price", "not executed: nothing", "unknown: the ledger books the hold"],
)
async def test_a_call_costs_its_price_when_it_was_executed(status: int, want: Amount) -> None:
    async with serving(answer(status, "{}")) as provider:
        tool = build_http_tool(provider.url)
        outcome = await make_call(HttpExecutor(FixedSecrets()), tool, cost=Amount(micros=5))
    assert outcome.usage == want


async def test_numbers_of_an_answer_stay_exact() -> None:
    outcome = await call_provider(answer(200, '{"a": 9007199254740993, "b": 0.10, "c": 5.0}'))
    assert {name: str(value) for name, value in outcome.result.items()} == {
        "a": "9007199254740993",
        "b": "0.10",
        "c": "5",
    }
