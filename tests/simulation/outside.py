"""The world outside: it takes calls, books what they do, answers truthfully when asked, and is not always well.

Stands where a worker's executor stands. What it booked is what the invariants believe.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun_worker.executor import ToolCall
from agentrun_worker.outcomes import failed, not_started, succeeded, useless
from simulation.invariants import BookedEffect
from simulation.plans import ANSWERS, WEIGHTS, Answer

_GONE = frozenset({Answer.CRASH_BEFORE, Answer.CRASH_AFTER})


class Outside:
    """Books effects by key."""

    def __init__(self, seed: int, book: Callable[[ToolCall], BookedEffect], say: Callable[[str, str], None]) -> None:
        """``book`` is told of each effect as it happens, and judges it."""
        self._seed = seed
        self._book = book
        self._say = say
        self.effects: dict[str, list[BookedEffect]] = defaultdict(list)
        self._asked: dict[tuple[str, str], int] = defaultdict(int)

    def has_happened(self, key: str) -> bool:
        """Tell whether an effect is booked under a key."""
        return bool(self.effects[key])

    async def execute(self, call: ToolCall, die: Callable[[], None]) -> AttemptOutcome:
        """Take one call; ``die`` ends the worker that makes it."""
        loop = asyncio.get_running_loop()
        if loop.time() >= min(call.send_before, call.deadline) or call.cancelled.is_set():
            return not_started(Reason.ATTEMPT_TIMEOUT, "too late to begin", FailureClass.RETRYABLE)
        if call.tool_name == "look":
            return self._look(call.params)
        answer = self._draw(call)
        self._say("outside", f"{call.tool_name} {call.request_id}: {answer}")
        if answer is Answer.CRASH_BEFORE:
            await self._crash(die)
        if answer is Answer.SLOW:
            await asyncio.sleep(min(2.0, max(0.0, call.deadline - loop.time())))
        if answer in (Answer.DONE, Answer.SLOW, Answer.DONE_UNSAID, Answer.DONE_NO_USE, Answer.CRASH_AFTER):
            late = loop.time() >= call.deadline or call.cancelled.is_set()
            if late:
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.ATTEMPT_TIMEOUT, "no answer came in time")
            if not (
                call.tool.idempotency
                and call.tool.idempotency.provider_deduplicates
                and self.effects[call.idempotency_key]
            ):
                self.effects[call.idempotency_key].append(self._book(call))
        return await self._reply(call, answer, die)

    async def _reply(self, call: ToolCall, answer: Answer, die: Callable[[], None]) -> AttemptOutcome:
        match answer:
            case Answer.DONE | Answer.SLOW:
                return succeeded({"key": call.idempotency_key})
            case Answer.REFUSED:
                return failed(Effect.NOT_EXECUTED, FailureClass.RETRYABLE, Reason.TOOL_FAILED, "refused")
            case Answer.HOPELESS:
                return failed(Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.TOOL_FAILED, "refused for good")
            case Answer.DONE_UNSAID | Answer.NOT_DONE_UNSAID:
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_FAILED, "the connection broke")
            case Answer.DONE_NO_USE:
                return useless(Reason.TOOL_FAILED, "no JSON", "<html>")
            case Answer.SILENT:
                loop = asyncio.get_running_loop()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(call.cancelled.wait(), max(0.0, call.deadline - loop.time()))
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.ATTEMPT_TIMEOUT, "no answer came in time")
            case Answer.CRASH_BEFORE | Answer.CRASH_AFTER:
                await self._crash(die)
                raise AssertionError("a dead worker went on")

    def _draw(self, call: ToolCall) -> Answer:
        """Draw by what is called, not by when: the order of other calls changes nothing."""
        place = (call.tool_name, call.idempotency_key)
        self._asked[place] += 1
        chance = random.Random(f"{self._seed} {place} {self._asked[place]}")
        answer = chance.choices(ANSWERS, WEIGHTS)[0]
        if answer in _GONE and self._asked[place] > 2:
            return Answer.DONE
        return answer

    def _look(self, params: JsonObject) -> AttemptOutcome:
        key = str(params.get("key"))
        if self.effects[key]:
            return succeeded({"state": "done", "answer": {"key": key}})
        return succeeded({"state": "none"})

    async def _crash(self, die: Callable[[], None]) -> None:
        die()
        await asyncio.Event().wait()
