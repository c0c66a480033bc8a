"""Says in one line what is wrong with a value: the value (cut) and what was wanted.

Used by the validator alone. The library's own texts hold whole values; these stay short whatever the value is.
"""

from __future__ import annotations

from collections.abc import Sequence

import jsonschema_rs

from agentrun.contract.exact_json import JsonRefusedError, admit_json, canonical_json
from agentrun.contract.model_base import cut_text

MASK = "\ue000"
"""Stands in the library's texts where the value would be; a character that nobody uses."""
_VALUE_CHARS = 80
_PATH_CHARS = 512
_MESSAGE_CHARS = 512
_NAMES_SHOWN = 8
_BRANCHES_SHOWN = 4


def path_text(path: Sequence[str | int]) -> str:
    """Write a path as ``items[2].price``; empty for the value itself."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return cut_text(text.removeprefix("."), _PATH_CHARS)


def value_text(value: object) -> str:
    """Write a value as JSON, cut."""
    try:
        text = canonical_json(admit_json(value))
    except JsonRefusedError:
        text = repr(value)
    return cut_text(text, _VALUE_CHARS)


def problem_text(error: jsonschema_rs.ValidationError) -> str:
    """Return the message of one of the library's errors, made with :data:`MASK`."""
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return cut_text(f"the required field {value_text(kind.property)} is missing", _MESSAGE_CHARS)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        return _unknown_fields(kind.unexpected)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.UnevaluatedProperties):
        return _unknown_fields(kind.unexpected)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.FalseSchema):
        return cut_text(f"nothing may stand here, not even {value_text(error.instance)}", _MESSAGE_CHARS)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Constant):
        return cut_text(f"{value_text(error.instance)} is not {value_text(kind.expected_value)}", _MESSAGE_CHARS)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AnyOf | jsonschema_rs.ValidationErrorKind.OneOfNotValid):
        return _no_branch_fits(error, kind.context)
    return cut_text(error.message.replace(MASK, value_text(error.instance)), _MESSAGE_CHARS)


def _unknown_fields(names: list[str]) -> str:
    shown = ", ".join(value_text(name) for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return cut_text(f"unknown field{'s' if len(names) > 1 else ''}: {shown}{more}", _MESSAGE_CHARS)


def _no_branch_fits(
    error: jsonschema_rs.ValidationError, branches: Sequence[Sequence[jsonschema_rs.ValidationError]]
) -> str:
    reasons = []
    for number, branch in enumerate(branches[:_BRANCHES_SHOWN], start=1):
        if branch:
            first = branch[0]
            inner = path_text(list(first.instance_path)[len(error.instance_path) :])
            text = cut_text(problem_text(first), 100)
            reasons.append(f"{number}: {inner}: {text}" if inner else f"{number}: {text}")
    if len(branches) > _BRANCHES_SHOWN:
        reasons.append("…")
    return cut_text(
        f"{value_text(error.instance)} fits none of the {len(branches)} alternatives ({'; '.join(reasons)})",
        _MESSAGE_CHARS,
    )
