"""A secret that was read for a call leaves the worker in the request's header and nowhere else."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from html import escape
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun_worker.http_executor import HttpExecutor
from agentrun_worker.redaction import MASK, Redactor
from support.provider import Received, answer, serving
from support.tool_calls import FixedSecrets, build_http_tool, make_call

CANARY = 'sk/canary+"7f&3a9c='
HEADERS_FROM = [
    {"name": "Authorization", "prefix": "Bearer ", "secretKeyRef": {"name": "shop", "key": "token"}},
]

ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda text: quote(text, safe=""),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "json": lambda text: json.dumps(text)[1:-1],
    "html": escape,
    "slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "json in json": lambda text: json.dumps(json.dumps(text))[3:-3],
    "basic": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
}


def forms() -> list[str]:
    """Return what must stand nowhere: every encoding, and the secret's longest inner part."""
    return [*(encode(CANARY) for encode in ENCODINGS.values()), ENCODINGS["basic"](CANARY)[8:-4], CANARY[3:12]]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "status, kind",
    [(200, "application/json"), (200, "text/html"), (400, "application/json"), (500, "text/plain")],
)
async def test_an_answer_that_says_a_secret_back_is_cleaned(
    encoding: str, status: int, kind: str, logs: list[object]
) -> None:
    said = ENCODINGS[encoding](CANARY)

    async def echo(received: Received, writer: object) -> None:
        assert received.headers["authorization"] == f"Bearer {CANARY}"
        body = json.dumps({"you sent": said, said: 1, "list": [f"<{said}>"]}) if "json" in kind else f"got {said}!"
        await answer(status, body, kind)(received, writer)  # type: ignore[arg-type]

    secrets = FixedSecrets({"shop/token": CANARY})
    async with serving(echo) as provider:
        tool = build_http_tool(provider.url, {"headersFrom": HEADERS_FROM})
        outcome = await make_call(HttpExecutor(secrets), tool)
    left = json.dumps(outcome.to_wire(), default=str, ensure_ascii=False) + repr(logs)
    assert [form for form in forms() if form in left] == []
    assert MASK in left


@pytest.mark.parametrize("position", [280, 295, 300, 2030, 2048])
async def test_a_secret_at_the_place_of_a_cut_leaves_no_part(position: int) -> None:
    body = "x" * position + CANARY + "y" * 100
    async with serving(answer(500, body, "text/plain")) as provider:
        tool = build_http_tool(provider.url, {"headersFrom": HEADERS_FROM})
        outcome = await make_call(HttpExecutor(FixedSecrets({"shop/token": CANARY})), tool)
    assert CANARY[:4] not in str(outcome)


async def test_a_secret_that_the_size_limit_cuts_leaves_no_part() -> None:
    body = "x" * 50 + CANARY
    async with serving(answer(200, body, "text/plain")) as provider:
        tool = build_http_tool(provider.url, {"headersFrom": HEADERS_FROM, "maxResponseBytes": 60})
        outcome = await make_call(HttpExecutor(FixedSecrets({"shop/token": CANARY})), tool)
    assert CANARY[:4] not in str(outcome)


async def test_basic_credentials_are_known_in_clear_as_well() -> None:
    encoded = base64.b64encode(b"user:hunter2hunter2").decode()
    http = {"headersFrom": [{**HEADERS_FROM[0], "prefix": "Basic "}]}
    async with serving(answer(401, "wrong password hunter2hunter2", "text/plain")) as provider:
        outcome = await make_call(
            HttpExecutor(FixedSecrets({"shop/token": encoded})), build_http_tool(provider.url, http)
        )
    assert "hunter2" not in str(outcome)


@given(st.text(st.characters(codec="utf-8"), min_size=6, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_a_secret_is_found_in_any_surroundings(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    for encode in (str, lambda text: quote(text, safe=""), lambda text: json.dumps(text)[1:-1]):
        cleaned = redactor.text(before + encode(secret) + after)
        assert encode(secret) not in cleaned or encode(secret) in MASK


@given(st.binary(min_size=9, max_size=40), st.binary(max_size=5), st.binary(max_size=5))
def test_base64_hides_no_secret_whatever_stands_around_it(raw: bytes, before: bytes, after: bytes) -> None:
    secret = base64.b32encode(raw).decode().rstrip("=")
    text = base64.b64encode(before + secret.encode() + after).decode()
    cleaned = Redactor([secret]).text(text)
    assert MASK in cleaned
    # What is left at the edges holds no whole byte triple of the secret.
    assert len(cleaned) - len(MASK) <= (len(before) + len(after) + 5) * 4 // 3 + 4


@given(st.text("abcdef", min_size=8, max_size=12), st.integers(4, 8), st.integers(4, 8))
def test_a_fragment_keeps_no_part_at_its_ends(secret: str, head: int, tail: int) -> None:
    fragment = secret[-tail:] + " middle " + secret[:head]
    cleaned = Redactor([secret]).fragment(fragment)
    assert not cleaned.startswith(secret[-tail:])
    assert not cleaned.endswith(secret[:head])


def test_values_are_cleaned_in_depth_and_numbers_left_alone() -> None:
    redactor = Redactor(["canary-canary"])
    value = {"a": ["canary-canary", 1, None], "canary-canary": {"b": "x canary-canary"}}
    assert redactor.value(value) == {"a": [MASK, 1, None], MASK: {"b": f"x {MASK}"}}  # type: ignore[arg-type]


def test_what_is_too_short_to_be_a_secret_is_left_in_place() -> None:
    assert Redactor(["abc"]).text("abc") == "abc"
