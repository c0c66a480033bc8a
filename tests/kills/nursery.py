"""A process that has loaded the worker once and forks one for each line it reads: real processes at the price of a fork.

Started by the tests as ``python -m kills.nursery``; Hatchery is their end of it. Its children stay unreaped until it
ends, so that a process id that a test holds is never another process's. They end with it, whatever ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from agentrun.telemetry.log_setup import LogLevel, set_up_logs
from kills.doomed_worker import WorkerPlan, work

_TESTS = Path(__file__).parents[1]
_PR_SET_PDEATHSIG = 1


class Hatchery:
    """Starts worker processes and tells how they are; a context manager that ends them all."""

    def __init__(self, folder: Path, program: str) -> None:
        """``program``: the module that is run; it reads plans and prints process ids."""
        self._program = program
        self._log = folder / "workers.log"
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def hatch(self, plan: str) -> int:
        """Start a process by its plan, one line of JSON, and return its id."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._ask, plan)

    def _ask(self, plan: str) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(plan + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def read_log(self) -> str:
        """Return what the workers have logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._program],
                env={**os.environ, "PYTHONPATH": str(_TESTS)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()


def state_of(pid: int) -> str:
    """Return a process's state as one letter: Z dead, T stopped (see proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def until_state(pid: int, letter: str, within: float = 60.0) -> None:
    """Wait until the process is dead or stopped."""
    async with asyncio.timeout(within):
        while state_of(pid) != letter:
            await asyncio.sleep(0.05)


def nurse(run: Callable[[str], None]) -> None:
    """Fork a child for each line of standard input; print its id."""
    parent = os.getpid()
    children = []
    gc.freeze()
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            _live(run, line, parent)
        children.append(pid)
        print(pid, flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)


def _live(run: Callable[[str], None], line: str, parent: int) -> None:
    code = 1
    try:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        if os.getppid() == parent:
            run(line)
            code = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    set_up_logs(LogLevel.WARNING)
    nurse(lambda line: work(WorkerPlan.from_json(line)))
