"""Keeps secret values out of everything that leaves the worker: messages, raw outputs, results, logs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from html import escape
from urllib.parse import quote, quote_plus

from agentrun.contract.exact_json import JsonValue

MASK = "[redacted]"
_SHORTEST = 4
"""Shorter values are found in ordinary text; a secret of that length protects nothing."""
_SHORTEST_CORE = 8
"""The same for what base64 makes of a secret that stands inside a longer text."""


_JSON_IN_JSON = 3
"""How often a text may have been put into a JSON string: an error's message that quotes another error is the usual."""


class Redactor:
    """Replaces the values it was told, and the usual encodings of them, wherever they occur."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: list[str] = []
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Add a secret: as it is, percent-encoded, escaped for JSON and HTML, in base64 wherever it begins."""
        if len(secret) < _SHORTEST:
            return
        raw = secret.encode("utf-8", "surrogatepass")
        padded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
        forms = {
            secret,
            quote(raw, safe=""),
            quote(raw),
            quote_plus(raw),
            escape(secret),
            *padded,
            *(text.rstrip("=") for text in padded),
            *_base64_cores(raw),
        }
        for _ in range(_JSON_IN_JSON):
            forms |= {escaped for form in forms for escaped in _json_escaped(form)}
        # Longest first: a shorter form inside a longer one must not leave the rest of it standing.
        self._forms = sorted({*self._forms, *forms}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a whole text without the secrets."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def fragment(self, text: str) -> str:
        """Return a piece of a text without the secrets, those included that the cut went through."""
        text = self.text(text)
        for form in self._forms:
            for length in range(min(len(form) - 1, len(text)), _SHORTEST - 1, -1):
                if text.endswith(form[:length]):
                    text = text[:-length] + MASK
                if text.startswith(form[-length:]):
                    text = MASK + text[length:]
        return text

    def value(self, value: JsonValue) -> JsonValue:
        """Return a JSON value without the secrets, names of fields included."""
        if not self._forms:
            return value
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(name): self.value(item) for name, item in value.items()}
            case _:
                return value


def _json_escaped(text: str) -> tuple[str, ...]:
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    # Some writers escape slashes as well.
    return json.dumps(text)[1:-1], plain, plain.replace("/", "\\/")


def _base64_cores(raw: bytes) -> set[str]:
    """Return what is left of the bytes in the base64 of any text that they stand in: it depends on the offset alone."""
    cores = set()
    for offset in range(3):
        whole = (offset + len(raw)) * 8 // 6
        first = (0, 2, 3)[offset]
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            core = encode(bytes(offset) + raw).decode()[first:whole]
            if len(core) >= _SHORTEST_CORE:
                cores.add(core)
    return cores
