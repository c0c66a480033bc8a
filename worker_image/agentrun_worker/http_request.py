"""Building an http tool's request from its definition and the call's params. Sends nothing.

A param's value is percent-encoded wherever it stands (path, query, header), so it can neither leave its place in the
path nor begin a header of its own; the body is JSON. The idempotency key and the deadline are the executor's to add.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote, urlsplit

from agentrun.contract.exact_json import JsonObject, JsonValue, canonical_json
from agentrun.contract.tool import HttpCall
from agentrun_worker.executor import SecretSource

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")
_FRAMING = frozenset({"connection", "content-length", "host", "transfer-encoding", "upgrade"})
"""Headers that say where a message goes and ends: the connection's own."""


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
    headers: dict[str, str] = {}
    for name, value in call.headers.items():
        _add_header(headers, name, _fill(value, params, f"http.headers.{name}"))
    found: list[str] = []
    for source in call.headers_from:
        value = secrets.fetch_secret(source.secret_key_ref.name, source.secret_key_ref.key)
        found.append(value)
        if source.prefix.strip().lower() == "basic":
            found.extend(_basic_credentials(value))
        _add_header(headers, source.name, source.prefix + value, secret=True)
    body = _body(call.body, params)
    if body is not None and "content-type" not in (name.lower() for name in headers):
        headers["Content-Type"] = "application/json"
    return HttpRequest(
        method=str(call.method),
        url=_url(call, params),
        headers=headers,
        content=b"" if body is None else body.encode(),
        secret_headers=frozenset(source.name.lower() for source in call.headers_from),
        secrets=tuple(found),
    )


def _url(call: HttpCall, params: JsonObject) -> str:
    authority = urlsplit(call.url).netloc
    if "{" in authority:
        raise RequestRefusedError("http.url: placeholders may stand in path and query only, never in the host")
    if "@" in authority:
        raise RequestRefusedError("http.url: credentials belong into http.headersFrom, not into the URL")
    if "#" in call.url:
        raise RequestRefusedError("http.url: a fragment (#) is never sent; remove it")
    path, asks, query = call.url.partition("?")
    path = _fill(path, params, "http.url", in_path=True)
    # Two harmless values side by side may make a step out of the place that the author meant.
    if any(segment in (".", "..") for segment in path.split("/")):
        raise RequestRefusedError(f"http.url: {path} has a segment of dots alone, which would change the path")
    parts = [_fill(query, params, "http.url")] if asks and query else []
    for name, value in call.query.items():
        parts.append(f"{quote(name, safe='')}={_fill(value, params, f'http.query.{name}', encode_rest=True)}")
    return "?".join((path, "&".join(parts))) if parts else path


def _body(template: str | None, params: JsonObject) -> str | None:
    if template is None:
        return None
    match = _PLACEHOLDER.fullmatch(template.strip())
    if match is None:
        raise RequestRefusedError('http.body: write "{params}" or "{name}" of one param')
    if match[1] == "params" and "params" not in params:
        return canonical_json(params)
    return canonical_json(_param(match[1], params, "http.body"))


def _fill(template: str, params: JsonObject, field: str, *, in_path: bool = False, encode_rest: bool = False) -> str:
    parts: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(template):
        parts.append(_rest(template[end : match.start()], encode_rest))
        text = _text(_param(match[1], params, field), match[1], field)
        if in_path and not text:
            raise RequestRefusedError(f"{field}: param {match[1]} is empty, which would change the path")
        parts.append(quote(text, safe=""))
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
            return value
        case int() | Decimal():
            return canonical_json(value)
        case _:
            shown = canonical_json(value)[:200]
            raise RequestRefusedError(f"{field}: param {name} is neither text, number nor truth value: {shown}")


def _add_header(headers: dict[str, str], name: str, value: str, *, secret: bool = False) -> None:
    field = f"http.headersFrom.{name}" if secret else f"http.headers.{name}"
    shown = "its value" if secret else repr(value)
    if name.lower() in _FRAMING:
        raise RequestRefusedError(f"{field}: this header is set by the connection itself; remove it")
    if name.lower() in (known.lower() for known in headers):
        raise RequestRefusedError(f"{field}: this header is set twice")
    if _UNSENDABLE.search(value):
        raise RequestRefusedError(f"{field}: {shown} holds a control character")
    if not value.isascii():
        raise RequestRefusedError(f"{field}: {shown} holds characters beyond ASCII, which headers cannot carry")
    headers[name] = value


def _basic_credentials(encoded: str) -> tuple[str, ...]:
    """Return what a server reads out of ``Basic <encoded>``: it may say it back."""
    try:
        decoded = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ()
    return (decoded, decoded.partition(":")[2])
