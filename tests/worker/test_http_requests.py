"""What an http tool sends: params in their places and nowhere else, and who is asking."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.tool import HttpCall
from agentrun_worker.http_executor import HttpExecutor
from agentrun_worker.http_request import HttpRequest, RequestRefusedError, build_request
from support.provider import answer, serving
from support.tool_calls import FixedSecrets, build_http_tool, make_call, summary

SECRET = {"secretKeyRef": {"name": "shop", "key": "token"}}


def build(http: JsonObject, params: JsonObject, token: str = "secret-value") -> HttpRequest:
    call = HttpCall.model_validate({"url": "http://shop.test/", **http})
    return build_request(call, params, FixedSecrets({"shop/token": token}))


@pytest.mark.parametrize(
    "url, query, params, want",
    [
        ("/orders/{id}", {}, {"id": "a b"}, "/orders/a%20b"),
        ("/orders/{id}", {}, {"id": "../../admin"}, "/orders/..%2F..%2Fadmin"),
        ("/orders/{id}", {}, {"id": "7?all=1#x"}, "/orders/7%3Fall%3D1%23x"),
        ("/orders/{id}", {}, {"id": "%2e%2e"}, "/orders/%252e%252e"),
        ("/orders/{id}", {}, {"id": "ключ"}, "/orders/%D0%BA%D0%BB%D1%8E%D1%87"),
        ("/orders/{id}", {}, {"id": 9007199254740993}, "/orders/9007199254740993"),
        ("/orders/{id}", {}, {"id": Decimal("0.10")}, "/orders/0.1"),
        ("/orders/{id}", {}, {"id": True}, "/orders/true"),
        ("/find?q={q}", {}, {"q": "a&admin=1"}, "/find?q=a%26admin%3D1"),
        ("/find?q={q}", {}, {"q": ""}, "/find?q="),
        ("/find", {"q": "{q}", "n": "x y"}, {"q": ".."}, "/find?q=..&n=x%20y"),
        ("/find?a=1", {"b": "{b}"}, {"b": 2}, "/find?a=1&b=2"),
        ("/find", {"a b": "{b}"}, {"b": "\r\nX: y"}, "/find?a%20b=%0D%0AX%3A%20y"),
        ("/a/{{x}}", {}, {"x": "1"}, "/a/{1}"),
    ],
)
def test_params_stay_in_their_places(url: str, query: JsonObject, params: JsonObject, want: str) -> None:
    assert build({"url": f"http://shop.test{url}", "query": query}, params).url == f"http://shop.test{want}"


@pytest.mark.parametrize(
    "http, params, want",
    [
        ({"url": "http://shop.test/{id}"}, {}, "param id is missing"),
        ({"url": "http://shop.test/{id}"}, {"id": [1]}, "neither text, number nor truth value"),
        ({"url": "http://shop.test/{id}"}, {"id": None}, "neither text, number nor truth value"),
        ({"url": "http://shop.test/a/{id}/b"}, {"id": ""}, "empty"),
        ({"url": "http://shop.test/a/{id}/b"}, {"id": ".."}, "segment of dots"),
        ({"url": "http://shop.test/a/{id}"}, {"id": "."}, "segment of dots"),
        ({"url": "http://shop.test/a/{x}{y}/b"}, {"x": ".", "y": "."}, "segment of dots"),
        ({"url": "http://{id}.shop.test/"}, {"id": "evil"}, "never in the host"),
        ({"url": "http://shop.test:{id}/"}, {"id": 1}, "never in the host"),
        ({"url": "http://me:pw@shop.test/"}, {}, "credentials"),
        ({"url": "http://shop.test/#{id}"}, {"id": 1}, "fragment"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, {}, "set by the connection"),
        ({"headers": {"Host": "other"}}, {}, "set by the connection"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, {}, "control character"),
        ({"headers": {"X-A": "é"}}, {}, "beyond ASCII"),
        ({"headers": {"X-Key": "1"}, "headersFrom": [{"name": "x-key", **SECRET}]}, {}, "set twice"),
        ({"body": "{params"}, {}, "http.body"),
        ({"body": "{a}"}, {}, "param a is missing"),
    ],
)
def test_a_request_that_would_not_be_what_it_says_is_refused(http: JsonObject, params: JsonObject, want: str) -> None:
    with pytest.raises(RequestRefusedError, match=want):
        build(http, params)


@pytest.mark.parametrize("token", ["ends\nX-Evil: 1", "with\rreturn", "nul\x00", "é"])
def test_a_secret_that_cannot_be_a_header_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(RequestRefusedError) as refusal:
        build({"headersFrom": [{"name": "X-Key", **SECRET}]}, {}, token)
    assert token not in str(refusal.value)


@given(st.text())
def test_no_text_in_a_header_begins_another_one(text: str) -> None:
    request = build({"headers": {"X-Tenant": "t-{tenant}"}}, {"tenant": text.encode("utf-8", "ignore").decode()})
    value = request.headers["X-Tenant"]
    assert value.isascii()
    assert not {"\r", "\n", "\x00", " ", ":"} & set(value)


@given(
    st.text(min_size=1).map(lambda text: text.encode("utf-8", "ignore").decode()).filter(lambda text: text.strip("."))
)
def test_no_text_leaves_its_segment_of_the_path(text: str) -> None:
    url = build({"url": "http://shop.test/a/{x}/b"}, {"x": text}).url
    head, _, tail = url.removeprefix("http://shop.test/a/").partition("/")
    assert tail == "b"
    assert not set(head) & set("/?#\\ \r\n")


@pytest.mark.parametrize(
    "body, params, want",
    [
        (None, {"a": 1}, b""),
        ("{params}", {"b": Decimal("0.10"), "a": 1}, b'{"a":1,"b":0.1}'),
        ("{a}", {"a": [1, "x"]}, b'[1,"x"]'),
        ("{a}", {"a": None}, b"null"),
        ("{params}", {"params": {"x": 1}}, b'{"x":1}'),
    ],
)
def test_the_body_is_json(body: str | None, params: dict[str, JsonValue], want: bytes) -> None:
    assert build({"body": body}, params).content == want


async def test_a_call_says_who_is_asking_and_how_long_it_waits() -> None:
    async with serving(answer(200, "{}")) as provider:
        http = {"headers": {"idempotency-key": "the manifest's", "X-REQUEST-ID": "x", "Accept": "text/csv"}}
        await make_call(HttpExecutor(FixedSecrets()), build_http_tool(provider.url, http), {"n": 1}, seconds=8)
    (request,) = provider.requests
    assert request.method == "POST"
    assert request.headers["idempotency-key"] == "record-key"
    assert request.headers["x-request-id"] == "tool-request"
    assert 0 < int(request.headers["x-deadline-ms"]) <= 8000
    assert request.headers["accept"] == "text/csv"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{provider.port}"
    assert request.body == b'{"n":1}'


async def test_params_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    async with serving(answer(200, "{}")) as provider:
        tool = build_http_tool(f"{provider.url}/{{id}}")
        outcome = await make_call(HttpExecutor(FixedSecrets()), tool, {"id": {}})
    assert summary(outcome) == ("NotExecuted", "Permanent", "ParamsInvalid")
    assert provider.requests == []


async def test_a_missing_secret_is_named_and_nothing_is_sent() -> None:
    async with serving(answer(200, "{}")) as provider:
        tool = build_http_tool(provider.url, {"headersFrom": [{"name": "X-Key", **SECRET}]})
        outcome = await make_call(HttpExecutor(FixedSecrets()), tool)
    assert summary(outcome) == ("NotExecuted", "Permanent", "SecretMissing")
    assert outcome.failure is not None
    assert "shop" in outcome.failure.message
    assert provider.requests == []
