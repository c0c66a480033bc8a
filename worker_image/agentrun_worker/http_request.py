"""Building an http tool's request from its definition and the call's params. Sends nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote, urlsplit

from agentrun.contract.exact_json import JsonObject, JsonValue, canonical_json
from agentrun.contract.tool import HttpCall
from agentrun_worker.executor import SecretSource

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")


class RequestRefusedError(Exception):
    """The request cannot be built from these params; the message names field and value."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes
    secret_headers: frozenset[str]
    """Names of headers that carry secrets: they never follow a redirect to another host."""
    secrets: tuple[str, ...]


def build_request(call: HttpCall, params: JsonObject, secrets: SecretSource) -> HttpRequest:
    """Return the request.

    Raises :class:`RequestRefusedError` for params that do not fit the placeholders, and what ``secrets`` raises.
    """
    host = urlsplit(call.url).netloc
    if "{" in host:
        raise RequestRefusedError("http.url: placeholders may stand in path and query only, never in the host")
    url = _fill(call.url, params, "http.url", safe="")
    query = "&".join(
        f"{quote(name, safe='')}={_fill(value, params, f'http.query.{name}', safe='', encode_rest=True)}"
        for name, value in call.query.items()
    )
    if query:
        url += ("&" if urlsplit(url).query else "?") + query
    headers = {name: _sendable(value, f"http.headers.{name}") for name, value in call.headers.items()}
    found: list[str] = []
    for source in call.headers_from:
        value = secrets.fetch_secret(source.secret_key_ref.name, source.secret_key_ref.key)
        found.append(value)
        headers[source.name] = _sendable(source.prefix + value, f"http.headersFrom.{source.name}", secret=True)
    content = b""
    body = _body(call.body, params)
    if body is not None:
        content = body.encode()
        headers.setdefault("Content-Type", "application/json")
    return HttpRequest(
        method=str(call.method),
        url=url,
        headers=headers,
        content=content,
        secret_headers=frozenset(source.name.lower() for source in call.headers_from),
        secrets=tuple(found),
    )


def _body(template: str | None, params: JsonObject) -> str | None:
    if template is None:
        return None
    match = _PLACEHOLDER.fullmatch(template.strip())
    if match is None:
        raise RequestRefusedError('http.body: write "{params}" or "{name}" of one param')
    if match[1] == "params" and "params" not in params:
        return canonical_json(params)
    return canonical_json(_param(match[1], params, "http.body"))


def _fill(template: str, params: JsonObject, field: str, *, safe: str, encode_rest: bool = False) -> str:
    parts: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(template):
        parts.append(_rest(template[end : match.start()], encode_rest))
        parts.append(quote(_text(_param(match[1], params, field), match[1], field), safe=safe))
        end = match.end()
    parts.append(_rest(template[end:], encode_rest))
    return "".join(parts)


def _rest(text: str, encode: bool) -> str:
    return quote(text, safe="") if encode else text


def _param(name: str, params: JsonObject, field: str) -> JsonValue:
    if name not in params:
        raise RequestRefusedError(f"{field}: param {name} is missing")
    value: JsonValue = params[name]
    return value


def _text(value: JsonValue, name: str, field: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            text = value
        case int() | Decimal():
            text = canonical_json(value)
        case _:
            raise RequestRefusedError(f"{field}: param {name} is no text or number: {canonical_json(value)[:200]}")
    if not text or text in (".", ".."):
        raise RequestRefusedError(f"{field}: param {name} is {text!r}, which would change the path")
    return text


def _sendable(value: str, field: str, *, secret: bool = False) -> str:
    if _UNSENDABLE.search(value):
        shown = "its value" if secret else repr(value)
        raise RequestRefusedError(f"{field}: {shown} holds a control character")
    return value
