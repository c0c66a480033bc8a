"""An executor that answers as a script says, and counts what it did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun.local.script_file import Crash, ScriptedAnswer, ScriptedCall
from agentrun_worker.executor import ToolCall
from agentrun_worker.outcomes import failed, not_started, succeeded


class CallCounts:
    """How often each tool was called, and how often its effect happened."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        self._answered: Counter[tuple[str, int]] = Counter()

    def next_answer(self, tool: str, number: int, call: ScriptedCall) -> ScriptedAnswer:
        """Return the answer that is due; the last one repeats."""
        at = self._answered[tool, number]
        self._answered[tool, number] += 1
        return call.answers[min(at, len(call.answers) - 1)]

    def begin(self, tool: str) -> None:
        """Count a call that starts."""
        self.calls[tool] += 1
        self.at_once[tool] += 1
        self.most_at_once[tool] = max(self.most_at_once[tool], self.at_once[tool])

    def end(self, tool: str) -> None:
        """Count a call that ends."""
        self.at_once[tool] -= 1


class ScriptExecutor:
    """Answers for tools of every type."""

    def __init__(
        self, tools: Mapping[str, Sequence[ScriptedCall]], counts: CallCounts, kill_worker: Callable[[], None]
    ) -> None:
        """``kill_worker`` ends the worker that makes the call, as a crash of its process would."""
        self._tools = tools
        self._counts = counts
        self._kill_worker = kill_worker

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Answer one call."""
        loop = asyncio.get_running_loop()
        if loop.time() >= min(call.send_before, call.deadline) or call.cancelled.is_set():
            said = "the claim or the deadline ran out before the call"
            return not_started(Reason.ATTEMPT_TIMEOUT, said, FailureClass.RETRYABLE)
        answer = self._find_answer(call)
        if answer is None:
            said = f"the script has no answer of tool {call.tool_name} for these params"
            return not_started(Reason.TOOL_NOT_LOADABLE, said)
        self._counts.begin(call.tool_name)
        try:
            return await self._answer(call, answer)
        finally:
            self._counts.end(call.tool_name)

    async def _answer(self, call: ToolCall, answer: ScriptedAnswer) -> AttemptOutcome:
        loop = asyncio.get_running_loop()
        if answer.crash is Crash.BEFORE_EFFECT:
            await self._die()
        wait = call.deadline - loop.time() if answer.hang else answer.delay.total_seconds()
        interrupted = await _wait(min(wait, call.deadline - loop.time()), call)
        if interrupted or answer.hang or loop.time() >= call.deadline:
            reason = Reason.CANCELLED if interrupted else Reason.ATTEMPT_TIMEOUT
            return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, "no answer came in time")
        failure = answer.failure
        if failure is None or failure.effect is Effect.EXECUTED:
            self._counts.effects[call.tool_name] += 1
        if answer.crash is Crash.AFTER_EFFECT:
            await self._die()
        # Only a cost that the script names counts instead of the tool's own, nothing included.
        reported = {} if answer.cost is None else {"usage": Amount(micros=answer.cost)}
        if failure is None:
            return succeeded(answer.result).model_copy(update=reported)
        retry_after = failure.retry_after
        outcome = AttemptOutcome(
            effect=failure.effect,
            failure=Failure(
                effect=failure.effect,
                failure_class=failure.failure_class,
                reason=failure.reason,
                message=failure.message,
                retry_after_ms=round(retry_after.total_seconds() * 1000) if retry_after is not None else None,
            ),
        )
        return outcome.model_copy(update=reported)

    def _find_answer(self, call: ToolCall) -> ScriptedAnswer | None:
        for number, scripted in enumerate(self._tools.get(call.tool_name, ())):
            if all(name in call.params and call.params[name] == value for name, value in scripted.when.items()):
                return self._counts.next_answer(call.tool_name, number, scripted)
        return None

    async def _die(self) -> None:
        self._kill_worker()
        await asyncio.Event().wait()


async def _wait(seconds: float, call: ToolCall) -> bool:
    """Wait, and return whether the call was interrupted meanwhile."""
    if seconds <= 0:
        # Others get their turn even when nothing has to be waited for.
        await asyncio.sleep(0)
        return call.cancelled.is_set()
    try:
        async with asyncio.timeout(seconds):
            await call.cancelled.wait()
    except TimeoutError:
        return False
    return True
