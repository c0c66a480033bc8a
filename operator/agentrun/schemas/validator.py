"""Judges params and results by their JSON Schema (draft 2020-12), and schemas themselves before they are used.

The gate and the engine receive :meth:`SchemaValidator.validate` and :meth:`SchemaValidator.check` as callables.
Numbers are judged exactly: jsonschema-rs takes ``int`` of any size and ``Decimal`` as they are. An integral number is
an integer however it was written (``5.0`` is 5, in the canonical text as well); ``1.9``, ``"5"`` and ``true`` are not.
``format`` is asserted where the library knows it. Patterns run in linear time: no lookaround, no backreferences.

It keeps no values, reads no files and fetches nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

import jsonschema_rs

from agentrun.contract.exact_json import (
    MAX_DEPTH,
    JsonObject,
    JsonRefusedError,
    JsonValue,
    admit_json,
    canonical_json,
    json_digest,
)
from agentrun.schemas.evaluation_work import TooMuchWorkError, refuse_exploding_schema
from agentrun.schemas.problem_text import MASK, path_text, problem_text, value_text
from agentrun.schemas.subschemas import PlacedSchema, ReferenceRefusedError, follow_reference, walk_schemas

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_PROBLEMS = 20
DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_SPELLINGS = (DRAFT, f"{DRAFT}#")
_REFUSED_KEYWORDS = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
_PATTERN_BYTES = 1024 * 1024
"""Compiled size that one pattern may have; ``a{1000}{1000}`` does not."""
_TYPES = "array, boolean, integer, null, number, object or string"


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """One thing that is wrong: where (``items[2].price``; empty is the value itself) and what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class _Compiled:
    problems: tuple[SchemaProblem, ...]
    validator: jsonschema_rs.Draft202012Validator | None


class SchemaValidator:
    """Compiles each schema once (the last ``cache_size`` of them are kept) and judges values by it.

    Safe to share between threads.
    """

    def __init__(self, cache_size: int = 256) -> None:
        self._cache_size = cache_size
        self._compiled: OrderedDict[str, _Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def validate(self, schema: JsonObject, value: JsonValue) -> tuple[SchemaProblem, ...]:
        """Return what is wrong with a value, at most :data:`MAX_PROBLEMS` problems; empty when it fits.

        By a schema that :meth:`check` refuses nothing is judged: its problems are returned, so the gate stays shut.
        """
        compiled = self._fetch_compiled(schema)
        if compiled.validator is None:
            return tuple(SchemaProblem("", f"the schema is not usable: {problem}") for problem in compiled.problems)
        # jsonschema_rs recurses without a bound of its own: a value of 100,000 levels would end the whole process.
        if _is_deeper_than(value, MAX_DEPTH + 1):
            return (SchemaProblem("", f"nested deeper than {MAX_DEPTH} levels"),)
        try:
            if compiled.validator.is_valid(value):
                return ()
            errors = list(islice(compiled.validator.iter_errors(value), MAX_PROBLEMS))
        except ValueError as error:  # no JSON at all
            return (SchemaProblem("", f"not JSON that can be judged: {error}"),)
        errors.sort(key=_place_order)
        return tuple(SchemaProblem(path_text(error.instance_path), problem_text(error)) for error in errors)

    def check(self, schema: JsonObject) -> tuple[SchemaProblem, ...]:
        """Return why a schema cannot be used, for admission; empty when it can.

        Refused are: what the draft's own schema refuses, other drafts, references other than ``#/…``, schemas over
        64 KiB or 32 levels, ones that judge one place of a value too often, and patterns with lookaround or
        backreferences. Paths are places in the schema (``properties.amount.type``).
        """
        return self._fetch_compiled(schema).problems

    def _fetch_compiled(self, schema: JsonObject) -> _Compiled:
        try:
            digest = json_digest(admit_json(schema))
        except JsonRefusedError as error:
            return _Compiled((SchemaProblem(error.path, error.problem),), None)
        with self._lock:
            known = self._compiled.get(digest)
            if known is not None:
                self._compiled.move_to_end(digest)
                return known
        compiled = _compile(schema)
        with self._lock:
            self._compiled[digest] = compiled
            while len(self._compiled) > self._cache_size:
                self._compiled.popitem(last=False)
        return compiled


def _compile(schema: JsonObject) -> _Compiled:
    problems = _find_bounds_passed(schema) or _find_refused_keywords(schema)
    if problems:
        return _Compiled(problems[:MAX_PROBLEMS], None)
    try:
        validator = jsonschema_rs.Draft202012Validator(
            _prepare(schema),
            validate_formats=True,
            offline=True,
            mask=MASK,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES),
        )
        refuse_exploding_schema(schema)
    except jsonschema_rs.ValidationError as error:
        return _Compiled((_schema_problem(error),), None)
    except (TooMuchWorkError, ValueError) as error:
        return _Compiled((SchemaProblem("", str(error)),), None)
    return _Compiled((), validator)


def _find_bounds_passed(schema: JsonObject) -> tuple[SchemaProblem, ...]:
    size = len(canonical_json(schema).encode())
    if size > MAX_SCHEMA_BYTES:
        return (SchemaProblem("", f"the schema has {size} bytes, more than {MAX_SCHEMA_BYTES}"),)
    if _is_deeper_than(schema, MAX_SCHEMA_DEPTH):
        return (SchemaProblem("", f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels: use $defs"),)
    return ()


def _find_refused_keywords(root: JsonObject) -> tuple[SchemaProblem, ...]:
    problems = []
    for place in walk_schemas(root):
        problems.extend(_refused_at(root, place))
    return tuple(problems)


def _refused_at(root: JsonObject, place: PlacedSchema) -> list[SchemaProblem]:
    problems = [
        SchemaProblem(place.path, f"{keyword} is not supported: use $ref")
        for keyword in _REFUSED_KEYWORDS
        if keyword in place.schema
    ]
    if place.schema is not root and "$id" in place.schema:
        problems.append(SchemaProblem(place.path, "$id below the root would move the references: remove it"))
    if "$schema" in place.schema and place.schema["$schema"] not in _DRAFT_SPELLINGS:
        problems.append(
            SchemaProblem(place.path, f"$schema {value_text(place.schema['$schema'])} is not supported: write {DRAFT}")
        )
    if "$ref" in place.schema:
        try:
            follow_reference(root, place.schema["$ref"])
        except ReferenceRefusedError as error:
            problems.append(SchemaProblem(place.path, str(error)))
    return problems


def _schema_problem(error: jsonschema_rs.ValidationError) -> SchemaProblem:
    path = list(error.instance_path)
    value = value_text(error.instance)
    if path and path[-1] == "type":
        return SchemaProblem(path_text(path), f"{value} is no type: write {_TYPES}, or a list of these")
    if path and (path[-1] == "pattern" or "patternProperties" in path[-2:]):
        return SchemaProblem(
            path_text(path),
            f"{value} is no pattern that runs in linear time: no lookaround, no backreferences, no huge repetitions",
        )
    return SchemaProblem(path_text(path), problem_text(error))


def _place_order(error: jsonschema_rs.ValidationError) -> list[tuple[int, str]]:
    """Order by place, items by number; problems of one place keep the library's order."""
    return [(part, "") if isinstance(part, int) else (-1, part) for part in error.instance_path]


def _prepare(schema: JsonObject) -> JsonObject:
    """Return the schema as the library judges it rightly and names what it refuses."""
    prepared: JsonObject = _with_exact_multiples(schema)
    for place in walk_schemas(prepared):
        # Without any property beside it, the library says of an unknown field neither name nor place.
        if place.schema.get("additionalProperties") is False and "patternProperties" not in place.schema:
            place.schema.setdefault("properties", {})
    return prepared


def _with_exact_multiples(value: Any) -> Any:
    """Return the schema with every number as a decimal under ``multipleOf``.

    jsonschema-rs compares an integral ``multipleOf`` with a large decimal as binary floats; as a decimal it is exact.
    """
    if isinstance(value, list):
        return [_with_exact_multiples(item) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _with_exact_multiples(item) for key, item in value.items()}
    multiple = changed.get("multipleOf")
    if isinstance(multiple, int) and not isinstance(multiple, bool):
        changed["multipleOf"] = Decimal(f"{multiple}.0")
    return changed


def _is_deeper_than(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        return levels == 0 or any(_is_deeper_than(item, levels - 1) for item in value.values())
    if isinstance(value, list):
        return levels == 0 or any(_is_deeper_than(item, levels - 1) for item in value)
    return False
