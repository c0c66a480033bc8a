"""What a Python tool's call tells about the world, by everything a function can do to it."""

from __future__ import annotations

import asyncio
import os
from decimal import Decimal
from pathlib import Path

import pytest

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.failures import Reason
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun_worker.attempt import CallWindow
from agentrun_worker.python_executor import PythonExecutor
from agentrun_worker.redaction import MASK
from agentrun_worker.tool_api import SecretMissing, ToolContext, ToolError, Usage
from support.tool_calls import FixedSecrets, build_python_tool, make_call, summary

TOOLS = Path(__file__).parent / "tools"
CANARY = "canary-7f3a9c"
SUCCEEDED = ("Executed", "Succeeded", "Succeeded")
NOT_LOADABLE = ("NotExecuted", "Permanent", "ToolNotLoadable")
CRASHED = ("Unknown", "Retryable", "ToolCrashed")
FAILED = ("Unknown", "Retryable", "ToolFailed")
UNUSABLE = ("Executed", "Permanent", "InvalidAnswer")
both_isolations = pytest.mark.parametrize("isolation", ["Subprocess", "Thread"])


def executor() -> PythonExecutor:
    return PythonExecutor([TOOLS], FixedSecrets({"shop/token": CANARY}))


async def call(
    function: str,
    params: JsonObject | None = None,
    isolation: str = "Thread",
    *,
    seconds: float = 10.0,
    window: CallWindow | None = None,
    cost: Amount | None = None,
) -> AttemptOutcome:
    entry_point = function if ":" in function else f"table_tools:{function}"
    tool = build_python_tool(entry_point, isolation)
    return await make_call(executor(), tool, params, seconds=seconds, window=window, cost=cost)


@both_isolations
@pytest.mark.parametrize(
    "function, params, want",
    [
        ("add", {"a": 1, "b": 2}, {"sum": 3}),
        ("add_later", {"a": 1}, {"sum": 2}),
        ("tell_context", {}, {"request": "tool-request", "key": "record-key", "in_time": True, "cancelled": False}),
    ],
)
async def test_a_function_gets_its_params_and_gives_its_result(
    isolation: str, function: str, params: JsonObject, want: JsonValue
) -> None:
    outcome = await call(function, params, isolation)
    assert (summary(outcome), outcome.result) == (SUCCEEDED, want)


@pytest.mark.parametrize(
    "name, want",
    [
        ("big", 2**53 + 1),
        ("decimal", Decimal("0.10")),
        ("float", Decimal("0.1")),
        ("whole float", 5),
        ("none", None),
        ("tuple", [1, 2]),
        ("emoji", "🚀"),
    ],
)
async def test_a_result_stays_exact(name: str, want: JsonValue) -> None:
    outcome = await call("return_what", {"name": name})
    assert (summary(outcome), outcome.result, type(outcome.result)) == (SUCCEEDED, want, type(want))


@pytest.mark.parametrize(
    "value", [2**53 + 1, -(2**63), Decimal("0.1000000000000000055511151231257827"), [{}], "🚀\u2028"]
)
async def test_params_and_result_pass_a_process_unchanged(value: JsonValue) -> None:
    outcome = await call("echo", {"value": value}, "Subprocess")
    assert outcome.result == value


@pytest.mark.parametrize(
    "name",
    ["nan", "infinity", "too big", "set", "bytes", "object", "unshowable", "surrogate", "nul", "number keys"],
)
async def test_a_result_that_json_cannot_carry_was_executed_and_is_no_use(name: str) -> None:
    assert summary(await call("return_what", {"name": name})) == UNUSABLE


@both_isolations
async def test_a_result_too_large_to_keep_was_executed_and_is_no_use(isolation: str) -> None:
    outcome = await call("return_what", {"name": "large"}, isolation)
    assert summary(outcome) == ("Executed", "Permanent", "ResultTooLarge")


@pytest.mark.parametrize(
    "name, want",
    [
        ("value", FAILED),
        ("unreadable", FAILED),
        ("interrupt", FAILED),
        ("cancelled", FAILED),
        ("plain", FAILED),
        ("retryable", ("NotExecuted", "Retryable", "Overloaded")),
        ("permanent", ("NotExecuted", "Permanent", "ToolFailed")),
        ("human", ("NotExecuted", "NeedsHuman", "OverLimit")),
        ("executed", ("Executed", "Permanent", "ToolFailed")),
    ],
)
async def test_what_a_function_raises_says_who_acts_next(name: str, want: tuple[str, str, str]) -> None:
    outcome = await call("raise_what", {"name": name})
    assert summary(outcome) == want


async def test_a_failure_carries_message_trace_and_time_to_wait() -> None:
    outcome = await call("raise_what", {"name": "value"}, "Subprocess")
    assert outcome.failure is not None
    assert outcome.failure.message == "ValueError: bad ? value\ufffd"
    assert "table_tools.py" in outcome.raw_output
    waits = await call("raise_what", {"name": "retryable"})
    assert waits.failure is not None
    assert (waits.failure.message, waits.failure.retry_after_ms) == ("later", 2500)


@pytest.mark.parametrize(
    "function, params, said",
    [
        ("nowhere:f", {}, "module nowhere was not found"),
        ("table_tools:nothing", {}, "no function nothing"),
        ("table_tools:TOOLS", {}, "no function TOOLS"),
        ("broken_tool:f", {}, "broken on purpose"),
        ("add", {}, "missing a required argument"),
        ("add", {"a": 1, "c": 2}, "unexpected keyword"),
    ],
)
async def test_a_function_that_cannot_be_called_has_done_nothing(function: str, params: JsonObject, said: str) -> None:
    outcome = await call(function, params)
    assert summary(outcome) == NOT_LOADABLE
    assert outcome.failure is not None
    assert said in outcome.failure.message


@pytest.mark.parametrize(
    "function, params, said",
    [
        ("die", {"code": 137}, "exit code 137"),
        ("die", {"code": 0}, "exit code 0"),
        ("leave", {"code": 3}, "exit code 3"),
        ("kill_self", {}, "SIGKILL"),
        ("print_then_die", {}, "exit code 3"),
    ],
)
async def test_a_process_that_ends_without_an_ending_has_crashed(function: str, params: JsonObject, said: str) -> None:
    outcome = await call(function, params, "Subprocess")
    assert summary(outcome) == CRASHED
    assert outcome.failure is not None
    assert said in outcome.failure.message
    if function == "print_then_die":
        assert outcome.raw_output.endswith("the last words\n")


async def test_prints_and_input_do_not_touch_the_result() -> None:
    assert (await call("print_much", {}, "Subprocess")).result == "fine"
    assert (await call("read_input", {}, "Subprocess")).result == ""


async def test_a_worker_survives_a_function_that_leaves_in_a_thread() -> None:
    assert summary(await call("leave", {"code": 3})) == FAILED


@pytest.mark.parametrize("function", ["hang", "hang_deaf", "start_and_hang"])
async def test_a_process_is_killed_at_the_deadline_with_all_it_started(function: str, tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    outcome = await call(function, {"marker": str(marker)}, "Subprocess", seconds=0.6)
    assert summary(outcome) == ("Unknown", "Retryable", "AttemptTimeout")
    assert await has_ended(int(marker.read_text()))


@pytest.mark.parametrize("function", ["leave_a_child", "fork_and_return"])
async def test_what_a_function_leaves_behind_delays_nothing_and_ends_with_it(function: str, tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    outcome = await call(function, {"marker": str(marker)}, "Subprocess")
    assert outcome.result == "done"
    assert outcome.duration_ms < 5000
    assert await has_ended(int(marker.read_text()))


@both_isolations
@pytest.mark.parametrize("function", ["hang", "hang_async"])
async def test_an_interrupted_function_is_unknown_and_says_why(isolation: str, function: str, tmp_path: Path) -> None:
    if (isolation, function) == ("Thread", "hang"):
        pytest.skip("a thread that never looks up lingers for ever; see the test of its own")
    window, calling = await begin(function, isolation, tmp_path / "pid")
    window.interrupt(Reason.HEARTBEAT_LOST, "the claim was lost")
    assert summary(await calling) == ("Unknown", "Retryable", "HeartbeatLost")


@both_isolations
async def test_the_word_to_stop_reaches_a_function_that_listens(isolation: str, tmp_path: Path) -> None:
    window, calling = await begin("stop_when_told", isolation, tmp_path / "pid")
    window.stop_requested.set()
    assert (await calling).result == "stopped"


async def test_a_thread_that_was_given_up_is_known_to_linger(tmp_path: Path) -> None:
    python = executor()
    tool = build_python_tool("table_tools:stop_when_told", "Thread")
    now = asyncio.get_running_loop().time()
    window = CallWindow(deadline=now + 0.2, send_before=now + 10)
    outcome = await make_call(python, tool, {"marker": str(tmp_path / "pid")}, window=window)
    assert summary(outcome) == ("Unknown", "Retryable", "AttemptTimeout")
    assert python.lingers()
    window.stop_requested.set()
    async with asyncio.timeout(10):
        while python.lingers():
            await asyncio.sleep(0.005)


async def test_an_async_function_that_blocks_does_not_block_the_worker() -> None:
    loop = asyncio.get_running_loop()
    calling = asyncio.create_task(call("block_the_loop", {"seconds": 1}))
    longest, last = 0.0, loop.time()
    while not calling.done():
        await asyncio.sleep(0.01)
        longest, last = max(longest, loop.time() - last), loop.time()
    assert (await calling).result == "blocked"
    assert longest < 0.5


@pytest.mark.parametrize("late", ["claim", "deadline", "stopped"])
async def test_nothing_is_called_too_late(late: str, tmp_path: Path) -> None:
    now = asyncio.get_running_loop().time()
    window = CallWindow(
        deadline=now - 1 if late == "deadline" else now + 10, send_before=now - 1 if late == "claim" else now + 10
    )
    if late == "stopped":
        window.stop_requested.set()
    outcome = await call("hang", {"marker": str(tmp_path / "pid")}, window=window)
    assert summary(outcome)[0] == "NotExecuted"
    assert not (tmp_path / "pid").exists()


async def test_the_right_to_the_ledger_is_not_handed_to_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_WORKER_REDIS", "redis://:password@ledger")
    monkeypatch.setenv("AGENTRUN_OF_THE_USER", "kept")
    monkeypatch.delenv("AGENTRUN_TEST_SEED")
    assert (await call("see_environment", {}, "Subprocess")).result == ["AGENTRUN_OF_THE_USER"]


@both_isolations
@pytest.mark.parametrize("say_in", ["result", "error", "tool error", "print", "crash"])
async def test_a_secret_that_a_function_says_is_cleaned(isolation: str, say_in: str, logs: list[object]) -> None:
    if (isolation, say_in) == ("Thread", "crash"):
        pytest.skip("it would end the tests")
    outcome = await call("use_secret", {"say_in": say_in}, isolation)
    told = str(outcome) + repr(logs)
    assert CANARY not in told
    if (isolation, say_in) != ("Thread", "print"):
        assert MASK in told


@both_isolations
async def test_a_missing_secret_is_named(isolation: str) -> None:
    outcome = await call("miss_secret", {}, isolation)
    assert summary(outcome) == ("Unknown", "Permanent", "SecretMissing")
    assert outcome.failure is not None
    assert "nobody" in outcome.failure.message


@both_isolations
@pytest.mark.parametrize(
    "function, params, want",
    [
        ("use_up", {}, Amount(micros=12500, tokens=15, model_calls=2)),
        ("use_up", {"fail": True}, Amount(micros=12500, tokens=15, model_calls=2)),
        ("use_nothing", {}, Amount()),
        ("add", {"a": 1}, Amount(micros=99)),
    ],
    ids=["reported", "reported before it failed", "reported as free", "not reported: the tool's price"],
)
async def test_what_a_function_reports_counts_instead_of_its_price(
    isolation: str, function: str, params: JsonObject, want: Amount
) -> None:
    outcome = await call(function, params, isolation, cost=Amount(micros=99))
    assert outcome.usage == want


async def test_usage_never_makes_a_budget_grow() -> None:
    assert summary(await call("overspend")) == FAILED


@pytest.mark.parametrize("cost", ["-1", "NaN", "Infinity", "1e-7", "one"])
def test_usage_that_is_no_amount_of_money_is_refused(cost: str) -> None:
    with pytest.raises(ValueError, match=r"cost"):
        Usage(cost=cost)


def test_a_tool_can_be_tested_without_a_worker() -> None:
    context = ToolContext()
    context.report_usage(Usage(cost="0.01"))
    assert context.seconds_left() > 0
    assert not context.is_cancelled()
    with pytest.raises(SecretMissing):
        context.secret("shop", "token")


def test_an_effect_that_does_not_exist_is_refused_where_it_is_raised() -> None:
    with pytest.raises(ValueError, match="Maybe"):
        ToolError("?", effect="Maybe")  # type: ignore[arg-type]


async def begin(function: str, isolation: str, marker: Path) -> tuple[CallWindow, asyncio.Task[AttemptOutcome]]:
    """Start a call and return once the function is at work."""
    now = asyncio.get_running_loop().time()
    window = CallWindow(deadline=now + 20, send_before=now + 20)
    calling = asyncio.create_task(call(function, {"marker": str(marker)}, isolation, window=window))
    async with asyncio.timeout(10):
        while not (marker.exists() and marker.read_text()):
            await asyncio.sleep(0.005)
    return window, calling


async def has_ended(pid: int) -> bool:
    """Wait until a process is gone, or a zombie that nobody has asked about yet."""
    async with asyncio.timeout(10):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return True
            if state == "Z" or not os.path.exists(f"/proc/{pid}"):
                return True
            await asyncio.sleep(0.01)
