"""The helper in a tool's own container and the executor beside it, as two real processes over two folders."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentrun_worker
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import AgentToolSpec
from agentrun_worker.container_executor import ContainerExecutor, ContainerFolders, ContainerUnusableError
from agentrun_worker.executor import ToolCall

HELPER = Path(agentrun_worker.__file__).with_name("container_helper.sh")
BUSYBOX = shutil.which("busybox")
pytestmark = pytest.mark.skipif(BUSYBOX is None, reason="needs busybox, whose place in a worker's image is fixed")


class Pod:
    """Both folders, and the helper as the first process of the tool's container would be."""

    def __init__(self, folder: Path) -> None:
        self.folders = ContainerFolders(folder / "call", folder / "answer")
        self.folders.call.mkdir()
        self.folders.answer.mkdir()
        self.helpers: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        assert BUSYBOX is not None
        arguments = [BUSYBOX, "sh", str(HELPER), BUSYBOX, str(self.folders.call), str(self.folders.answer), *command]
        helper = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, start_new_session=True)
        self.helpers.append(helper)
        return helper

    def shell(self, script: str) -> subprocess.Popen[bytes]:
        return self.start("sh", "-c", script)

    async def call(
        self, script: str = "", *, seconds: float = 10, params: Any = None, cancel_after: float | None = None
    ) -> AttemptOutcome:
        """Make one call as a worker does."""
        if script:
            self.shell(script)
        executor = ContainerExecutor(self.folders)
        try:
            async with asyncio.timeout(10):
                await executor.await_start()
            call = build_call(seconds, params)
            if cancel_after is not None:
                asyncio.get_running_loop().call_later(cancel_after, call.cancelled.set)
            return await executor.execute(call)
        finally:
            await executor.close()


def build_call(seconds: float = 10, params: Any = None) -> ToolCall:
    now = asyncio.get_running_loop().time()
    tool = AgentToolSpec.model_validate(
        {"type": "container", "container": {"image": "x", "command": ["x"]}, "execution": {"mode": "Job"}}
    )
    return ToolCall("act", tool, params or {}, "request-1", "key-1", now + seconds, now + seconds, asyncio.Event())


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    made = Pod(tmp_path)
    yield made
    for helper in made.helpers:
        if helper.poll() is None:
            os.killpg(helper.pid, signal.SIGKILL)
        helper.wait()


async def test_a_program_reads_its_params_and_leaves_its_result(pod: Pod) -> None:
    script = (
        'printf \'{"read": %s, "request": "%s", "key": "%s"}\''
        ' "$(cat "$AGENTRUN_PARAMS")" "$AGENTRUN_REQUEST_ID" "$AGENTRUN_IDEMPOTENCY_KEY" > "$AGENTRUN_OUTPUT"'
    )
    params = {"text": "it's $HOME; \n\u00e9"}
    outcome = await pod.call(script, params=params)
    assert outcome.succeeded
    assert outcome.result == {"read": params, "request": "request-1", "key": "key-1"}
    assert pod.helpers[0].wait(5) == 0


@pytest.mark.parametrize(
    "script, effect, failure_class, reason",
    [
        ("exit 90", Effect.NOT_EXECUTED, FailureClass.RETRYABLE, Reason.TOOL_FAILED),
        ("exit 91", Effect.NOT_EXECUTED, FailureClass.PERMANENT, Reason.TOOL_FAILED),
        ("exit 1", Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_FAILED),
        ("kill -KILL $$", Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED),
        ("kill -SEGV $$", Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.TOOL_CRASHED),
        ("echo no json > $AGENTRUN_OUTPUT", Effect.EXECUTED, FailureClass.PERMANENT, Reason.INVALID_ANSWER),
        ("ln -s /etc/passwd $AGENTRUN_OUTPUT", Effect.EXECUTED, FailureClass.PERMANENT, Reason.INVALID_ANSWER),
        ("mkfifo $AGENTRUN_OUTPUT", Effect.EXECUTED, FailureClass.PERMANENT, Reason.INVALID_ANSWER),
        ("mkdir $AGENTRUN_OUTPUT", Effect.EXECUTED, FailureClass.PERMANENT, Reason.INVALID_ANSWER),
        (
            "head -c 200000 /dev/zero > $AGENTRUN_OUTPUT",
            Effect.EXECUTED,
            FailureClass.PERMANENT,
            Reason.RESULT_TOO_LARGE,
        ),
    ],
)
async def test_what_a_program_ends_with_is_told_as_it_is(
    pod: Pod, script: str, effect: Effect, failure_class: FailureClass, reason: Reason
) -> None:
    outcome = await pod.call(script)
    assert outcome.failure is not None
    assert (outcome.effect, outcome.failure.failure_class, outcome.failure.reason) == (effect, failure_class, reason)


async def test_a_program_without_output_gives_null(pod: Pod) -> None:
    outcome = await pod.call("true")
    assert outcome.succeeded
    assert outcome.result is None


async def test_no_order_is_taken_for_a_program_that_is_not_in_its_image(pod: Pod) -> None:
    helper = pod.start("/no/such/program")
    executor = ContainerExecutor(pod.folders)
    with pytest.raises(ContainerUnusableError, match="/no/such/program: no such program"):
        await executor.await_start()
    await executor.close()
    assert helper.wait(5) == 127


async def test_a_program_that_takes_too_long_is_stopped_with_all_that_it_started(pod: Pod, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    outcome = await pod.call(f"trap '' TERM; (sleep 8; touch {mark}) & sleep 60", seconds=1)
    assert outcome.effect is Effect.UNKNOWN
    assert outcome.failure is not None
    assert outcome.failure.reason == Reason.ATTEMPT_TIMEOUT
    assert pod.helpers[0].wait(10) != 0
    await asyncio.sleep(4)
    assert not mark.exists()


async def test_a_program_that_is_cancelled_may_still_say_that_it_is_done(pod: Pod) -> None:
    script = "trap 'echo 5 > $AGENTRUN_OUTPUT; exit 0' TERM; sleep 30 & wait"
    outcome = await pod.call(script, cancel_after=0.5)
    assert outcome.result == 5


async def test_a_call_that_is_cancelled_before_its_program_began_was_not_made(pod: Pod, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    helper = pod.shell(f"touch {mark}")
    executor = ContainerExecutor(pod.folders)
    await executor.await_start()
    # The helper stands still just then.
    helper.send_signal(signal.SIGSTOP)
    call = build_call()
    made = asyncio.create_task(executor.execute(call))
    await asyncio.sleep(0.3)
    call.cancelled.set()
    await asyncio.sleep(0.3)
    helper.send_signal(signal.SIGCONT)
    outcome = await made
    await executor.close()
    assert outcome.effect is Effect.NOT_EXECUTED
    assert not mark.exists()


async def test_a_program_outlives_neither_its_companion_nor_its_silence(pod: Pod, tmp_path: Path) -> None:
    helper = pod.shell("sleep 120")
    executor = ContainerExecutor(pod.folders)
    await executor.await_start()
    made = asyncio.create_task(executor.execute(build_call(100)))
    await asyncio.sleep(1)
    made.cancel()
    assert executor._beating is not None
    executor._beating.cancel()
    began = time.monotonic()
    code = await asyncio.to_thread(helper.wait, 40)
    assert code != 0
    assert 8 < time.monotonic() - began < 30


async def test_a_companion_that_never_takes_an_order_lets_the_container_end(pod: Pod) -> None:
    helper = pod.shell("exit 3")
    executor = ContainerExecutor(pod.folders)
    await executor.await_start()
    await executor.close()
    assert await asyncio.to_thread(helper.wait, 5) == 0


async def test_a_container_that_is_told_to_end_lets_its_program_come_to_its_end(pod: Pod) -> None:
    helper = pod.shell("sleep 2; echo 7 > $AGENTRUN_OUTPUT")
    asyncio.get_running_loop().call_later(1.5, helper.send_signal, signal.SIGTERM)
    assert (await pod.call()).result == 7


async def test_a_container_that_is_killed_whole_is_noticed(pod: Pod) -> None:
    helper = pod.shell("sleep 60")

    def kill() -> None:
        for child in Path(f"/proc/{helper.pid}/task/{helper.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        helper.kill()

    asyncio.get_running_loop().call_later(1.5, kill)
    outcome = await pod.call(seconds=60)
    assert outcome.effect is Effect.UNKNOWN
    assert outcome.failure is not None
    assert "memory" in outcome.failure.message


async def test_what_the_program_puts_in_the_helpers_place_harms_nobody(pod: Pod) -> None:
    script = "rm -f ${AGENTRUN_OUTPUT%/*}/alive; mkdir ${AGENTRUN_OUTPUT%/*}/alive; echo '[1]' > $AGENTRUN_OUTPUT"
    outcome = await pod.call(script)
    assert json.dumps(outcome.result) == "[1]"
