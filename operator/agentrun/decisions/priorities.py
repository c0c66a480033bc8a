"""Priorities: which one a node has, and what waiting makes of it."""

from __future__ import annotations

from datetime import timedelta

from agentrun.contract.defaults import DEFAULT_PRIORITY, PRIORITIES
from agentrun.contract.exact_json import JsonValue, canonical_json
from agentrun.contract.run import NodeBase, Priority, PriorityFrom
from agentrun.decisions.conditions import TestScope, read_test_path
from agentrun.decisions.value_paths import Missing, show_value, type_name

_ORDER = tuple(Priority)


class PriorityUndecidedError(Exception):
    """The field that says a node's priority is missing or no scalar. ``path`` is the field's."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"priorityFrom {path}: {problem}")
        self.path = path
        self.problem = problem


def node_priority(node: NodeBase, run_priority: Priority | None, scope: TestScope) -> Priority:
    """Return the node's priority: its own, else the one its ``priorityFrom`` field says, else the run's, else P2.

    Raises :class:`PriorityUndecidedError` when the field is missing or holds null, a list or an object; the declared
    default is for values that the map does not name.
    """
    if node.priority is not None:
        return node.priority
    if node.priority_from is not None:
        return _mapped(node.priority_from, scope)
    return run_priority or DEFAULT_PRIORITY


def effective_priority(priority: Priority, waited: timedelta) -> Priority:
    """Return the priority a node is queued with after it waited so long.

    P3 becomes P2 after 5 minutes and P1 after 3 more, P2 becomes P1 after 3; nothing ages to P0.
    """
    reached, left = priority, waited
    while (ages_after := PRIORITIES[reached].ages_after) is not None and left > ages_after:
        left -= ages_after
        reached = _ORDER[_ORDER.index(reached) - 1]
    return reached


def next_rise(priority: Priority, waited: timedelta) -> timedelta | None:
    """Return the wait beyond which a node rises next, counted from its beginning; None: it stays where it is."""
    reached, total = priority, timedelta()
    while (ages_after := PRIORITIES[reached].ages_after) is not None:
        total += ages_after
        if waited <= total:
            return total
        reached = _ORDER[_ORDER.index(reached) - 1]
    return None


def _mapped(source: PriorityFrom, scope: TestScope) -> Priority:
    found = read_test_path(source.path, scope)
    if isinstance(found, Missing):
        raise PriorityUndecidedError(source.path, f"is missing: {found.why}")
    text = _text_of(found.value)
    if text is None:
        shown = f"{type_name(found.value)} {show_value(found.value)}"
        raise PriorityUndecidedError(source.path, f"is {shown}; a string, a number or a boolean is needed")
    return source.map.get(text, source.default)


def _text_of(value: JsonValue) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        return None
    return canonical_json(value)
