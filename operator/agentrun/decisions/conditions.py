"""Typed tests on values: what a condition chooses, whether an approval is needed, how a lookup's answer is read.

Values are compared by type and never parsed from text. The rules, for the field found at the path:

| op | field and value |
|---|---|
| eq, ne | of one type; numbers by value (``5.0`` is ``5``), lists and objects deeply; null equals null alone |
| gt, ge, lt, le | two numbers, or two strings by code points |
| in | equal to one of the listed values, at least one of which has the field's type |
| contains | a list holds an equal element (one of its elements has the value's type), a string the text |
| exists | the field is there, even when it is null |

Everything else is a :class:`ConditionError`, which shows path, type and value: a missing path or another type is never
just false, and never the default branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, assert_never

from agentrun.contract.exact_json import JsonObject, JsonValue, canonical_json
from agentrun.contract.run import Condition
from agentrun.contract.value_tests import Operator, ValueTest
from agentrun.decisions.references import NodeValue, read_node_field
from agentrun.decisions.value_paths import (
    Found,
    Missing,
    ValuePathParts,
    lookup_path,
    parse_path,
    show_value,
    type_name,
)

END_FIELDS = ("phase", "reason", "class", "effect")
"""What a test may read about how a node ended, beside its ``result`` or ``results``."""


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """How a node ended, as tests read it. ``failure_class`` and ``effect`` are None (null) where there was none."""

    phase: str
    reason: str
    failure_class: str | None
    effect: str | None
    value: NodeValue


class TestScope(Protocol):
    """What a test's path can see."""

    def root_value(self, root: str) -> Found | Missing:
        """Return what ``inputs``, ``params``, ``result``, ``item`` or ``index`` stands for here."""
        ...

    def node_end(self, name: str) -> NodeEnd | Missing:
        """Return how the node ended. ``name`` is as the author wrote it."""
        ...


@dataclass(frozen=True, slots=True)
class NamedValues:
    """A test scope of values by root, without nodes: ``params`` of a call, ``result`` of a lookup."""

    roots: Mapping[str, JsonValue] = field(default_factory=dict)

    def root_value(self, root: str) -> Found | Missing:
        """Return the value of that name."""
        if root in self.roots:
            return Found(self.roots[root])
        return Missing(f"{root} is not readable here; readable are {', '.join(sorted(self.roots)) or 'none'}")

    def node_end(self, name: str) -> NodeEnd | Missing:
        """Nodes are not readable here."""
        return Missing(f"node {name} is not readable here")


class ConditionError(Exception):
    """A test cannot be judged: its path is missing or the types do not go together. ``path`` is the test's own."""

    def __init__(self, test: ValueTest, problem: str) -> None:
        super().__init__(f"{test.path}: {problem}")
        self.path = test.path
        self.problem = problem


def evaluate_test(test: ValueTest, scope: TestScope) -> bool:
    """Judge one test. Raises :class:`ConditionError` when the field is missing or of a type that ``op`` cannot take."""
    found = read_test_path(test.path, scope)
    if test.op is Operator.EXISTS:
        return isinstance(found, Found) == (test.value is not False)
    if isinstance(found, Missing):
        raise ConditionError(test, f"is missing: {found.why}")
    return _compare(test, found.value)


def choose_case(condition: Condition, scope: TestScope) -> str | None:
    """Return the node that the first case that holds goes to, else the default, else None.

    Cases after the first that holds are not judged. Raises :class:`ConditionError` like :func:`evaluate_test`.
    """
    for case in condition.cases:
        if evaluate_test(case.when, scope):
            return case.goto
    return condition.default


def read_test_path(path: str, scope: TestScope) -> Found | Missing:
    """Return the field a test's path names, or why it is missing."""
    parts = parse_path(path)
    if parts[0] == "nodes":
        return _read_node(parts, scope)
    root = scope.root_value(str(parts[0]))
    return root if isinstance(root, Missing) else lookup_path({str(parts[0]): root.value}, parts)


def values_equal(left: JsonValue, right: JsonValue) -> bool:
    """Tell whether two values are one value: numbers by value, no boolean is a number, lists and objects deeply."""
    return canonical_json(left) == canonical_json(right)


def _read_node(parts: ValuePathParts, scope: TestScope) -> Found | Missing:
    if len(parts) < 3 or not isinstance(parts[1], str):
        return Missing(f"a node shows {', '.join(END_FIELDS)} and result (nodes.<name>.phase)")
    end = scope.node_end(parts[1])
    if isinstance(end, Missing):
        return end
    ends: JsonObject = {
        "phase": end.phase,
        "reason": end.reason,
        "class": end.failure_class,
        "effect": end.effect,
    }
    if parts[2] in ends:
        return lookup_path(ends, parts[2:])
    if parts[2] in ("result", "results"):
        return read_node_field(end.value, parts[2:])
    return Missing(f"a node shows {', '.join(END_FIELDS)} and result, not {parts[2]}")


def _compare(test: ValueTest, found: JsonValue) -> bool:
    match test.op:
        case Operator.EQ:
            return _equal(test, found)
        case Operator.NE:
            return not _equal(test, found)
        case Operator.GT | Operator.GE | Operator.LT | Operator.LE:
            return _ordered(test, found)
        case Operator.IN:
            return _is_among(test, found, test.value, type_name(found), "none of the listed values is")
        case Operator.CONTAINS:
            return _contains(test, found)
        case Operator.EXISTS:
            raise AssertionError("exists needs no value")
        case _:
            assert_never(test.op)


def _equal(test: ValueTest, found: JsonValue) -> bool:
    # Null says that there is no value: it can be asked about whatever the type of the other side.
    if found is None or test.value is None:
        return found is test.value
    if type_name(found) != type_name(test.value):
        raise _mismatch(test, found)
    return values_equal(found, test.value)


def _ordered(test: ValueTest, found: JsonValue) -> bool:
    comparison = _order_of(found, test.value)
    if comparison is None:
        raise _mismatch(test, found)
    return {
        Operator.GT: comparison > 0,
        Operator.GE: comparison >= 0,
        Operator.LT: comparison < 0,
        Operator.LE: comparison <= 0,
    }[test.op]


def _order_of(left: JsonValue, right: JsonValue) -> int | None:
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    # Python compares int and Decimal exactly, whatever the context's precision.
    if isinstance(left, int | Decimal) and isinstance(right, int | Decimal):
        return (left > right) - (left < right)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    return None


def _contains(test: ValueTest, found: JsonValue) -> bool:
    if isinstance(found, list):
        return _is_among(test, test.value, found, type_name(test.value), "none of its elements is")
    if isinstance(found, str) and isinstance(test.value, str):
        return test.value in found
    raise _mismatch(test, found)


def _is_among(test: ValueTest, wanted: JsonValue, values: list[JsonValue], wanted_type: str, problem: str) -> bool:
    comparable = [value for value in values if type_name(value) == wanted_type]
    # A list of other types only is a mistake in the manifest or the data: plain false would hide "9" among numbers.
    others = [value for value in values if value is not None]
    if wanted is not None and others and not comparable:
        raise ConditionError(test, f"{_shown(wanted)} is looked for in {_shown(values)}, but {problem} {wanted_type}")
    return any(values_equal(value, wanted) for value in comparable)


def _mismatch(test: ValueTest, found: JsonValue) -> ConditionError:
    return ConditionError(test, f"is {_shown(found)}, which {test.op} cannot compare with {_shown(test.value)}")


def _shown(value: JsonValue) -> str:
    return f"{type_name(value)} {show_value(value)}"
