"""Python tools that behave in every way that the table of outcomes knows."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from agentrun_worker.tool_api import NeedsHumanError, PermanentError, RetryableError, ToolContext, ToolError, Usage


def add(a: int, b: int = 1) -> dict[str, Any]:
    return {"sum": a + b}


async def add_later(a: int, b: int = 1) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"sum": a + b}


def tell_context(context: ToolContext) -> dict[str, Any]:
    return {
        "request": context.request_id,
        "key": context.idempotency_key,
        "in_time": 0 < context.seconds_left() <= 10,
        "cancelled": context.is_cancelled(),
    }


def echo(value: Any) -> Any:
    return value


def return_what(name: str) -> Any:
    return {
        "nan": float("nan"),
        "infinity": [float("inf")],
        "big": 2**53 + 1,
        "too big": {"n": 2**64},
        "decimal": Decimal("0.10"),
        "float": 0.1,
        "whole float": 5.0,
        "none": None,
        "tuple": (1, 2),
        "set": {1},
        "bytes": b"x",
        "object": object(),
        "unshowable": Unshowable(),
        "surrogate": "\ud83d",
        "nul": "a\x00b",
        "number keys": {1: 2},
        "large": "x" * 200_000,
        "emoji": "🚀",
    }[name]


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raise_what(name: str) -> None:
    raise {
        "value": ValueError("bad \ud83d value\x00"),
        "unreadable": UnreadableError(),
        "retryable": RetryableError("later", effect="NotExecuted", reason="Overloaded", retry_after_seconds=2.5),
        "permanent": PermanentError("never", effect="NotExecuted"),
        "human": NeedsHumanError("too much", effect="NotExecuted", reason="OverLimit"),
        "executed": PermanentError("done, but the receipt is lost", effect="Executed"),
        "plain": ToolError("who knows"),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
    }[name]


async def raise_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("later")


def leave(code: int) -> None:
    sys.exit(code)


def die(code: int) -> None:
    os._exit(code)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def print_then_die() -> None:
    print("x" * 100_000)
    print("the last words")
    os._exit(3)


def print_much() -> str:
    print('{"ending": {"value": "forged"}}')
    sys.stderr.write("noise\n" * 200_000)
    return "fine"


def read_input() -> str:
    return sys.stdin.read()


def hang(marker: str) -> None:
    Path(marker).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)


def hang_deaf(marker: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(marker)


async def hang_async(marker: str) -> None:
    Path(marker).write_text(str(os.getpid()))
    await asyncio.Event().wait()


def stop_when_told(marker: str, context: ToolContext) -> str:
    Path(marker).write_text(str(os.getpid()))
    while not context.is_cancelled():
        time.sleep(0.01)
    return "stopped"


def leave_a_child(marker: str) -> str:
    child = subprocess.Popen(["sleep", "600"])
    Path(marker).write_text(str(child.pid))
    return "done"


def fork_and_return(marker: str) -> str:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    Path(marker).write_text(str(pid))
    return "done"


def start_and_hang(marker: str) -> None:
    child = subprocess.Popen(["sleep", "600"])
    Path(marker).write_text(str(child.pid))
    time.sleep(600)


def see_environment() -> list[str]:
    return sorted(name for name in os.environ if name.startswith("AGENTRUN_"))


def use_secret(context: ToolContext, say_in: str) -> str:
    value = context.secret("shop", "token")
    said = f"got {value}!"
    match say_in:
        case "result":
            return said
        case "error":
            raise ValueError(said)
        case "tool error":
            raise PermanentError(said, effect="NotExecuted", reason=said)
        case "print":
            print(said)
            return "printed"
        case "crash":
            print(said)
            sys.stdout.flush()
            os._exit(9)
        case _:
            raise AssertionError(say_in)


def miss_secret(context: ToolContext) -> str:
    return context.secret("nobody", "knows")


def use_up(context: ToolContext, fail: bool = False) -> str:
    context.report_usage(Usage(cost="0.01", tokens=10, model_calls=1))
    context.report_usage(Usage(cost="0.0025", tokens=5, model_calls=1))
    if fail:
        raise RetryableError("paid and failed", effect="NotExecuted")
    return "used"


def use_nothing(context: ToolContext) -> str:
    context.report_usage(Usage())
    return "free"


def overspend(context: ToolContext) -> str:
    context.report_usage(Usage(cost="-1"))
    return "never"


async def block_the_loop(seconds: float) -> str:
    time.sleep(float(seconds))  # noqa: ASYNC251 - the mistake that it stands for
    return "blocked"
