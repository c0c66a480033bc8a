"""Calls a Python tool's function in a thread of the worker's own process, with an event loop of its own if it is async.

The worker's own loop is never blocked, so claims stay alive whatever the function does with its time. A thread cannot
be ended from outside: a function that ignores the word to stop lingers, and is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable

from agentrun.contract.exact_json import JsonObject
from agentrun_worker.python_function import FunctionCall, call_function
from agentrun_worker.spare_threads import SpareThreads
from agentrun_worker.tool_api import ToolContext


class ThreadCall:
    """One call in one thread."""

    def __init__(self, call: FunctionCall, context: ToolContext, threads: SpareThreads) -> None:
        """Start the call."""
        self._call = call
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[object]] | None = None
        self.ending: asyncio.Future[JsonObject] = self._loop.create_future()
        self._has_ended = False
        threads.run(self._run)

    @property
    def lingers(self) -> bool:
        """Whether the function is still at work."""
        return not self._has_ended

    def stop(self) -> None:
        """Cancel the function's coroutine, if it is one."""
        with self._lock:
            self._stopped = True
            if self._task is not None:
                loop, task = self._task
                with contextlib.suppress(RuntimeError):  # the loop has just ended
                    loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        try:
            ending = call_function(self._call, self._context, self._run_awaitable)
        except SystemExit as error:
            # It ends the call alone; in a process of its own it would have ended that.
            ending = {"raised": {"message": f"SystemExit: {error.code}", "trace": ""}}
        finally:
            self._has_ended = True
        with contextlib.suppress(RuntimeError):  # the worker has ended meanwhile
            self._loop.call_soon_threadsafe(self._deliver, ending)

    def _deliver(self, ending: JsonObject) -> None:
        if not self.ending.done():
            self.ending.set_result(ending)

    def _run_awaitable(self, value: Awaitable[object]) -> object:
        async def wait() -> object:
            task = asyncio.current_task()
            with self._lock:
                if task is not None:
                    self._task = (asyncio.get_running_loop(), task)
                if self._stopped:
                    raise asyncio.CancelledError
            return await value

        try:
            return asyncio.run(wait())
        finally:
            with self._lock:
                self._task = None
