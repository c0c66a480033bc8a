"""What is asked of whoever judges values by JSON Schemas, and what it found, as the decisions read it.

The validator is handed in by the composition roots; no schema is read here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.decisions.facts import Problem


class SchemaProblemLike(Protocol):
    """Where and how a value misses its schema."""

    @property
    def path(self) -> str:
        """Path inside the value."""
        ...

    @property
    def message(self) -> str:
        """What is wrong, with the value."""
        ...


class SchemaChecker(Protocol):
    """Judges values by JSON Schemas, and the schemas themselves."""

    def validate(self, schema: JsonObject, value: JsonValue) -> tuple[SchemaProblemLike, ...]:
        """Return how the value misses the schema; empty when it fits."""
        ...

    def check(self, schema: JsonObject) -> tuple[SchemaProblemLike, ...]:
        """Return what is wrong with the schema itself."""
        ...


def to_problems(found: Iterable[SchemaProblemLike]) -> tuple[Problem, ...]:
    """Return what a checker found as the decisions read it."""
    return tuple(Problem(problem.path, problem.message) for problem in found)
