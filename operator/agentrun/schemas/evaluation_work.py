"""Bounds how often a schema can make one place of a value be judged.

Chains of ``allOf`` over the same reference double with every link, and a schema that applies itself twice to the same
child doubles with every level of the value; either hangs any validator on a few hundred bytes. The bound is found from
the schema alone, before any value is seen.

The evaluations at one place of a value are a count for each schema that is applied there. Going down into a child
(the property ``left``, any other property, an item) gives the counts at that child. All counts that can be reached
are visited; a schema that walks a tree comes back to the same few, one that doubles passes the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agentrun.contract.exact_json import MAX_DEPTH, JsonObject
from agentrun.schemas.subschemas import (
    CHILD_MAPS,
    IN_PLACE_MANY,
    IN_PLACE_MAPS,
    IN_PLACE_ONE,
    ReferenceRefusedError,
    follow_reference,
    schemas_of,
)

MAX_EVALUATIONS = 1_000
"""Schemas applied to one place of a value."""
_MAX_STATES = 20_000
"""Different sets of schemas at one place; a schema of 64 KiB has fewer unless it is made to explode."""

_Counts = frozenset[tuple[int, int]]
"""How often each schema (by its number) is applied to one place."""


class TooMuchWorkError(ValueError):
    """A schema would be applied to one place of a value more often than is allowed, or for ever."""


def refuse_exploding_schema(root: JsonObject) -> None:
    """Raise :class:`TooMuchWorkError` when the schema can apply more than :data:`MAX_EVALUATIONS` schemas to one place.

    Expects references that :func:`follow_reference` accepts.
    """
    _Expansion(root).explore()


class _Expansion:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._numbers: dict[int, int] = {}
        self._schemas: list[JsonObject] = []
        self._in_place: dict[int, Counter[int]] = {}

    def explore(self) -> None:
        start = frozenset(self._applied_with(self._number(self._root), frozenset()).items())
        level, seen = {start}, {start}
        for _ in range(MAX_DEPTH + 1):
            level = {child for counts in level for child in self._children(counts)} - seen
            seen |= level
            if len(seen) > _MAX_STATES:
                raise TooMuchWorkError("the schema is too intricate to be bounded: simplify its references")
            if not level:
                return

    def _number(self, schema: JsonObject) -> int:
        number = self._numbers.get(id(schema))
        if number is None:
            number = self._numbers[id(schema)] = len(self._schemas)
            self._schemas.append(schema)
        return number

    def _applied_with(self, number: int, open_numbers: frozenset[int]) -> Counter[int]:
        """Count the schemas that apply to the same place when this one does, itself included."""
        known = self._in_place.get(number)
        if known is not None:
            return known
        if number in open_numbers:
            raise TooMuchWorkError("the schema refers to itself without going into a property or an item")
        total = Counter({number: 1})
        for part in self._same_place(self._schemas[number]):
            total.update(self._applied_with(self._number(part), open_numbers | {number}))
            _refuse_above_limit(total)
        self._in_place[number] = total
        return total

    def _same_place(self, schema: JsonObject) -> Iterator[JsonObject]:
        if "$ref" in schema:
            try:
                target = follow_reference(self._root, schema["$ref"])
            except ReferenceRefusedError:
                target = None
            if isinstance(target, dict):
                yield target
        for keyword in (*IN_PLACE_ONE, *IN_PLACE_MANY, *IN_PLACE_MAPS):
            for _, part in schemas_of(schema, keyword):
                yield part

    def _children(self, counts: _Counts) -> Iterator[_Counts]:
        """Yield the counts at each kind of child: each named property, any other property, each item, a name."""
        applied = [(self._schemas[number], times) for number, times in counts]
        names = {name for schema, _ in applied for name, _ in schemas_of(schema, "properties")}
        indices = {name for schema, _ in applied for name, _ in schemas_of(schema, "prefixItems")}
        for name in (*sorted(names), None):
            yield self._child((part, times) for schema, times in applied for part in _for_property(schema, name))
        for index in (*sorted(indices), None):
            yield self._child((part, times) for schema, times in applied for part in _for_item(schema, index))
        yield self._child((part, times) for schema, times in applied for _, part in schemas_of(schema, "propertyNames"))

    def _child(self, parts: Iterator[tuple[JsonObject, int]]) -> _Counts:
        total: Counter[int] = Counter()
        for part, times in parts:
            for number, count in self._applied_with(self._number(part), frozenset()).items():
                total[number] += count * times
        _refuse_above_limit(total)
        return frozenset(total.items())


def _for_property(schema: JsonObject, name: str | None) -> Iterator[JsonObject]:
    """Yield what applies to one property (``None``: one that no schema names). Patterns are taken to match."""
    named = False
    for property_name, part in schemas_of(schema, CHILD_MAPS[0]):
        if property_name == name:
            named = True
            yield part
    for _, part in schemas_of(schema, CHILD_MAPS[1]):
        yield part
    if not named:
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            for _, part in schemas_of(schema, keyword):
                yield part


def _for_item(schema: JsonObject, index: str | None) -> Iterator[JsonObject]:
    placed = False
    for number, part in schemas_of(schema, "prefixItems"):
        if number == index:
            placed = True
            yield part
    for keyword in ("contains", "unevaluatedItems", *(() if placed else ("items",))):
        for _, part in schemas_of(schema, keyword):
            yield part


def _refuse_above_limit(total: Counter[int]) -> None:
    if total.total() > MAX_EVALUATIONS:
        raise TooMuchWorkError(
            f"the schema judges one place of a value more than {MAX_EVALUATIONS} times: "
            "its references or combinations double"
        )
