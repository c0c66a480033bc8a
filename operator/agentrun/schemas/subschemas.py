"""Where schemas stand inside a JSON Schema (draft 2020-12), and where its references lead.

A word such as ``$ref`` is a keyword only where a schema stands: inside ``const``, ``enum`` or ``examples``, or as the
name of a property, it is the author's own data. Everything that looks at schemas therefore walks them with
:func:`walk_schemas`. It does not judge values; jsonschema-rs does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from agentrun.contract.exact_json import JsonObject

IN_PLACE_ONE = ("not", "if", "then", "else")
IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
"""``dependencies`` is of older drafts; its schemas are counted all the same."""
CHILD_ONE = ("items", "contains", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames")
CHILD_MANY = ("prefixItems",)
CHILD_MAPS = ("properties", "patternProperties")
DEFINITIONS = ("$defs", "definitions")

_ONE = (*IN_PLACE_ONE, *CHILD_ONE, "contentSchema")
_MANY = (*IN_PLACE_MANY, *CHILD_MANY)
_MAPS = (*IN_PLACE_MAPS, *CHILD_MAPS, *DEFINITIONS)


class ReferenceRefusedError(ValueError):
    """A ``$ref`` leads out of the schema or to nothing; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class PlacedSchema:
    """A schema and where it stands in the whole (``properties.a.items``)."""

    path: str
    schema: JsonObject


def walk_schemas(root: JsonObject) -> Iterator[PlacedSchema]:
    """Yield every schema that is an object, the root first, each once; also those that only a ``$ref`` leads to.

    References that lead nowhere are passed over here; :func:`follow_reference` refuses them.
    """
    seen: set[int] = set()
    open_places = [PlacedSchema("", root)]
    while open_places:
        place = open_places.pop()
        if id(place.schema) in seen:
            continue
        seen.add(id(place.schema))
        yield place
        open_places.extend(reversed(list(_placed_below(place))))
        target = _find_target(root, place.schema)
        if target is not None:
            open_places.append(
                PlacedSchema(place.schema["$ref"].removeprefix("#").strip("/").replace("/", "."), target)
            )


def follow_reference(root: JsonObject, reference: object) -> Any:
    """Return what a local reference (``#`` or ``#/…``) leads to.

    Raises :class:`ReferenceRefusedError` for any other reference and for one that leads to nothing.
    """
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise ReferenceRefusedError(
            f"$ref {reference!r} leads out of the schema: put the schema under $defs and write #/$defs/<name>"
        )
    place: Any = root
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isascii() and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            raise ReferenceRefusedError(f"$ref {reference!r} leads to nothing in this schema")
    return place


def schemas_of(schema: JsonObject, keyword: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield name and schema of each object schema directly under a keyword; the name is empty for a single one."""
    value = schema.get(keyword)
    if keyword in _ONE and isinstance(value, dict):
        yield "", value
    elif keyword in _MANY and isinstance(value, list):
        yield from ((str(index), item) for index, item in enumerate(value) if isinstance(item, dict))
    elif keyword in _MAPS and isinstance(value, dict):
        yield from ((name, item) for name, item in value.items() if isinstance(item, dict))


def _placed_below(place: PlacedSchema) -> Iterator[PlacedSchema]:
    for keyword in (*_ONE, *_MANY, *_MAPS):
        for name, schema in schemas_of(place.schema, keyword):
            yield PlacedSchema(".".join(part for part in (place.path, keyword, name) if part), schema)


def _find_target(root: JsonObject, schema: JsonObject) -> JsonObject | None:
    if "$ref" not in schema:
        return None
    try:
        target = follow_reference(root, schema["$ref"])
    except ReferenceRefusedError:
        return None
    return target if isinstance(target, dict) else None
