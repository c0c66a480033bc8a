"""Explaining what pydantic found: field, what is wrong with which value, and how to mend it."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentrun.contract.model_base import cut_text
from agentrun.local.yaml_documents import FieldPath

_SHOWN = 80
_DECIMAL = re.compile(r"Decimal\('([^']*)'\)")
_PLACES_SHOWN = 2
"""A field that stands in more places than this is named in none of them."""
_DEEPEST = 5
_REMEDIES = ("remove", "write", "pass", "use", "give")
"""What a remedy begins with, where a model's own message has one behind a colon."""


def explain_errors(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[FieldPath, str, str]]:
    """Give (path, message, remedy) for each error, each place once."""
    seen: set[tuple[FieldPath, str]] = set()
    found_errors = error.errors(include_url=False)
    paths = [_path_of(found) for found in found_errors]
    for found, path in zip(found_errors, paths, strict=True):
        # A list whose items are all wrong is reported as empty besides: only the items are the author's matter.
        if found["type"] == "too_short" and any(other[: len(path)] == path for other in paths if other != path):
            continue
        message, remedy = _explain(found, path, model)
        if (path, message) not in seen:
            seen.add((path, message))
            yield path, message, remedy


def _path_of(found: ErrorDetails) -> FieldPath:
    return tuple(part for part in found["loc"] if part != "[key]")


def _explain(found: ErrorDetails, path: FieldPath, model: type[BaseModel]) -> tuple[str, str]:
    kind, value = found["type"], found.get("input")
    context: dict[str, Any] = found.get("ctx") or {}
    match kind:
        case "extra_forbidden":
            known = _fields_at(model, path[:-1])
            name = str(path[-1])
            elsewhere = _places_of(name, model)
            near = difflib.get_close_matches(name, known, 1, 0.6)
            meant = [*near, *(elsewhere if len(elsewhere) <= _PLACES_SHOWN else ())]
            remedy = (
                f"did you mean {' or '.join(meant)}?" if meant else f"remove it; known are {', '.join(sorted(known))}"
            )
            return f"there is no field {name} here", remedy
        case "missing":
            return "is missing", "add the field"
        case "enum" | "literal_error":
            return f"is {_show(value)}", f"write {context.get('expected', 'one of the allowed values')}"
        case "string_pattern_mismatch":
            return f"is {_show(value)}", _pattern_remedy(str(context.get("pattern", "")))
        case "string_too_long" | "string_too_short" | "too_long" | "too_short":
            return f"is {_show(value)}: {_lower(found['msg'])}", "bring it within the bound"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"is {_show(value)}, which is no whole number", "write the number without quotes"
        case "bool_type" | "bool_parsing":
            return f"is {_show(value)}, which is neither true nor false", "write true or false without quotes"
        case "string_type":
            return f"is {_show(value)}, which is no text", "put quotes around it"
        case "tuple_type" | "list_type":
            return f"is {_show(value)}, which is no list", "write a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"is {_show(value)}, which is no object", "write fields below it"
        case "value_error":
            said = _DECIMAL.sub(r"\1", str(context.get("error", found["msg"])))
            message, _, remedy = said.partition(": ")
            return (message, remedy) if remedy.startswith(_REMEDIES) else (said, "")
        case _:
            return f"is {_show(value)}: {_lower(found['msg'])}", "correct the value"


def _pattern_remedy(pattern: str) -> str:
    if pattern.startswith("^[a-z]([a-z0-9-]"):
        return "use lower-case letters, digits and dashes, beginning with a letter, at most 63"
    if pattern.startswith("^[a-z0-9]([a-z0-9.-]"):
        return "use lower-case letters, digits, dashes and dots (a DNS name)"
    if pattern.startswith("^https?://"):
        return "begin with http:// or https://"
    if pattern.endswith(":[A-Za-z_][A-Za-z0-9_]*$"):
        return "write package.module:function"
    return f"match {pattern}"


def _fields_at(model: type[BaseModel], path: FieldPath) -> list[str]:
    current: Any = model
    for part in path:
        current = _inner(current, part)
        if current is None:
            return []
    found = _model_in(current)
    return [info.alias or name for name, info in found.model_fields.items()] if found else []


def _places_of(name: str, model: type[BaseModel]) -> list[str]:
    """Return where a field of this name may stand, each place once: ``spec.execution.pool``, ``spec.nodes[].tool``."""
    found: list[str] = []
    begun: list[tuple[str, Any, int]] = [("", model, 0)]
    seen: set[type[BaseModel]] = set()
    while begun:
        at, annotation, depth = begun.pop(0)
        for candidate in _flatten(annotation):
            if get_origin(candidate) in (tuple, list):
                begun.append((f"{at}[]", get_args(candidate)[0], depth))
        inner = _model_in(annotation)
        if inner is None or inner in seen or depth > _DEEPEST:
            continue
        seen.add(inner)
        for own, info in inner.model_fields.items():
            alias = info.alias or own
            place = f"{at}.{alias}" if at else alias
            # What others write there is no place of the author's.
            if place in ("status", "metadata"):
                continue
            if alias == name:
                found.append(place)
            begun.append((place, info.annotation, depth + 1))
    return found


def _inner(annotation: Any, part: str | int) -> Any:
    found = _model_in(annotation)
    if found is not None and isinstance(part, str):
        for name, info in found.model_fields.items():
            if part in (name, info.alias):
                return info.annotation
        return None
    for candidate in _flatten(annotation):
        arguments = get_args(candidate)
        if isinstance(part, int) and get_origin(candidate) in (tuple, list) and arguments:
            return arguments[0]
        if isinstance(part, str) and get_origin(candidate) is dict and len(arguments) == 2:
            return arguments[1]
    return None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in _flatten(annotation):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _flatten(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _flatten(argument)
    elif hasattr(annotation, "__metadata__"):
        yield from _flatten(annotation.__origin__)
    else:
        yield annotation


def _show(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return cut_text(text, _SHOWN)


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
