"""References ``${…}`` inside JSON values: parsed once, resolved in a single pass, never evaluated.

``${inputs.day}``, ``${nodes.rate.result.value}``, ``${nodes.check.results[0].sku}``, ``${item.sku}``, ``${index}``;
in a lookup's params ``${params.order_id}`` and ``${key}``. Odd names are quoted (``${inputs["odd key"]}``), and ``$${``
is a literal ``${``. A string that is one reference and nothing else takes the value with its type; inside other text
strings stand as they are, numbers as exact decimals, booleans as ``true`` and ``false``. Whatever is inserted is data:
a ``${`` inside it stays as it is.

Admission calls :func:`parse_template` to check; the scheduler calls :func:`resolve_template` on the way to the params
gate. Which names may be read where is admission's business, not this module's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, assert_never

from agentrun.contract.exact_json import JsonObject, JsonValue, canonical_json
from agentrun.decisions.value_paths import (
    Found,
    Missing,
    PathPart,
    PathSyntaxError,
    ValuePathParts,
    format_path,
    lookup_path,
    parse_path,
    scan_path,
    type_name,
)

__all__ = [
    "Found",
    "Given",
    "Missing",
    "NodeValue",
    "Reference",
    "ReferenceScope",
    "ReferenceSyntaxError",
    "Root",
    "Template",
    "UnresolvedReferenceError",
    "lookup_path",
    "parse_template",
    "read_node_field",
    "resolve_call_template",
    "resolve_template",
]

_OPEN, _ESCAPE = "${", "$${"
_FORM = "write it like ${inputs.day} or ${nodes.stock.result.items}, and $${ for a literal ${"


class Root(StrEnum):
    """What a reference may read."""

    INPUTS = "inputs"
    PARAMS = "params"
    NODES = "nodes"
    ITEM = "item"
    INDEX = "index"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Reference:
    """One parsed reference.

    ``path`` is what is read from the root; with ``nodes`` it begins with ``result`` or ``results``. ``text`` is the
    whole path as written, without the braces.
    """

    root: Root
    node: str | None
    path: ValuePathParts
    text: str


@dataclass(frozen=True, slots=True)
class _Text:
    """Literal text with references between."""

    parts: tuple[str | Reference, ...]


_Compiled: TypeAlias = "Reference | _Text | _Plain | list[_Compiled] | dict[str, _Compiled]"


@dataclass(frozen=True, slots=True)
class _Plain:
    """A part of the value that refers to nothing."""

    value: JsonValue


@dataclass(frozen=True, slots=True)
class PlacedReference:
    """A reference and where it stands in the author's value."""

    reference: Reference
    at: ValuePathParts
    whole: bool
    """It is its string's only content, so the value keeps its type."""


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value with parsed references."""

    compiled: _Compiled
    placed: tuple[PlacedReference, ...]
    """Every reference with its place, in reading order."""

    @property
    def references(self) -> tuple[Reference, ...]:
        """The references in reading order, repeated ones as often as they stand there."""
        return tuple(placed.reference for placed in self.placed)


class ReferenceSyntaxError(ValueError):
    """A ``${`` begins no valid reference. ``at`` is the place in the value, ``position`` the character from 0."""

    def __init__(self, text: str, problem: str, position: int, at: Sequence[PathPart]) -> None:
        place = f"{format_path(at)}: " if at else ""
        super().__init__(f"{place}{text!r} at character {position + 1}: {problem}; {_FORM}")
        self.text = text
        self.problem = problem
        self.position = position
        self.at = tuple(at)
        self.remedy = _FORM


class UnresolvedReferenceError(Exception):
    """A reference has no usable value. ``node`` is None for inputs and the like; ``field`` is the path that is read."""

    def __init__(self, reference: Reference, problem: str) -> None:
        super().__init__(f"${{{reference.text}}}: {problem}")
        self.reference = reference
        self.node = reference.node
        self.field = format_path(reference.path)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Given:
    """What a node gave: its result, or a fan-out's list of results in item order."""

    value: JsonValue


NodeValue: TypeAlias = Given | Missing
"""Missing carries the defaults of a node that was skipped, or is dead and tolerated; those of others do not count."""


class ReferenceScope(Protocol):
    """What a node's references can see."""

    def inputs(self) -> JsonObject:
        """Return the run's inputs."""
        ...

    def item(self) -> JsonValue:
        """Return the fan-out item of the node's instance."""
        ...

    def index(self) -> int | None:
        """Return the instance's index; None outside a fan-out, where there is no item either."""
        ...

    def node_result(self, name: str) -> NodeValue:
        """Return what the node gave (a fan-out: the list of results). ``name`` is as the author wrote it."""
        ...


def parse_template(value: JsonValue) -> Template:
    """Parse every reference in a value.

    Object keys are literal: a reference there is refused. Raises :class:`ReferenceSyntaxError` for the first malformed
    reference in reading order.
    """
    placed: list[PlacedReference] = []
    return Template(_compile(value, (), placed), tuple(placed))


def resolve_template(template: Template, scope: ReferenceScope) -> JsonValue:
    """Return the value with every reference replaced by what it reads in ``scope``.

    Raises :class:`UnresolvedReferenceError` for the first reference without a usable value.
    """
    return _resolve(template.compiled, lambda reference: _read_scope(reference, scope))


def resolve_call_template(template: Template, params: JsonObject, key: str) -> JsonValue:
    """Return a lookup's params: references read the params and the idempotency key of the call in question.

    Raises :class:`UnresolvedReferenceError` for the first reference without a usable value.
    """

    def read(reference: Reference) -> JsonValue:
        if reference.root is Root.KEY:
            return key
        if reference.root is Root.PARAMS:
            return _unwrap(reference, lookup_path(params, reference.path))
        raise UnresolvedReferenceError(reference, "a lookup reads params and key only")

    return _resolve(template.compiled, read)


def read_node_field(value: NodeValue, path: ValuePathParts) -> Found | Missing:
    """Return the field that ``path`` (``result.rate``, ``results[0].sku``) names in what a node gave.

    Where the node gave nothing, the longest declared default that begins the path answers.
    """
    if isinstance(value, Given):
        return lookup_path({str(path[0]): value.value}, path)
    for length in range(len(path), 0, -1):
        for declared, default in value.defaults.items():
            if _parts_of_default(declared) == path[:length]:
                return lookup_path(default, path[length:])
    return Missing(value.why)


def _compile(value: JsonValue, at: ValuePathParts, placed: list[PlacedReference]) -> _Compiled:
    if isinstance(value, str):
        return _compile_text(value, at, placed) if _OPEN in value else _Plain(value)
    seen = len(placed)
    if isinstance(value, list):
        items = [_compile(item, (*at, index), placed) for index, item in enumerate(value)]
        plain = len(placed) == seen and all(isinstance(item, _Plain) for item in items)
        return _Plain([item.value for item in items if isinstance(item, _Plain)]) if plain else items
    if isinstance(value, dict):
        members = {_literal_key(key, at): _compile(item, (*at, key), placed) for key, item in value.items()}
        plain = len(placed) == seen and all(isinstance(item, _Plain) for item in members.values())
        if plain:
            return _Plain({key: item.value for key, item in members.items() if isinstance(item, _Plain)})
        return members
    return _Plain(value)


def _compile_text(text: str, at: ValuePathParts, placed: list[PlacedReference]) -> _Compiled:
    parts = _split_text(text, at)
    references = [part for part in parts if isinstance(part, Reference)]
    if not references:
        return _Plain("".join(part for part in parts if isinstance(part, str)))
    whole = len(parts) == 1
    placed.extend(PlacedReference(reference, at, whole) for reference in references)
    return references[0] if whole else _Text(tuple(parts))


def _literal_key(key: str, at: ValuePathParts) -> str:
    if _OPEN not in key:
        return key
    parts = _split_text(key, at)
    if any(isinstance(part, Reference) for part in parts):
        raise ReferenceSyntaxError(key, "the name of a field cannot be a reference", key.index(_OPEN), at)
    return "".join(part for part in parts if isinstance(part, str))


def _split_text(text: str, at: ValuePathParts) -> list[str | Reference]:
    parts: list[str | Reference] = []
    literal: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) >= 0:
        literal.append(text[position:dollar])
        if text.startswith(_ESCAPE, dollar):
            literal.append(_OPEN)
            position = dollar + len(_ESCAPE)
        elif text.startswith(_OPEN, dollar):
            reference, position = _scan_reference(text, dollar, at)
            if joined := "".join(literal):
                parts.append(joined)
            literal = []
            parts.append(reference)
        else:
            literal.append("$")
            position = dollar + 1
    if joined := "".join([*literal, text[position:]]):
        parts.append(joined)
    return parts


def _scan_reference(text: str, start: int, at: ValuePathParts) -> tuple[Reference, int]:
    inside = start + len(_OPEN)
    try:
        parts, end = scan_path(text, inside)
    except PathSyntaxError as error:
        raise ReferenceSyntaxError(text, error.problem, error.position, at) from error
    if not text.startswith("}", end):
        found = repr(text[end]) if end < len(text) else "the end of the text"
        raise ReferenceSyntaxError(text, f"expected a closing brace, found {found}", end, at)
    written = text[inside:end]
    problem = _problem_of(parts)
    if problem:
        raise ReferenceSyntaxError(text, f"${{{written}}}: {problem}", inside, at)
    root = Root(str(parts[0]))
    if root is Root.NODES:
        return Reference(root, str(parts[1]), parts[2:], written), end + 1
    return Reference(root, None, parts[1:], written), end + 1


def _problem_of(parts: ValuePathParts) -> str:
    # A reference reads one of the declared roots and never anything else.
    if parts[0] not in set(Root):
        return f"{parts[0]} is not readable; readable are {', '.join(Root)}"
    # The index and the key are scalars.
    if parts[0] in (Root.INDEX, Root.KEY) and len(parts) > 1:
        return f"{parts[0]} has no fields"
    # A node shows its result, and a fan-out its list of results, and nothing else.
    if parts[0] == Root.NODES:
        if len(parts) < 2 or not isinstance(parts[1], str):
            return "the name of a node must follow nodes"
        if len(parts) < 3 or parts[2] not in ("result", "results"):
            return (
                f"a node shows its result (nodes.{parts[1]}.result), a fan-out its results (nodes.{parts[1]}.results)"
            )
    return ""


def _resolve(compiled: _Compiled, read: Callable[[Reference], JsonValue]) -> JsonValue:
    if isinstance(compiled, _Plain):
        return compiled.value
    if isinstance(compiled, Reference):
        return read(compiled)
    if isinstance(compiled, _Text):
        return "".join(part if isinstance(part, str) else _as_text(part, read(part)) for part in compiled.parts)
    if isinstance(compiled, list):
        return [_resolve(item, read) for item in compiled]
    return {key: _resolve(item, read) for key, item in compiled.items()}


def _as_text(reference: Reference, value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, dict | list):
        problem = f"{type_name(value)} cannot stand inside text; let the reference be the whole string"
        raise UnresolvedReferenceError(reference, problem)
    return canonical_json(value)


def _read_scope(reference: Reference, scope: ReferenceScope) -> JsonValue:
    match reference.root:
        case Root.INPUTS:
            return _unwrap(reference, lookup_path(scope.inputs(), reference.path))
        case Root.ITEM | Root.INDEX:
            index = scope.index()
            if index is None:
                raise UnresolvedReferenceError(reference, f"there is no {reference.root} outside a fan-out")
            if reference.root is Root.INDEX:
                return index
            return _unwrap(reference, lookup_path(scope.item(), reference.path))
        case Root.NODES:
            name = reference.node or ""
            found = read_node_field(scope.node_result(name), reference.path)
            if isinstance(found, Missing):
                field = format_path(reference.path)
                raise UnresolvedReferenceError(reference, f"node {name} gave no {field}: {found.why}")
            return found.value
        case Root.PARAMS | Root.KEY:
            raise UnresolvedReferenceError(reference, f"{reference.root} can be read in a lookup's params only")
        case _:
            assert_never(reference.root)


def _unwrap(reference: Reference, found: Found | Missing) -> JsonValue:
    if isinstance(found, Missing):
        raise UnresolvedReferenceError(reference, f"{reference.root}: {found.why}")
    return found.value


def _parts_of_default(declared: str) -> ValuePathParts | None:
    try:
        return parse_path(declared)
    except PathSyntaxError:
        return None
