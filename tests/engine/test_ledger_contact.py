"""A ledger that goes away is told of once, then at growing distances, and so is its return; nobody asks it too often."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from agentrun.engine.ledger_contact import LedgerContact, Step, find_remedy
from agentrun.engine.observer import Unobserved
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.local.virtual_time import VirtualClock, VirtualTimeLoop, run_on_virtual_time
from support.outage import Outage
from support.world import World, in_world

AWAY = LedgerUnavailableError("ConnectionError: Error 111 connecting to 127.0.0.1:6379")


def on_virtual_time(test: Any) -> list[Any]:
    """Run a test of a contact and return what was logged meanwhile."""
    loop = VirtualTimeLoop()

    def begin() -> Coroutine[Any, Any, None]:
        found: Coroutine[Any, Any, None] = test(LedgerContact(VirtualClock(loop), Unobserved()))
        return found

    with capture_logs() as lines:
        run_on_virtual_time(begin(), loop)
    return list(lines)


def test_an_outage_is_told_at_growing_distances_and_so_is_its_end() -> None:
    async def test(contact: LedgerContact) -> None:
        for _ in range(600):
            contact.failed(Step.LOOK, AWAY)
            contact.failed(Step.REPORTS, AWAY)
            await asyncio.sleep(1)
        contact.answered(Step.LOOK)
        assert contact.is_away
        contact.answered(Step.REPORTS)
        contact.answered(Step.REPORTS)

    lines = on_virtual_time(test)
    away = [line["away_seconds"] for line in lines if line["event"] == "ledger_unavailable"]
    assert away == [0, 10, 30, 70, 150, 310]
    assert [line["away_seconds"] for line in lines if line["event"] == "ledger_back"] == [600.0]
    assert "nothing is sent" in lines[0]["stands_still"]
    assert "calls under way go on" in lines[0]["stands_still"]
    assert "runs and can be reached" in lines[0]["remedy"]


def test_one_that_comes_and_goes_does_not_fill_the_log() -> None:
    async def test(contact: LedgerContact) -> None:
        for _ in range(300):
            contact.failed(Step.LOOK, AWAY)
            await asyncio.sleep(1)
            contact.answered(Step.LOOK)

    assert len(on_virtual_time(test)) == 10


def test_another_cause_that_asks_for_another_remedy_is_told_of_at_once() -> None:
    async def test(contact: LedgerContact) -> None:
        for cause in ("ConnectionError: closed", "BusyLoadingError: loading", "ReadOnlyError: read only replica") * 20:
            contact.failed(Step.LEAD, LedgerUnavailableError(cause))

    remedies = [line["remedy"] for line in on_virtual_time(test)]
    assert len(remedies) == len(set(remedies)) == 3


def test_a_new_outage_is_told_of_at_once() -> None:
    async def test(contact: LedgerContact) -> None:
        for _ in range(2):
            contact.failed(Step.LOOK, AWAY)
            contact.answered(Step.LOOK)
            await asyncio.sleep(120)

    assert [line["event"] for line in on_virtual_time(test)] == ["ledger_unavailable", "ledger_back"] * 2


def test_pauses_grow_and_end_when_the_ledger_answers() -> None:
    pauses: list[float] = []

    async def test(contact: LedgerContact) -> None:
        now = asyncio.get_running_loop().time
        for _ in range(6):
            contact.failed(Step.REPORTS, AWAY)
            began = now()
            await contact.pause(Step.REPORTS)
            pauses.append(round(now() - began, 1))
        contact.failed(Step.REPORTS, AWAY)
        waiting = asyncio.create_task(contact.pause(Step.REPORTS))
        await asyncio.sleep(1)
        contact.answered(Step.LOOK)
        began = now()
        await waiting
        pauses.append(now() - began)

    on_virtual_time(test)
    assert pauses[:6] == [0.5, 1, 2, 4, 5, 5]
    assert pauses[6] < 0.1


@pytest.mark.parametrize(
    "cause, want",
    [
        pytest.param("ReadOnlyError: You can't write against a read only replica.", "name the primary", id="replica"),
        pytest.param("OutOfMemoryError: command not allowed when used memory > 'maxmemory'.", "maxmemory", id="full"),
        pytest.param("ResponseError: OOM command not allowed", "maxmemory", id="full, in a script"),
        pytest.param("AuthenticationError: WRONGPASS invalid username-password pair", "password", id="password"),
        pytest.param("NoPermissionError: this user has no permissions to run 'evalsha'", "ACL", id="rights"),
        pytest.param("BusyLoadingError: Redis is loading the dataset in memory", "wait", id="loading"),
        pytest.param(
            "ConnectionError: Error 111 connecting to room:6379", "runs and can be reached", id="nobody there"
        ),
        pytest.param("TimeoutError: ", "runs and can be reached", id="silence"),
    ],
)
def test_the_cause_decides_the_remedy(cause: str, want: str) -> None:
    assert want in find_remedy(cause)


def test_a_scheduler_whose_ledger_is_away_says_so_in_one_place_and_stops_soon() -> None:
    async def test(world: World) -> None:
        world.ledger = Outage(world.ledger)  # type: ignore[assignment]
        world.start_worker()
        world.start_scheduler()
        for number in range(20):
            world.apply_run("nodes: [{name: a, tool: act}, {name: b, tool: act, dependsOn: [a]}]", f"r{number}")
        await world.until(lambda: world.nodes("r19")["a"].phase == "Running", 60)
        world.ledger.away = True  # type: ignore[attr-defined]
        await asyncio.sleep(300)
        assert await world.stop_scheduler() < 2
        world.ledger.away = False  # type: ignore[attr-defined]

    with capture_logs() as lines:
        in_world(test, "act: {sideEffect: None, timeout: 20s}", "tools: {act: [{result: 1, delay: 5s}]}", slots=30)
    warned = [line for line in lines if line["log_level"] == "warning" and "attempt" not in line["event"]]
    assert 3 <= len([line for line in warned if line["event"] == "ledger_unavailable" and "stands_still" in line]) <= 6
    assert not [line for line in warned if line["event"] == "turn_postponed"]


def test_a_scheduler_that_never_reached_its_ledger_stops_at_once() -> None:
    async def test(world: World) -> None:
        world.ledger = Outage(world.ledger)  # type: ignore[assignment]
        world.ledger.away = True  # type: ignore[attr-defined]
        world.start_scheduler()
        await asyncio.sleep(30)
        assert await world.stop_scheduler() < 1

    in_world(test, "act: {sideEffect: None}")


def test_who_is_cancelled_while_the_ledger_answers_again_does_not_go_on() -> None:
    async def test(contact: LedgerContact) -> None:
        for _ in range(10):
            contact.failed(Step.REPORTS, AWAY)
        waiting = asyncio.create_task(contact.pause(Step.REPORTS))
        await asyncio.sleep(1)
        contact.answered(Step.REPORTS)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    on_virtual_time(test)
