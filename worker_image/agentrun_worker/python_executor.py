"""Calls Python functions: in a process of their own that can be killed, or in this one where the tool says Thread."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from agentrun.contract.defaults import RAW_OUTPUT_MAX_CHARS, RESULT_MAX_BYTES
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import PythonCall, PythonIsolation
from agentrun_worker.executor import SecretMissingError, SecretSource, ToolCall
from agentrun_worker.outcomes import failed, not_started
from agentrun_worker.python_ending import read_ending
from agentrun_worker.python_function import FunctionCall
from agentrun_worker.redaction import Redactor
from agentrun_worker.secret_sources import EnvironmentSecrets
from agentrun_worker.spare_threads import SpareThreads
from agentrun_worker.thread_call import ThreadCall
from agentrun_worker.tool_api import SecretMissing, ToolContext
from agentrun_worker.tool_process import ToolProcess

_MOST_LINGERING = 32
"""Threads that were given up and are still at work; with more, no further call in a thread begins."""
_LAST_WORDS_SECONDS = 1.0
_log = structlog.get_logger("agentrun.worker")


class PythonExecutor:
    """Executes tools of type python."""

    def __init__(self, import_paths: Sequence[Path] = (), secrets: SecretSource | None = None) -> None:
        """``import_paths`` are searched for tools first. ``secrets`` None: environment variables."""
        self._import_paths = [str(path) for path in import_paths]
        self._secrets = secrets or EnvironmentSecrets()
        self._given_up: list[ThreadCall] = []
        self._threads = SpareThreads()

    def lingers(self) -> bool:
        """Return whether a function that was given up is still at work in a thread."""
        self._given_up = [call for call in self._given_up if call.lingers]
        return bool(self._given_up)

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Make the call; secrets that it asked for are gone from whatever is returned."""
        definition = call.tool.python
        if definition is None:
            return not_started(Reason.TOOL_NOT_LOADABLE, f"tool {call.tool_name} has no python block")
        if call.cancelled.is_set() or call.stop_requested.is_set():
            said = "it was cancelled, before the function was called"
            return not_started(Reason.CANCELLED, said, FailureClass.RETRYABLE)
        if asyncio.get_running_loop().time() >= min(call.send_before, call.deadline):
            said = "the claim or the deadline ran out, before the function was called"
            return not_started(Reason.ATTEMPT_TIMEOUT, said, FailureClass.RETRYABLE)
        if definition.isolation is PythonIsolation.THREAD:
            return await self._in_a_thread(call, definition)
        return await self._in_a_process(call, definition)

    # --- a process of its own

    async def _in_a_process(self, call: ToolCall, definition: PythonCall) -> AttemptOutcome:
        redactor = Redactor()
        try:
            process = await ToolProcess.start(lambda part: _log_printed(call, part, redactor))
        except OSError as error:
            return not_started(Reason.TOOL_NOT_LOADABLE, f"no process: {error}", FailureClass.RETRYABLE)
        try:
            return await self._converse(process, call, definition, redactor)
        finally:
            await process.close()

    async def _converse(
        self, process: ToolProcess, call: ToolCall, definition: PythonCall, redactor: Redactor
    ) -> AttemptOutcome:
        process.send(self._first_line(call, definition))
        talking = asyncio.ensure_future(self._talk(process, redactor))
        leaving = asyncio.ensure_future(process.wait())
        try:
            interrupted = await _wait(call, (talking, leaving), lambda: process.send({"stop": True}))
            if interrupted is not None and not talking.done():
                why, reason = interrupted
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, f"{why}: the function was killed")
            if not talking.done():
                # It has ended; what it wrote before may still stand in the pipe.
                process.kill()
                await asyncio.wait((talking,), timeout=_LAST_WORDS_SECONDS)
            try:
                ending = talking.result() if talking.done() else None
                if ending is not None:
                    await process.leave()
                    return read_ending(ending, redactor)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                said = f"the function's process answered nonsense: {redactor.fragment(str(error))}"
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED, said)
            await process.leave()
            return _crashed(await process.wait(), process.tail, redactor)
        finally:
            talking.cancel()
            leaving.cancel()
            await asyncio.gather(talking, leaving, return_exceptions=True)

    async def _talk(self, process: ToolProcess, redactor: Redactor) -> JsonObject | None:
        """Answer what the process asks until it has told its ending; None when it ends without one."""
        while (message := await process.read()) is not None:
            if "ending" in message:
                ending: JsonObject = message["ending"]
                return ending
            asked = message["secret"]
            try:
                value = self._secrets.fetch_secret(asked["name"], asked["key"])
            except SecretMissingError as error:
                process.send({"missing": str(error)})
                continue
            redactor.learn(value)
            process.send({"value": value})
        return None

    def _first_line(self, call: ToolCall, definition: PythonCall) -> JsonObject:
        left = call.deadline - asyncio.get_running_loop().time()
        return {
            "entryPoint": definition.entry_point,
            "importPaths": self._import_paths,
            "params": call.params,
            "requestId": call.request_id,
            "idempotencyKey": call.idempotency_key,
            "leftMs": max(0, round(left * 1000)),
            "resultLimit": RESULT_MAX_BYTES,
        }

    # --- a thread of this process

    async def _in_a_thread(self, call: ToolCall, definition: PythonCall) -> AttemptOutcome:
        if self.lingers() and len(self._given_up) >= _MOST_LINGERING:
            said = f"{len(self._given_up)} functions that were given up are still at work in this worker's threads"
            return not_started(Reason.TOOL_NOT_LOADABLE, said, FailureClass.RETRYABLE)
        loop = asyncio.get_running_loop()
        redactor = Redactor()

        def fetch_secret(name: str, key: str) -> str:
            try:
                value = self._secrets.fetch_secret(name, key)
            except SecretMissingError as error:
                raise SecretMissing(str(error), reason=Reason.SECRET_MISSING) from error
            redactor.learn(value)
            return value

        context = ToolContext(
            request_id=call.request_id,
            idempotency_key=call.idempotency_key,
            seconds_left=lambda: max(0.0, call.deadline - loop.time()),
            is_cancelled=call.stop_requested.is_set,
            secret=fetch_secret,
        )
        working = ThreadCall(
            FunctionCall(definition.entry_point, self._import_paths, call.params, RESULT_MAX_BYTES),
            context,
            self._threads,
        )
        self._given_up.append(working)
        interrupted = await _wait(call, (working.ending,), lambda: None)
        if interrupted is not None and not working.ending.done():
            why, reason = interrupted
            working.stop()
            said = f"{why} while the function was at work"
            return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, said)
        try:
            return read_ending(working.ending.result(), redactor)
        except (ValueError, TypeError, KeyError) as error:
            said = f"the function's ending cannot be read: {redactor.fragment(str(error))}"
            return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED, said)


async def _wait(
    call: ToolCall, working: Sequence[asyncio.Future[Any]], tell_to_stop: Callable[[], None]
) -> tuple[str, Reason] | None:
    """Wait until one of the futures is done (None), or return why nobody waits any longer."""
    loop = asyncio.get_running_loop()
    cancelled = asyncio.ensure_future(call.cancelled.wait())
    stopping = asyncio.ensure_future(call.stop_requested.wait())
    awaited: set[asyncio.Future[Any]] = {*working, cancelled, stopping}
    try:
        while not any(future.done() for future in working):
            left = call.deadline - loop.time()
            if left <= 0:
                return "the deadline passed", Reason.ATTEMPT_TIMEOUT
            if cancelled.done():
                return "it was cancelled", Reason.CANCELLED
            await asyncio.wait(awaited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if stopping in awaited and stopping.done():
                awaited.discard(stopping)
                tell_to_stop()
        return None
    finally:
        cancelled.cancel()
        stopping.cancel()


def _crashed(code: int, printed: bytes, redactor: Redactor) -> AttemptOutcome:
    try:
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    except ValueError:
        ended = f"was killed by signal {-code}"
    tail = redactor.fragment(printed.decode("utf-8", "replace"))[-RAW_OUTPUT_MAX_CHARS:]
    said = f"the function's process {ended} before it answered"
    return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED, said, raw_output=tail)


def _log_printed(call: ToolCall, part: bytes, redactor: Redactor) -> None:
    text = redactor.fragment(part.decode("utf-8", "replace"))
    _log.debug("tool_printed", tool=call.tool_name, request=call.request_id, text=text)
