"""Loading a Python tool's function and calling it: the same in a subprocess, in a thread and on the loop."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from agentrun.contract.exact_json import JsonObject, JsonRefusedError, admit_json
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun_worker.outcomes import failed, not_started, succeeded, useless
from agentrun_worker.tool_api import ToolContext, ToolError

Function = Callable[..., Any]


class NotLoadableError(Exception):
    """The entry point leads to no function that takes these params; nothing was executed."""


def load_function(entry_point: str, import_paths: Sequence[str]) -> Function:
    """Return the function. Raises :class:`NotLoadableError`."""
    for path in reversed(import_paths):
        if path not in sys.path:
            sys.path.insert(0, path)
    module_name, _, name = entry_point.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except ModuleNotFoundError as error:
        searched = ", ".join(import_paths) or "the installed packages"
        raise NotLoadableError(f"module {error.name} was not found in {searched}") from error
    except BaseException as error:
        raise NotLoadableError(f"module {module_name} could not be imported: {describe(error)}") from error
    if not callable(found):
        raise NotLoadableError(f"module {module_name} has no function {name}")
    return found  # type: ignore[no-any-return]  # callable is all that is asked


def bind_arguments(function: Function, params: JsonObject, context: ToolContext) -> dict[str, Any]:
    """Return the keyword arguments. Raises :class:`NotLoadableError` when they do not fit the signature."""
    arguments: dict[str, Any] = dict(params)
    try:
        signature = inspect.signature(function)
        if "context" in signature.parameters and "context" not in arguments:
            arguments["context"] = context
        signature.bind(**arguments)
    except (TypeError, ValueError) as error:
        raise NotLoadableError(f"params do not fit the function's signature: {error}") from error
    return arguments


def read_returned(value: object) -> AttemptOutcome:
    """Return the outcome of a function that came back with a value."""
    try:
        return succeeded(admit_json(value))
    except JsonRefusedError as error:
        return useless(Reason.INVALID_ANSWER, f"the function returned what JSON cannot carry: {error}", repr(value))


def read_raised(error: BaseException) -> AttemptOutcome:
    """Return the outcome of a function that raised."""
    if isinstance(error, ToolError):
        return failed(
            Effect(error.effect),
            FailureClass(error.failure_class),
            error.reason,
            str(error),
            retry_after_ms=round(error.retry_after_seconds * 1000) or None,
        )
    trace = "".join(traceback.format_exception(error, limit=-8))
    return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_FAILED, describe(error), raw_output=trace)


def not_loadable(error: NotLoadableError) -> AttemptOutcome:
    """Return the outcome of a call whose function could not be reached."""
    return not_started(Reason.TOOL_NOT_LOADABLE, str(error))


def describe(error: BaseException) -> str:
    """Return an exception's type and message."""
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
