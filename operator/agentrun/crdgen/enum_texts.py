"""What each value of an enumeration means, from the docstrings below its members.

Used for ``kubectl explain``, the manifest reference and the pages of states and reasons, so that a meaning is written
once, beside the value. Python keeps no docstrings of members: they are read from the source.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import ModuleType

from agentrun.contract import approval, failures, node, object_meta, run, tool, value_tests

_MODULES: tuple[ModuleType, ...] = (approval, failures, node, object_meta, run, tool, value_tests)


@cache
def member_texts(enum: type[StrEnum]) -> Mapping[str, str]:
    """Return the docstring of each member that has one, by value, in the members' order."""
    (definition,) = ast.parse(inspect.getsource(enum)).body
    if not isinstance(definition, ast.ClassDef):
        raise TypeError(f"{enum} is not defined by a class statement")
    texts = {}
    for statement, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.Assign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            (name,) = (target.id for target in statement.targets if isinstance(target, ast.Name))
            texts[str(enum[name])] = str(below.value.value)
    return texts


def find_enum(name: str) -> type[StrEnum] | None:
    """Return the contract's enumeration of that name."""
    for module in _MODULES:
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, StrEnum):
            return found
    return None
