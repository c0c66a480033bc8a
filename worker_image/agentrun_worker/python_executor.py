"""Calls Python functions: in a process of their own that can be killed, or in this one where the tool says Thread."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from agentrun.contract.exact_json import JsonRefusedError, canonical_json, parse_json
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import PythonCall, PythonIsolation
from agentrun_worker.executor import ToolCall
from agentrun_worker.outcomes import failed, not_started
from agentrun_worker.python_function import (
    NotLoadableError,
    bind_arguments,
    load_function,
    not_loadable,
    read_raised,
    read_returned,
)
from agentrun_worker.tool_api import ToolContext

_ERROR_TAIL = 2000


class PythonExecutor:
    """Executes tools of type python."""

    def __init__(self, import_paths: Sequence[Path] = ()) -> None:
        """``import_paths`` are searched for tools before the installed packages."""
        self._import_paths = [str(path) for path in import_paths]

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Make the call."""
        definition = call.tool.python
        if definition is None:
            return not_started(Reason.TOOL_NOT_LOADABLE, f"tool {call.tool_name} has no python block")
        loop = asyncio.get_running_loop()
        if loop.time() >= min(call.send_before, call.deadline) or call.cancelled.is_set():
            said = "the claim or the deadline ran out before the function was called"
            return not_started(Reason.ATTEMPT_TIMEOUT, said, FailureClass.RETRYABLE)
        if definition.isolation is PythonIsolation.THREAD:
            return await self._in_this_process(call, definition)
        return await self._in_a_subprocess(call, definition)

    # --- a process of its own

    async def _in_a_subprocess(self, call: ToolCall, definition: PythonCall) -> AttemptOutcome:
        reader, writer = os.pipe()
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "agentrun_worker.python_child",
                str(writer),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(writer,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(reader)
            return not_started(Reason.TOOL_NOT_LOADABLE, f"no process: {error}", FailureClass.RETRYABLE)
        finally:
            os.close(writer)
        answering = asyncio.ensure_future(_read_all(reader))
        talking = asyncio.ensure_future(child.communicate(self._encode(call, definition)))
        cancelled = asyncio.ensure_future(call.cancelled.wait())
        left = max(0.0, call.deadline - asyncio.get_running_loop().time())
        try:
            await asyncio.wait((talking, cancelled), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                why, reason = "the deadline passed", Reason.ATTEMPT_TIMEOUT
                if cancelled.done():
                    why, reason = "it was cancelled", Reason.CANCELLED
                _kill(child)
                await talking
                said = f"{why}: the function was killed"
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, said)
            _, printed = talking.result()
            return _read_end(child.returncode or 0, await answering, printed)
        finally:
            _kill(child)
            for task in (answering, talking, cancelled):
                task.cancel()
            await asyncio.gather(answering, talking, cancelled, return_exceptions=True)

    def _encode(self, call: ToolCall, definition: PythonCall) -> bytes:
        left_ms = max(0, round((call.deadline - asyncio.get_running_loop().time()) * 1000))
        return canonical_json(
            {
                "entryPoint": definition.entry_point,
                "importPaths": list(self._import_paths),
                "params": call.params,
                "requestId": call.request_id,
                "idempotencyKey": call.idempotency_key,
                "leftMs": left_ms,
            }
        ).encode()

    # --- this process

    async def _in_this_process(self, call: ToolCall, definition: PythonCall) -> AttemptOutcome:
        loop = asyncio.get_running_loop()
        context = ToolContext(
            request_id=call.request_id,
            idempotency_key=call.idempotency_key,
            seconds_left=lambda: max(0.0, call.deadline - loop.time()),
            is_cancelled=call.cancelled.is_set,
        )
        try:
            function = load_function(definition.entry_point, self._import_paths)
            arguments = bind_arguments(function, call.params, context)
        except NotLoadableError as error:
            return not_loadable(error)
        if inspect.iscoroutinefunction(function):
            working: asyncio.Future[object] = asyncio.ensure_future(function(**arguments))
        else:
            working = asyncio.ensure_future(asyncio.to_thread(function, **arguments))
        cancelled = asyncio.ensure_future(call.cancelled.wait())
        try:
            left = max(0.0, call.deadline - loop.time())
            await asyncio.wait((working, cancelled), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return read_returned(working.result())
            reason = Reason.CANCELLED if cancelled.done() else Reason.ATTEMPT_TIMEOUT
            said = "it was cancelled" if cancelled.done() else "the deadline passed"
            return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, f"{said} while the function was at work")
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises is its outcome
            return read_raised(error)
        finally:
            # A coroutine ends here. A thread cannot be ended from outside: its tool chose not to be killable.
            working.cancel()
            cancelled.cancel()


def _read_end(code: int, answer: bytes, printed: bytes) -> AttemptOutcome:
    if answer:
        try:
            return AttemptOutcome.model_validate(parse_json(answer))
        except (JsonRefusedError, ValueError) as error:
            said = f"the function's process answered nonsense: {error}"
            return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED, said)
    ended = f"was killed by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    tail = printed[-_ERROR_TAIL:].decode("utf-8", "replace")
    said = f"the function's process {ended} before it answered"
    return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED, said, raw_output=tail)


def _kill(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        # Its whole session: what the function started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


async def _read_all(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    try:
        return await stream.read()
    finally:
        transport.close()
