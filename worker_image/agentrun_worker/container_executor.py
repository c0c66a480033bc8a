"""Has a program in the container beside this one make a call, and says what came of it.

The two share two folders and nothing else: what is told stands in ``container_helper.sh``, which runs in the other
container and starts the program. Nothing that stands in the answer's folder is believed to be what it should be: the
program may write there as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from agentrun.contract.defaults import RAW_OUTPUT_MAX_CHARS, RESULT_MAX_BYTES
from agentrun.contract.exact_json import JsonRefusedError, JsonValue, canonical_json, parse_json
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun_worker.executor import ToolCall
from agentrun_worker.outcomes import failed, not_started, succeeded, useless

_NOTHING_DONE = {
    "90": (FailureClass.RETRYABLE, "another try may help"),
    "91": (FailureClass.PERMANENT, "no other try would do better"),
}
"""Exit codes by which a program says that it has done nothing."""
_LOOK_SECONDS = 0.1
_BEAT_SECONDS = 1.0
_SILENCE_SECONDS = 15.0
_LAST_WORDS_SECONDS = 8.0
"""After it was told to stop: a little more than the helper gives the program between SIGTERM and SIGKILL."""
_KILLED = 128 + 9
_WORD = 64


class ContainerUnusableError(Exception):
    """The program's container can never run it; the message says why."""


@dataclass(frozen=True, slots=True)
class ContainerFolders:
    """What both containers see. ``call`` is written here, ``answer`` there."""

    call: Path
    answer: Path


class ContainerExecutor:
    """Executes tools of type container, one call in its life."""

    def __init__(self, folders: ContainerFolders) -> None:
        self._folders = folders
        self._lingers = False
        self._beating: asyncio.Task[None] | None = None

    def lingers(self) -> bool:
        """Return whether a program that was given up may still be at work."""
        return self._lingers

    async def await_start(self) -> None:
        """Return once the other container runs: image, mounts and program are there.

        Shows it that somebody is here from now on, until :meth:`close`. Raises :class:`ContainerUnusableError`.
        """
        self._beating = asyncio.create_task(self._beat(), name="container beat")
        while self._heard("started") is None:
            unusable = self._heard("unusable")
            if unusable is not None:
                raise ContainerUnusableError(unusable)
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        """Tell the other container that nothing comes any more."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        # The volume may be full: silence says the same, only later.
        with contextlib.suppress(OSError):
            self._say("end", "yes")

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Have the call made."""
        loop = asyncio.get_running_loop()
        if call.tool.container is None:
            return not_started(Reason.TOOL_NOT_LOADABLE, f"tool {call.tool_name} has no container block")
        if call.cancelled.is_set() or call.stop_requested.is_set():
            said = "it was cancelled, before the program was started"
            return not_started(Reason.CANCELLED, said, FailureClass.RETRYABLE)
        left = min(call.send_before, call.deadline) - loop.time()
        if left <= 0:
            said = "the claim or the deadline ran out, before the program was started"
            return not_started(Reason.ATTEMPT_TIMEOUT, said, FailureClass.RETRYABLE)
        try:
            self._hand_over(call, call.deadline - loop.time())
        except OSError as error:
            # The word to begin comes last, and whole or not at all.
            said = f"the call could not be handed over: {error.strerror}"
            return not_started(Reason.TOOL_NOT_LOADABLE, said, FailureClass.RETRYABLE)
        return await self._wait(call)

    # --- the two folders

    def _hand_over(self, call: ToolCall, seconds: float) -> None:
        self._say("params.json", canonical_json(call.params))
        self._say("request-id", call.request_id)
        self._say("key", call.idempotency_key)
        # Whole seconds, rounded up: this side stops it at the very moment.
        self._say("go", str(int(max(seconds, 0)) + 1))

    def _say(self, name: str, text: str) -> None:
        part = self._folders.call / f".{name}"
        part.write_text(f"{text}\n", encoding="utf-8")
        part.chmod(0o644)
        part.replace(self._folders.call / name)

    def _heard(self, name: str) -> str | None:
        """Return a word that the helper has said; None where it has not, or somebody else has put a thing there."""
        try:
            text = _read_file(self._folders.answer / name, 4096)
        except (OSError, _NoAnswerError):
            return None
        return text.decode("utf-8", "replace").strip()

    async def _beat(self) -> None:
        beat = 0
        while True:
            beat += 1
            # The volume may be full for a while. Who stays silent for too long has the call stopped.
            with contextlib.suppress(OSError):
                self._say("alive", str(beat))
            await asyncio.sleep(_BEAT_SECONDS)

    # --- the wait

    async def _wait(self, call: ToolCall) -> AttemptOutcome:
        loop = asyncio.get_running_loop()
        beat, heard_at = "", loop.time()
        told_to_stop, stopped_for = 0.0, ("", Reason.CANCELLED)
        while (ended := self._heard("ended")) is None:
            now = loop.time()
            if (newer := self._heard("alive") or "") != beat:
                beat, heard_at = newer, now
            if not told_to_stop and (reason := _find_interruption(call, now)) is not None:
                told_to_stop, stopped_for = now, reason
                with contextlib.suppress(OSError):
                    self._say("stop", "yes")
            if told_to_stop and now - told_to_stop >= _LAST_WORDS_SECONDS:
                self._lingers = True
                return self._unknown(stopped_for[1], f"{stopped_for[0]}, and the program did not end")
            if now - heard_at >= _SILENCE_SECONDS:
                # Killed together with its helper, most often for lack of memory.
                self._lingers = True
                return self._unknown(
                    Reason.TOOL_CRASHED,
                    "the program's container fell silent: killed, perhaps for lack of memory"
                    " (execution.resources.limits.memory)",
                )
            await asyncio.sleep(_LOOK_SECONDS)
        if ended == "none":
            said = f"{stopped_for[0] or 'it was stopped'}, before the program began"
            return not_started(stopped_for[1], said, FailureClass.RETRYABLE)
        if told_to_stop and ended != "0":
            return self._unknown(stopped_for[1], f"{stopped_for[0]}: the program was stopped")
        return self._read_ending(ended)

    def _read_ending(self, ended: str) -> AttemptOutcome:
        if ended == "0":
            return self._read_output()
        if ended in _NOTHING_DONE:
            failure_class, means = _NOTHING_DONE[ended]
            said = f"the program says with exit code {ended} that it has done nothing: {means}"
            return failed(Effect.NOT_EXECUTED, failure_class, Reason.TOOL_FAILED, said, raw_output=self._tail())
        if ended == str(_KILLED):
            said = "the program was killed, perhaps for lack of memory (execution.resources.limits.memory)"
            return self._unknown(Reason.TOOL_CRASHED, said)
        if not ended.isdecimal():
            return self._unknown(Reason.TOOL_CRASHED, "what the program ended with cannot be read")
        said = f"the program ended with exit code {ended[:_WORD]}"
        return self._unknown(Reason.TOOL_FAILED if int(ended[:4]) < 128 else Reason.TOOL_CRASHED, said)

    def _read_output(self) -> AttemptOutcome:
        path = self._folders.answer / "output.json"
        try:
            text = _read_file(path, RESULT_MAX_BYTES + 1)
        except FileNotFoundError:
            return succeeded(None)
        except (OSError, _NoAnswerError) as error:
            return useless(Reason.INVALID_ANSWER, f"the program's output cannot be read: {error}", "")
        if len(text) > RESULT_MAX_BYTES:
            said = f"the result has more than {RESULT_MAX_BYTES} bytes: write a reference to it"
            return useless(Reason.RESULT_TOO_LARGE, said, _show(text))
        if not text.strip():
            return succeeded(None)
        try:
            result: JsonValue = parse_json(text)
        except JsonRefusedError as error:
            return useless(Reason.INVALID_ANSWER, f"the program's output is no JSON: {error}", _show(text))
        return succeeded(result)

    def _unknown(self, reason: Reason, said: str) -> AttemptOutcome:
        return failed(Effect.UNKNOWN, FailureClass.RETRYABLE, reason, said, raw_output=self._tail())

    def _tail(self) -> str:
        """Return what stands in the output after a failure: it is no result, and may tell why."""
        with contextlib.suppress(OSError, _NoAnswerError):
            return _show(_read_file(self._folders.answer / "output.json", RAW_OUTPUT_MAX_CHARS))
        return ""


class _NoAnswerError(Exception):
    """Something stands there that is no plain file."""


def _find_interruption(call: ToolCall, now: float) -> tuple[str, Reason] | None:
    if now >= call.deadline:
        return "the deadline passed", Reason.ATTEMPT_TIMEOUT
    if call.cancelled.is_set():
        return "it was cancelled", Reason.CANCELLED
    return None


def _read_file(path: Path, limit: int) -> bytes:
    """Return the beginning of a plain file; what leads elsewhere, or never ends, is not read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _NoAnswerError("it is a link") from error
        raise
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise _NoAnswerError("it is no plain file")
        return file.read(limit)


def _show(text: bytes) -> str:
    return text.decode("utf-8", "replace")[:RAW_OUTPUT_MAX_CHARS]
