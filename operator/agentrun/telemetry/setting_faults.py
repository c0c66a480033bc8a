"""What is wrong with the settings of a process, as lines for whoever started it.

Called by the command lines of operator and worker, with what pydantic found. Of a setting that may hold a secret it
shows nothing: what can be shown of it stands in the fault's own message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_DNS = "^[a-z0-9]("
_NAME = "^[a-z]("
_LONGEST_SHOWN = 200
_SECRET = frozenset({"redis"})
"""Settings that may hold a password."""


def explain_settings(error: ValidationError, prefix: str, options: Mapping[str, str]) -> Iterator[str]:
    """Give a line for each fault: option and variable, what is wrong with which value, and the remedy.

    ``options`` holds the name of a setting's option on the command line; settings without one are variables alone.
    """
    for fault in error.errors(include_url=False):
        field = str(fault["loc"][0]) if fault["loc"] else ""
        variable = f"{prefix}{field.upper()}"
        named = f"{options[field]} ({variable})" if field in options else variable
        yield f"{named}: {_explain(fault, may_be_shown=field not in _SECRET)}"


def _explain(fault: ErrorDetails, *, may_be_shown: bool) -> str:
    said = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    value = fault.get("input")
    if not may_be_shown or not isinstance(value, str | int | Path):
        return said
    shown = repr(str(value)[:_LONGEST_SHOWN])
    if fault["type"] == "string_pattern_mismatch":
        return f"{shown} cannot be used: {_remedy(str((fault.get('ctx') or {}).get('pattern', '')))}"
    return said if shown in said else f"{shown}: {said}"


def _remedy(pattern: str) -> str:
    if pattern.startswith(_NAME):
        return "use lower-case letters, digits and dashes, beginning with a letter"
    if pattern.startswith(_DNS):
        return "use lower-case letters, digits and dashes"
    return "write https://HOST:PORT, without a path" if "https" in pattern else f"match {pattern}"
