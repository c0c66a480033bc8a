"""The process in which one call of a Python tool runs: ``python -m agentrun_worker.python_child``.

Reads the call as JSON from standard input, writes the outcome as JSON to the file descriptor named in the first
argument, and ends. What the function prints goes to standard error, never into the result.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time

from agentrun.contract.exact_json import JsonObject, canonical_json, parse_json
from agentrun.contract.orders import AttemptOutcome
from agentrun_worker.python_function import (
    NotLoadableError,
    bind_arguments,
    load_function,
    not_loadable,
    read_raised,
    read_returned,
)
from agentrun_worker.tool_api import ToolContext


def main() -> None:
    """Run the one call."""
    out = int(sys.argv[1])
    call = parse_json(sys.stdin.buffer.read())
    # The function's own prints must not be taken for anything else.
    os.dup2(2, 1)
    if not isinstance(call, dict):
        raise TypeError("the call is an object")
    outcome = _run(call)
    text = canonical_json(outcome.to_wire()).encode()
    with os.fdopen(out, "wb") as stream:
        stream.write(text)


def _run(call: JsonObject) -> AttemptOutcome:
    ends = time.monotonic() + call["leftMs"] / 1000
    context = ToolContext(
        request_id=call["requestId"],
        idempotency_key=call["idempotencyKey"],
        seconds_left=lambda: max(0.0, ends - time.monotonic()),
        is_cancelled=lambda: False,
    )
    try:
        function = load_function(call["entryPoint"], call["importPaths"])
        arguments = bind_arguments(function, call["params"], context)
    except NotLoadableError as error:
        return not_loadable(error)
    try:
        value = function(**arguments)
        if inspect.isawaitable(value):
            value = asyncio.run(_wait_for(value))
    except SystemExit as error:
        # It ends the process; whoever started it sees the exit code.
        raise error from None
    except BaseException as error:  # noqa: BLE001 - whatever the user's function raises is its outcome
        return read_raised(error)
    return read_returned(value)


async def _wait_for(value: object) -> object:
    if not inspect.isawaitable(value):
        return value
    return await value


if __name__ == "__main__":
    main()
