"""Keeps secret values out of everything that leaves the worker: messages, raw outputs, results, logs."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from urllib.parse import quote

from agentrun.contract.exact_json import JsonValue

MASK = "[redacted]"
_SHORTEST = 4
"""Shorter values are found in ordinary text; a secret of that length protects nothing."""


class Redactor:
    """Replaces the values it was told, and the usual encodings of them, wherever they occur."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: list[str] = []
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Add a secret: as it is, percent-encoded, JSON-escaped, in base64."""
        if len(secret) < _SHORTEST:
            return
        raw = secret.encode()
        padded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
        escaped = secret.replace("\\", "\\\\").replace('"', '\\"')
        forms = {
            secret,
            quote(secret, safe=""),
            quote(secret),
            escaped,
            *padded,
            *(text.rstrip("=") for text in padded),
        }
        # Longest first: a shorter form inside a longer one must not leave the rest of it standing.
        self._forms = sorted({*self._forms, *forms}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return the text without the secrets."""
        for form in self._forms:
            text = text.replace(form, MASK)
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
