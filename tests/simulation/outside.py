"""The world outside: it takes calls, books what they do, answers truthfully when asked, and is not always well.

Stands where a worker's executor stands. What it booked is what the invariants believe. What was sent is carried out
whether or not the worker that sent it is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun_worker.executor import ToolCall
from agentrun_worker.outcomes import failed, not_started, succeeded, useless
from simulation.invariants import BookedEffect
from simulation.lines import Line
from simulation.shelf import LOOKUPS

_TAKES_SECONDS = 2.0
_LANDS_AFTER_SECONDS = 1.5


class Answer(StrEnum):
    """How the outside takes one call."""

    DONE = "done"
    SLOW = "done after two seconds"
    REFUSED = "refused, nothing done"
    BUSY = "refused, nothing done, come again in three seconds"
    HOPELESS = "refused for good, nothing done"
    RULED_OUT = "refused by a rule of business, nothing done"
    DONE_UNSAID = "done, and the answer is lost"
    NOT_DONE_UNSAID = "not done, and the answer is lost"
    LANDS_LATER = "the connection breaks; what was sent is done a moment later"
    DONE_NO_USE = "done, and the answer is no use"
    SILENT = "nothing happens, and no answer comes"
    CRASH_BEFORE = "the worker dies before the effect"
    CRASH_SENT = "the worker dies; what it sent is done a moment later"
    CRASH_AFTER = "the worker dies after the effect"


_WEIGHTS = {
    Answer.DONE: 26,
    Answer.SLOW: 8,
    Answer.REFUSED: 5,
    Answer.BUSY: 2,
    Answer.HOPELESS: 2,
    Answer.DONE_UNSAID: 3,
    Answer.NOT_DONE_UNSAID: 3,
}
"""Of those that are not named here: 1."""
_OF_ALL = tuple(Answer)
_CRASHES = frozenset({Answer.CRASH_BEFORE, Answer.CRASH_SENT, Answer.CRASH_AFTER})
_MOST_CRASHES = 3


class Caller(Protocol):
    """The worker process that makes a call."""

    @property
    def line(self) -> Line:
        """Its line outside."""
        ...

    def die(self) -> None:
        """End it at once."""
        ...


class CallWitness(Protocol):
    """Watches calls; it judges and never interferes."""

    def call_begins(self, call: ToolCall, line: Line) -> None:
        """See a call pass the worker's last check."""
        ...

    def call_ends(self, call: ToolCall) -> None:
        """See its worker give it up or have its answer."""
        ...

    def effect_happens(self, call: ToolCall, before: list[BookedEffect]) -> BookedEffect:
        """See an effect, and what was booked under its key before; return how it is booked."""
        ...


class Outside:
    """Books effects by key."""

    def __init__(self, seed: int, witness: CallWitness, tell: Callable[[str, str], None]) -> None:
        self._seed = seed
        self._witness = witness
        self._tell = tell
        self.effects: dict[str, list[BookedEffect]] = defaultdict(list)
        self.tokens_told: dict[str, set[str]] = defaultdict(set)
        """By key: the results that somebody was told, or a person gave; what was lost or no use is not among them."""
        self._sent: Counter[str] = Counter()
        self._begun: Counter[str] = Counter()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._crashes = 0
        self.answers: Counter[str] = Counter()

    def has_happened(self, key: str) -> bool:
        """Tell whether an effect is booked under a key."""
        return bool(self.effects[key])

    def is_on_its_way(self, key: str) -> bool:
        """Tell whether a call under a key has passed its worker's last check and may still have its effect."""
        return bool(self._sent[key] or self._begun[key])

    async def execute(self, call: ToolCall, caller: Caller) -> AttemptOutcome:
        """Take one call."""
        loop = asyncio.get_running_loop()
        if loop.time() >= min(call.send_before, call.deadline) or call.stop_requested.is_set():
            return not_started(Reason.ATTEMPT_TIMEOUT, "too late to begin", FailureClass.RETRYABLE)
        if call.tool_name in LOOKUPS:
            return await self._look(call)
        self._witness.call_begins(call, caller.line)
        self._begun[call.idempotency_key] += 1
        try:
            # Nobody can exclude a pause between the last look at the clock and the effect.
            await caller.line.awake.wait()
            return await self._take(call, caller)
        finally:
            self._begun[call.idempotency_key] -= 1
            self._witness.call_ends(call)

    async def _take(self, call: ToolCall, caller: Caller) -> AttemptOutcome:
        answer = self._draw(call)
        self.answers[answer] += 1
        self._tell("outside", f"{call.tool_name} {call.request_id}: {answer}")
        match answer:
            case Answer.DONE:
                return self._tell_result(call, self._land(call))
            case Answer.SLOW:
                return await self._wait_for(call, self._send(call, _TAKES_SECONDS))
            case Answer.REFUSED | Answer.BUSY:
                after = 3000 if answer is Answer.BUSY else None
                return failed(
                    Effect.NOT_EXECUTED, FailureClass.RETRYABLE, Reason.TOOL_FAILED, "refused", retry_after_ms=after
                )
            case Answer.HOPELESS:
                return failed(Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.TOOL_FAILED, "refused for good")
            case Answer.RULED_OUT:
                return failed(Effect.NOT_EXECUTED, FailureClass.NEEDS_HUMAN, Reason.TOOL_FAILED, "against the rules")
            case Answer.DONE_UNSAID | Answer.NOT_DONE_UNSAID | Answer.LANDS_LATER:
                if answer is Answer.DONE_UNSAID:
                    self._land(call)
                if answer is Answer.LANDS_LATER:
                    self._send(call, _LANDS_AFTER_SECONDS)
                return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.CONNECTION_LOST, "the connection broke")
            case Answer.DONE_NO_USE:
                self._land(call)
                return useless(Reason.INVALID_ANSWER, "no JSON", "<html>")
            case Answer.SILENT:
                return await self._wait_for(call, asyncio.get_running_loop().create_future())
            case Answer.CRASH_BEFORE | Answer.CRASH_SENT | Answer.CRASH_AFTER:
                if answer is Answer.CRASH_SENT:
                    self._send(call, _LANDS_AFTER_SECONDS)
                if answer is Answer.CRASH_AFTER:
                    self._land(call)
                caller.die()
                await asyncio.Event().wait()
                raise AssertionError("a dead worker went on")

    async def _wait_for(self, call: ToolCall, landing: asyncio.Future[JsonObject]) -> AttemptOutcome:
        left = max(0.0, call.deadline - asyncio.get_running_loop().time())
        cancelled = asyncio.ensure_future(call.cancelled.wait())
        try:
            await asyncio.wait((landing, cancelled), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if landing.done():
                return self._tell_result(call, landing.result())
            reason = Reason.CANCELLED if call.cancelled.is_set() else Reason.ATTEMPT_TIMEOUT
            return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, "no answer came in time")
        finally:
            cancelled.cancel()

    def _send(self, call: ToolCall, seconds: float) -> asyncio.Future[JsonObject]:
        """Have it carried out after a while, whoever still waits for it."""
        loop = asyncio.get_running_loop()
        landing: asyncio.Future[JsonObject] = loop.create_future()
        self._sent[call.idempotency_key] += 1

        def land() -> None:
            self._sent[call.idempotency_key] -= 1
            landing.set_result(self._land(call))

        loop.call_later(seconds, land)
        return landing

    def _land(self, call: ToolCall) -> JsonObject:
        booked = self.effects[call.idempotency_key]
        policy = call.tool.idempotency
        if not (policy and policy.provider_deduplicates and booked):
            booked.append(self._witness.effect_happens(call, booked))
        return {"token": booked[-1].token, "n": call.params.get("n")}

    def _tell_result(self, call: ToolCall, result: JsonObject) -> AttemptOutcome:
        self.tokens_told[call.idempotency_key].add(str(result["token"]))
        return succeeded(result)

    def _draw(self, call: ToolCall) -> Answer:
        """Draw by what is called, not by when: the order of other calls changes nothing."""
        place = (call.tool_name, call.idempotency_key)
        self._asked[place] += 1
        chance = random.Random(f"{self._seed} {place} {self._asked[place]}")
        answer = chance.choices(_OF_ALL, [_WEIGHTS.get(one, 1) for one in _OF_ALL])[0]
        if answer not in _CRASHES:
            return answer
        self._crashes += 1
        return answer if self._crashes <= _MOST_CRASHES else Answer.DONE

    async def _look(self, call: ToolCall) -> AttemptOutcome:
        key = str(call.params.get("key"))
        place = (call.tool_name, key)
        self._asked[place] += 1
        roll = random.Random(f"{self._seed} {place} {self._asked[place]}").random()
        if roll < 0.08:
            return failed(Effect.NOT_EXECUTED, FailureClass.RETRYABLE, Reason.TOOL_FAILED, "the lookup is out of order")
        if roll < 0.15:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await call.cancelled.wait()
        booked = self.effects[key]
        if call.tool_name == "lie":
            return succeeded({"state": "none"})
        if booked:
            self.tokens_told[key].add(booked[-1].token)
            return succeeded({"state": "done", "answer": {"token": booked[-1].token, "n": 1}})
        return succeeded({"state": "running" if self._sent[key] else "none"})
