"""Reports are acknowledged many at a time, and none is forgotten when the ledger is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from agentrun.engine.acknowledger import Acknowledger
from agentrun.engine.clock import SystemClock
from agentrun.engine.ledger_contact import LedgerContact
from agentrun.engine.observer import EngineFact, LedgerUnavailable, ReportsAcknowledged
from agentrun.ledger.port import LedgerUnavailableError, SchedulerLedger


class _Ledger:
    """Takes acknowledgements down; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.steps: list[tuple[str, list[str]]] = []

    async def acknowledge_reports(self, namespace: str, ids: Sequence[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise LedgerUnavailableError("away")
        self.steps.append((namespace, list(ids)))


class _Facts:
    def __init__(self) -> None:
        self.seen: list[EngineFact] = []

    def note(self, happened: EngineFact) -> None:
        self.seen.append(happened)


def _build(ledger: _Ledger) -> tuple[Acknowledger, _Facts]:
    facts = _Facts()
    return Acknowledger(cast(SchedulerLedger, ledger), facts, LedgerContact(SystemClock(), facts)), facts


async def _until_done(acknowledger: Acknowledger, facts: _Facts, count: int) -> None:
    loop = asyncio.create_task(acknowledger.run())
    try:
        async with asyncio.timeout(20):
            while sum(fact.count for fact in facts.seen if isinstance(fact, ReportsAcknowledged)) < count:
                await asyncio.sleep(0.001)
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def test_what_several_turns_have_stored_goes_in_one_step_for_each_namespace() -> None:
    ledger = _Ledger()
    acknowledger, facts = _build(ledger)
    acknowledger.note("a", ["1-0"])
    acknowledger.note("b", ["2-0"])
    acknowledger.note("a", ["3-0", "4-0"])
    acknowledger.note("a", [])

    await _until_done(acknowledger, facts, 4)

    assert ledger.steps == [("a", ["1-0", "3-0", "4-0"]), ("b", ["2-0"])]


async def test_a_ledger_that_is_away_is_told_again_and_nothing_is_forgotten() -> None:
    ledger = _Ledger(failures=1)
    acknowledger, facts = _build(ledger)
    acknowledger.note("a", ["1-0", "2-0"])

    await _until_done(acknowledger, facts, 2)

    assert ledger.steps == [("a", ["1-0", "2-0"])]
    assert LedgerUnavailable() in facts.seen


async def test_the_last_ones_are_acknowledged_without_the_loop() -> None:
    ledger = _Ledger(failures=1)
    acknowledger, _ = _build(ledger)
    acknowledger.note("a", ["1-0"])

    with pytest.raises(LedgerUnavailableError):
        await acknowledger.flush()
    await acknowledger.flush()

    assert ledger.steps == [("a", ["1-0"])]
