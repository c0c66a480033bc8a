"""What a recovery finds out about a call that nobody saw end; it asks, and never makes the call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.orders import AttemptOutcome, LookupOrder, OrderKind, ReportKind
from agentrun.contract.tool import AgentToolSpec, ToolType
from agentrun.ledger.port import ClaimAnswer, ClaimVerdict, RecordStatus, RecordView
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.attempt import AttemptMaker, CallWindow
from agentrun_worker.outcomes import failed, succeeded
from agentrun_worker.python_executor import PythonExecutor
from agentrun_worker.recovery import Recoverer
from support.orders import NAMESPACE, build_order
from support.tool_calls import build_python_tool, summary
from support.worker_rig import rigged, working

TOOLS = Path(__file__).parent / "tools"
OUTCOMES: JsonObject = {
    "completed": {"when": {"path": "result.state", "op": "eq", "value": "done"}, "result": "result.refund"},
    "running": {"when": {"path": "result.state", "op": "eq", "value": "busy"}},
    "notExecuted": {"when": {"path": "result.state", "op": "eq", "value": "none"}},
}
RESULT = {"schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}
DONE, BUSY, NONE = {"state": "done", "refund": {"id": 7}}, {"state": "busy"}, {"state": "none"}
UNKNOWN = ("Unknown", "Retryable", "OutcomeUnknown")
SUCCEEDED = ("Executed", "Succeeded", "Succeeded")
NOT_EXECUTED = ("NotExecuted", "Retryable", "RecoveredNotExecuted")


@dataclass
class Case:
    """One recovery and what it is told."""

    folder: Path
    answers: Sequence[JsonValue] = ()
    outcomes: JsonObject = field(default_factory=lambda: dict(OUTCOMES))
    function: str = "answer_next"
    adopted: int = 0

    def tool(self, **more: Any) -> AgentToolSpec:
        # Its function would leave a trace: it is never to be called.
        recovery = {"lookup": {"tool": "lookup"}, "outcome": self.outcomes}
        return build_python_tool("lookup_tools:transfer", "Thread", recovery=recovery, result=RESULT, **more)

    @property
    def asked(self) -> int:
        counter = self.folder / "asked"
        return counter.stat().st_size if counter.exists() else 0

    async def recover(
        self, *, seconds: float = 10.0, lookup: bool = True, spec: JsonObject | None = None, **found: Any
    ) -> AttemptOutcome:
        params = {"answers": list(self.answers), "counter": str(self.folder / "asked")}
        order = build_order(
            kind=OrderKind.RECOVER,
            params={"ledger": str(self.folder / "ledger"), "began": str(self.folder / "began"), "go": "/"},
            lookup=LookupOrder(tool="lookup", tool_digest="sha256:l", params=params, poll_ms=10) if lookup else None,
        )
        executor = PythonExecutor([TOOLS])
        maker = AttemptMaker(dict.fromkeys(ToolType, executor), SchemaValidator())
        now = asyncio.get_running_loop().time()

        async def adopt() -> bool:
            self.adopted += 1
            return True

        outcome = await Recoverer(maker).recover(
            order,
            self.tool(**(spec or {})),
            build_python_tool(f"lookup_tools:{self.function}", "Thread", sideEffect="None") if lookup else None,
            ClaimAnswer(ClaimVerdict.RECOVER, remaining_ms=10_000, lease_ms=10_000, **found),
            CallWindow(deadline=now + seconds, send_before=now + seconds),
            adopt,
        )
        assert not (self.folder / "began").exists()
        return outcome


def record(status: RecordStatus, outcome: AttemptOutcome | None) -> RecordView:
    return RecordView(
        key="key-1",
        status=status,
        version=3,
        owner="shop/run-1/node-1",
        owner_run_uid="run-1",
        owner_node_uid="node-1",
        attempt=1,
        params_digest="",
        claim_live=False,
        in_inbox=False,
        first_at_ms=0,
        last_at_ms=0,
        outcome=outcome,
    )


@pytest.mark.parametrize(
    "answers, found, spec, want",
    [
        pytest.param([DONE], {}, {}, SUCCEEDED, id="completed"),
        pytest.param([{"state": "done"}], {}, {}, ("Executed", "Permanent", "ResultInvalid"), id="without the result"),
        pytest.param(
            [{"state": "done", "refund": {"id": "7"}}],
            {},
            {},
            ("Executed", "Permanent", "ResultInvalid"),
            id="with a result that misses the schema",
        ),
        pytest.param([NONE], {"previous_worker_gone": True}, {}, NOT_EXECUTED, id="not executed, and the worker gone"),
        pytest.param(
            [NONE],
            {},
            {"idempotency": {"providerDeduplicates": True}},
            NOT_EXECUTED,
            id="not executed, and the provider deduplicates",
        ),
        pytest.param([NONE], {}, {}, UNKNOWN, id="not executed, and the worker may still send"),
        pytest.param([{"state": "gone"}], {"previous_worker_gone": True}, {}, UNKNOWN, id="none of the three"),
        pytest.param([{"state": 5}], {"previous_worker_gone": True}, {}, UNKNOWN, id="another type"),
        pytest.param([{}], {"previous_worker_gone": True}, {}, UNKNOWN, id="no state at all"),
        pytest.param([None], {"previous_worker_gone": True}, {}, UNKNOWN, id="nothing"),
        pytest.param(["done"], {}, {}, UNKNOWN, id="a text"),
        pytest.param([BUSY, BUSY, DONE], {}, {}, SUCCEEDED, id="running, then completed"),
        pytest.param([BUSY, NONE], {"previous_worker_gone": True}, {}, NOT_EXECUTED, id="running, then not executed"),
    ],
)
async def test_a_lookups_answer_is_read_by_typed_tests(
    tmp_path: Path, answers: list[JsonValue], found: dict[str, Any], spec: JsonObject, want: tuple[str, str, str]
) -> None:
    outcome = await Case(tmp_path, answers).recover(spec=spec, **found)
    assert summary(outcome) == want, outcome.failure
    if want == SUCCEEDED:
        assert outcome.result == {"id": 7}


async def test_a_running_call_is_adopted_once_and_asked_about_until_it_ends(tmp_path: Path) -> None:
    case = Case(tmp_path, [BUSY, BUSY, BUSY, DONE])
    assert (await case.recover()).succeeded
    assert (case.adopted, case.asked) == (1, 4)


async def test_a_call_that_runs_on_past_the_recovery_is_unknown(tmp_path: Path) -> None:
    case = Case(tmp_path, [BUSY])
    outcome = await case.recover(seconds=2.0)
    assert summary(outcome) == UNKNOWN
    assert outcome.failure is not None
    assert "still running" in outcome.failure.message
    assert case.asked > 1


async def test_a_lookup_that_fails_is_unknown(tmp_path: Path) -> None:
    outcome = await Case(tmp_path, function="refuse").recover(previous_worker_gone=True)
    assert summary(outcome) == UNKNOWN
    assert outcome.failure is not None
    assert "the lookup is broken" in outcome.failure.message


async def test_without_a_lookup_nobody_can_be_asked(tmp_path: Path) -> None:
    assert summary(await Case(tmp_path).recover(lookup=False, previous_worker_gone=True)) == UNKNOWN


LATE = failed(Effect.NOT_EXECUTED, FailureClass.RETRYABLE, Reason.CONNECTION_REFUSED, "refused")
DONE_BUT_USELESS = AttemptOutcome(
    effect=Effect.EXECUTED,
    failure=Failure(effect=Effect.EXECUTED, failure_class=FailureClass.PERMANENT, reason=Reason.RESULT_INVALID),
)
OPEN = failed(Effect.UNKNOWN, FailureClass.RETRYABLE, Reason.CONNECTION_LOST, "lost")


@pytest.mark.parametrize(
    "found, want",
    [
        pytest.param({"evidence": succeeded({"id": 1})}, SUCCEEDED, id="the late worker says done"),
        pytest.param(
            {"evidence": LATE}, ("NotExecuted", "Retryable", "ConnectionRefused"), id="the late worker never sent it"
        ),
        pytest.param({"evidence": OPEN}, UNKNOWN, id="the late worker knows nothing: ask"),
        pytest.param(
            {"previous": record(RecordStatus.EXECUTED, DONE_BUT_USELESS)},
            ("Executed", "Permanent", "ResultInvalid"),
            id="the record says executed",
        ),
        pytest.param(
            {"previous": record(RecordStatus.SUCCESS, succeeded({"id": 1}))}, SUCCEEDED, id="it has succeeded"
        ),
        pytest.param({"previous": record(RecordStatus.PROCESSING, None)}, UNKNOWN, id="the record is open: ask"),
        pytest.param({"previous": record(RecordStatus.UNKNOWN, OPEN)}, UNKNOWN, id="the record is unknown: ask"),
    ],
)
async def test_what_is_known_already_comes_before_any_question(
    tmp_path: Path, found: dict[str, Any], want: tuple[str, str, str]
) -> None:
    case = Case(tmp_path, [{"state": "else"}])
    assert summary(await case.recover(**found)) == want
    assert case.asked == (1 if want == UNKNOWN else 0)


async def test_a_recovery_is_handed_back_by_a_worker_that_drains(ledger_url: str, tmp_path: Path) -> None:
    """It has changed nothing: the next worker asks on, instead of a person."""
    async with rigged(ledger_url) as rig:
        order = await rig.send(Case(tmp_path).tool())
        first = rig.build_worker("first", slots=1)
        async with working(first):
            await rig.executor.began.acquire()
            first.request_drain()  # else its slot, free again as soon as it hears of the fence, takes the recovery
            lookup = build_python_tool("lookup_tools:answer_next", "Thread", sideEffect="None")
            await rig.ledger.put_tool(NAMESPACE, "sha256:lookup", lookup.to_wire())
            params = {"answers": [BUSY], "counter": str(tmp_path / "asked")}
            asks = LookupOrder(tool="lookup", tool_digest="sha256:lookup", params=params, poll_ms=20)
            await rig.send_recovery(order, lookup=asks)
            asking = rig.build_worker("second", executor=PythonExecutor([TOOLS]))
            async with working(asking):
                await rig.report(ReportKind.ADOPTED)
            report = await rig.report(ReportKind.HANDED_BACK)
    assert (report.reason, report.recovering) == ("Draining", True)
    assert "Committed" not in [str(kind.kind) for kind in rig.reports]
