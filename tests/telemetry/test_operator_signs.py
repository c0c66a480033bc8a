"""Liveness and readiness of the operator: what an outage may do to them, and what a dead part must do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from agentrun.controller.operator_settings import OperatorSettings
from agentrun.controller.operator_signs import OperatorSigns
from agentrun.engine.observer import EngineSurvey, LeadEnded, LeadTaken
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.telemetry.listen_address import ListenAddress


class AwayLedger:
    """Answers nothing, until it is back."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def find_slots_in_use(self, namespace: str, name: str) -> int:
        """Answer nothing."""
        self.asked.set()
        raise LedgerUnavailableError("away")


class Site:
    """A running operator's signs, and who asks for them."""

    def __init__(self, signs: OperatorSigns, ledger: AwayLedger, url: str) -> None:
        self.signs, self.ledger, self._url = signs, ledger, url

    async def get(self, path: str) -> tuple[int, str]:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"{self._url}{path}")
        return answer.status_code, answer.text.strip()


@asynccontextmanager
async def shown() -> AsyncIterator[Site]:
    signs, ledger = OperatorSigns(ListenAddress("127.0.0.1", 0)), AwayLedger()
    async with signs.shown(ledger) as address:
        yield Site(signs, ledger, f"http://{address}")


async def test_an_operator_is_ready_as_standby_and_as_leader_alike() -> None:
    async with shown() as site:
        assert await site.get("/readyz") == (503, "starting")
        site.signs.note_candidate()
        assert await site.get("/readyz") == (200, "standby")
        site.signs.metrics.note(LeadTaken(3))
        assert await site.get("/readyz") == (200, "leader")
        site.signs.metrics.note(LeadEnded())
        assert await site.get("/readyz") == (200, "standby")
        site.signs.note_stopping()
        assert await site.get("/readyz") == (503, "stopping")
        assert await site.get("/healthz") == (200, "ok")


async def test_while_the_ledger_is_away_the_operator_stays_alive_and_ready_and_says_so_in_a_metric() -> None:
    async with shown() as site:
        site.signs.note_candidate()
        await site.ledger.asked.wait()
        await asyncio.sleep(0)
        assert await site.get("/healthz") == (200, "ok")
        assert await site.get("/readyz") == (200, "standby")
        assert "agentrun_ledger_unavailable_total 1.0" in (await site.get("/metrics"))[1]


async def test_a_part_that_ended_unasked_is_no_life_and_one_that_was_asked_is() -> None:
    async with shown() as site:
        engine = asyncio.create_task(asyncio.sleep(0), name="scheduler")
        site.signs.follow(EngineSurvey, engine)
        await engine
        assert await site.get("/healthz") == (503, "ended although nobody asked for it: scheduler")
        site.signs.note_stopping()
        assert await site.get("/healthz") == (200, "ok")


async def test_a_survey_that_fails_costs_no_other_number() -> None:
    def fail() -> EngineSurvey:
        raise RuntimeError("a bug")

    async with shown() as site:
        site.signs.follow(fail)
        assert "agentrun_leader 0.0" in (await site.get("/metrics"))[1]


async def test_without_an_address_nothing_is_asked_and_nothing_listens() -> None:
    ledger = AwayLedger()
    async with OperatorSigns(None).shown(ledger) as address:
        await asyncio.sleep(0.01)
    assert address is None
    assert not ledger.asked.is_set()


def test_the_address_is_off_unless_it_is_given(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    assert OperatorSettings().listen is None
    monkeypatch.setenv("AGENTRUN_OPERATOR_LISTEN", "0.0.0.0:8080")
    assert OperatorSettings().listen == ListenAddress("0.0.0.0", 8080)
    monkeypatch.setenv("AGENTRUN_OPERATOR_LISTEN", "")
    assert OperatorSettings().listen is None
