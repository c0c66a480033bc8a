"""Paths into JSON values: ``result.entities[0].score``, parsed once, looked up by type.

Used by references, conditions and every message that names a place inside a value. It never guesses: a key is looked
up in objects only, an index in lists only, and what is not there comes back as :class:`Missing` with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from agentrun.contract.exact_json import JsonValue, canonical_json
from agentrun.contract.model_base import cut_text

PathPart: TypeAlias = str | int
ValuePathParts: TypeAlias = tuple[PathPart, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_INDEX = re.compile(r"\[([0-9]{1,6})\]")
_QUOTED_KEY = re.compile(r'\[("(?:[^"\\\x00-\x1f]|\\.)*")\]')


@dataclass(frozen=True, slots=True)
class Found:
    """The value at a path; may be null."""

    value: JsonValue


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no value, and why; ``defaults`` are what its author declared to be used instead, by path."""

    why: str
    defaults: Mapping[str, JsonValue] = field(default_factory=dict)


class PathSyntaxError(ValueError):
    """A path is not written as paths are. ``position`` counts characters from 0."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"{problem} at character {position + 1}")
        self.problem = problem
        self.position = position


def parse_path(text: str) -> ValuePathParts:
    """Return the parts of a whole path text such as ``result.items[0]["odd key"]``.

    Raises :class:`PathSyntaxError` when the text is no path.
    """
    parts, end = scan_path(text, 0)
    if end != len(text):
        raise PathSyntaxError(f"unexpected {text[end]!r}", end)
    return parts


def scan_path(text: str, start: int) -> tuple[ValuePathParts, int]:
    """Read the longest path that begins at ``start``; return its parts and the position behind it.

    Raises :class:`PathSyntaxError` when no path begins there or a part is cut or malformed.
    """
    first = _PLAIN_KEY.match(text, start)
    if first is None:
        raise PathSyntaxError("a path must begin with a name", start)
    parts: list[PathPart] = [first.group()]
    position = first.end()
    while position < len(text) and text[position] in ".[":
        part, position = _scan_part(text, position)
        parts.append(part)
    return tuple(parts), position


def format_path(parts: Sequence[PathPart]) -> str:
    """Write the parts as the path text that :func:`parse_path` reads back."""
    out: list[str] = []
    for part in parts:
        if isinstance(part, int):
            out.append(f"[{part}]")
        elif _PLAIN_KEY.fullmatch(part):
            out.append(f".{part}" if out else part)
        else:
            out.append(f"[{json.dumps(part, ensure_ascii=False)}]")
    return "".join(out)


def lookup_path(value: JsonValue, path: Sequence[PathPart]) -> Found | Missing:
    """Return the value at ``path`` inside ``value``, or :class:`Missing` naming the place where the way ends."""
    here: JsonValue = value
    for depth, part in enumerate(path):
        if isinstance(part, str) and isinstance(here, dict):
            if part not in here:
                return Missing(f"{_place(path, depth)} has no field {part!r}")
            here = here[part]
        elif isinstance(part, int) and isinstance(here, list):
            if part >= len(here):
                return Missing(f"{_place(path, depth)} has {len(here)} items, so there is no [{part}]")
            here = here[part]
        else:
            wanted = "an index" if isinstance(part, int) else f"field {part!r}"
            return Missing(f"{_place(path, depth)} is {type_name(here)}: {wanted} cannot be read from it")
    return Found(here)


def type_name(value: JsonValue) -> str:
    """Return the JSON type of a value as JSON Schema calls it, number for every number."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | Decimal):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def show_value(value: JsonValue, limit: int = 200) -> str:
    """Return the value's JSON text cut to ``limit`` code points, for messages."""
    return cut_text(canonical_json(value), limit)


def _scan_part(text: str, position: int) -> tuple[PathPart, int]:
    if text[position] == ".":
        key = _PLAIN_KEY.match(text, position + 1)
        if key is None:
            raise PathSyntaxError('a name must follow the dot (write odd names as ["odd name"])', position + 1)
        return key.group(), key.end()
    index = _INDEX.match(text, position)
    if index is not None:
        return int(index.group(1)), index.end()
    quoted = _QUOTED_KEY.match(text, position)
    if quoted is None:
        raise PathSyntaxError('brackets hold an index such as [0] or a quoted name such as ["odd name"]', position)
    try:
        return str(json.loads(quoted.group(1))), quoted.end()
    except ValueError as error:
        raise PathSyntaxError("the quoted name is no JSON string", position) from error


def _place(path: Sequence[PathPart], depth: int) -> str:
    return format_path(path[:depth]) or "the value"
