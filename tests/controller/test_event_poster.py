"""What is worth an Event, and that Events never pile up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from agentrun.contract.node import InboxKind
from agentrun.contract.run import AgentRunStatus, RunPhase
from agentrun.controller.api_client import ApiClient
from agentrun.controller.event_poster import EventPoster, find_notice
from agentrun.engine.cluster_port import ClusterUnavailableError
from agentrun.engine.observer import EngineFact, LeadEnded, QuestionAsked, RunPhaseStored
from support.manifest_texts import build_run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(phase: RunPhase, reason: str = "Why", message: str = "") -> RunPhaseStored:
    status = AgentRunStatus.model_validate({"phase": phase, "reason": reason, "message": message})
    return RunPhaseStored(build_run("nodes: [{name: a, tool: act}]").model_copy(update={"status": status}))


@pytest.mark.parametrize(
    "happened, want",
    [
        pytest.param(stored(RunPhase.RUNNING, "Admitted"), ("Normal", "Admitted", "Running"), id="begins"),
        pytest.param(
            stored(RunPhase.FAILED, "NodeFailed", "node a is dead"),
            ("Warning", "NodeFailed", "Failed: node a is dead"),
            id="fails",
        ),
        pytest.param(
            stored(RunPhase.REJECTED, "SessionBusy", "held"),
            ("Warning", "SessionBusy", "Rejected: held"),
            id="is rejected",
        ),
        pytest.param(stored(RunPhase.CANCELLED, "Cancelled"), ("Normal", "Cancelled", "Cancelled"), id="is cancelled"),
        pytest.param(
            QuestionAsked(build_run("nodes: [{name: a, tool: act}]"), "a", InboxKind.CALL, "q", ""),
            ("Normal", "WaitingForHuman", "node a waits for an answer in AgentApproval q"),
            id="asks",
        ),
        pytest.param(
            QuestionAsked(build_run("nodes: [{name: a, tool: act}]"), "a", InboxKind.QUARANTINE, "q", "unknown"),
            ("Warning", "WaitingForHuman", "node a waits for an answer in AgentApproval q: unknown"),
            id="asks about a quarantined node",
        ),
        pytest.param(LeadEnded(), None, id="anything else"),
    ],
)
def test_what_matters_to_people_becomes_an_event(happened: EngineFact, want: tuple[str, str, str] | None) -> None:
    notice = find_notice(happened)
    assert (notice and (notice.type, notice.reason, notice.message)) == want


class Requests:
    """Takes requests down; refuses the first ``refusals``."""

    def __init__(self, refusals: int = 0) -> None:
        self.taken: list[tuple[str, Any]] = []
        self._refusals = refusals

    async def request(self, verb: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        if self._refusals:
            self._refusals -= 1
            raise ClusterUnavailableError("away")
        self.taken.append((verb, body))
        return {}


class FrozenClock:
    def now(self) -> datetime:
        return NOW

    def now_ms(self) -> int:
        return round(NOW.timestamp() * 1000)


async def post(requests: Requests, *facts: EngineFact) -> None:
    poster = EventPoster(cast(ApiClient, requests), FrozenClock(), "operator-0")
    for fact in facts:
        poster.note(fact)
    task = asyncio.create_task(poster.run())
    for _ in range(20 * len(facts) + 20):
        await asyncio.sleep(0)
    task.cancel()


async def test_an_equal_event_counts_up_instead_of_being_posted_again() -> None:
    requests = Requests()
    await post(requests, stored(RunPhase.RUNNING), stored(RunPhase.RUNNING), stored(RunPhase.FAILED))
    assert [verb for verb, _ in requests.taken] == ["POST", "PATCH", "POST"]
    assert requests.taken[1][1]["count"] == 2


async def test_what_cannot_be_posted_is_dropped_and_the_next_one_is_posted() -> None:
    requests = Requests(refusals=1)
    await post(requests, stored(RunPhase.RUNNING), stored(RunPhase.FAILED))
    assert [body["message"] for _, body in requests.taken] == ["Failed"]


async def test_of_too_many_the_oldest_are_dropped() -> None:
    requests = Requests()
    await post(requests, *(stored(RunPhase.FAILED, message=str(number)) for number in range(1500)))
    assert len(requests.taken) == 1000
    assert requests.taken[-1][1]["message"] == "Failed: 1499"
