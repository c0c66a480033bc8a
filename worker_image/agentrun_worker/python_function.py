"""Loading a Python tool's function and calling it: the same in a process of its own and in a thread of the worker.

What came of it is an *ending*, a plain JSON object that :mod:`agentrun_worker.python_ending` reads. Kept free of the
contract's models: a process per call should not have to load them.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from agentrun.contract.exact_json import JsonObject, JsonRefusedError, admit_json, canonical_json
from agentrun_worker.tool_api import ToolContext, ToolError, Usage

Function = Callable[..., Any]
_MESSAGE_CHARS = 20_000
_SHOWN_CHARS = 4_000
_FRAMES = 8


class NotLoadableError(Exception):
    """The entry point leads to no function that takes these params; nothing was executed."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call of one function."""

    entry_point: str
    import_paths: Sequence[str]
    """Searched for the module before everything else."""
    params: JsonObject
    result_limit: int
    """Bytes of JSON that a result may have."""


def call_function(
    call: FunctionCall, context: ToolContext, run_awaitable: Callable[[Awaitable[object]], object] | None = None
) -> JsonObject:
    """Call the function and return the ending. Raises nothing but :class:`SystemExit`, when the function does."""
    used: list[Usage] = []
    try:
        function = load_function(call.entry_point, call.import_paths)
        arguments = bind_arguments(function, call.params, replace(context, report_usage=used.append))
    except NotLoadableError as error:
        return {"notLoadable": sayable(str(error))}
    try:
        value = function(**arguments)
        if inspect.isawaitable(value):
            value = (run_awaitable or _run_awaitable)(value)
        ending = _returned(value, call.result_limit)
    except SystemExit:
        # It ends the process; whoever started it sees the exit code.
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's function raises is its outcome
        ending = {"raised": _raised(error)}
    if used:
        ending["usage"] = {
            "cost": str(sum((Decimal(part.cost) for part in used), Decimal())),
            "tokens": sum(part.tokens for part in used),
            "modelCalls": sum(part.model_calls for part in used),
        }
    return ending


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


def describe(error: BaseException) -> str:
    """Return an exception's type and message."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even be printed must not hide that there was one
        said = "(its message cannot be read)"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def sayable(text: str) -> str:
    """Return text that JSON can carry: no lone surrogates, no NUL, not without end."""
    return text[:_MESSAGE_CHARS].encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _returned(value: object, limit: int) -> JsonObject:
    try:
        admitted = admit_json(value)
    except JsonRefusedError as error:
        return {"refused": sayable(str(error)), "shown": _shown(value)}
    text = canonical_json(admitted)
    size = len(text.encode())
    if size > limit:
        return {"tooLarge": size, "shown": text[:_SHOWN_CHARS]}
    return {"value": admitted}


def _raised(error: BaseException) -> JsonObject:
    if isinstance(error, ToolError):
        return {
            "class": str(error.failure_class),
            "effect": str(error.effect),
            "reason": sayable(str(error.reason)),
            "message": sayable(describe(error).partition(": ")[2]),
            "retryAfterMs": round(error.retry_after_seconds * 1000),
        }
    trace = "".join(traceback.format_exception(error, limit=-_FRAMES))
    return {"message": sayable(describe(error)), "trace": sayable(trace)}


def _shown(value: object) -> str:
    try:
        return sayable(repr(value))[:_SHOWN_CHARS]
    except Exception:  # noqa: BLE001 - the user's own repr
        return f"a {type(value).__name__} that cannot be shown"


def _run_awaitable(value: Awaitable[object]) -> object:
    async def wait() -> object:
        return await value

    return asyncio.run(wait())
