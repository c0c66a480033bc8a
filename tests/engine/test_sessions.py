"""Sessions: one run at a time, by Lease and by ledger, whatever of the two is lost."""

from __future__ import annotations

import asyncio

from agentrun.contract.failures import Reason
from agentrun.contract.run import RunPhase
from support.lease_book import LeaseBook
from support.world import World, in_world

TOOLS = "act: {sideEffect: Once, timeout: 2h}"
SLOW = "tools: {act: [{result: 1, delay: 20m}, {result: 1, delay: 1s}]}"
LONG = """
session: s
timeout: 5h
nodes:
- {name: a, tool: act, timeout: 2h}
- {name: b, tool: act, params: {n: 2}, dependsOn: [a]}
"""
SHORT = "session: s\nnodes: [{name: c, tool: act, params: {n: 3}}]"


async def begin(world: World) -> LeaseBook:
    book = LeaseBook()
    world.sessions = book
    world.start_worker()
    world.start_scheduler()
    world.apply_run(LONG)
    await world.until(lambda: world.nodes()["a"].phase == "Running", 60)
    return book


async def refused(world: World) -> None:
    world.apply_run(SHORT, "second")
    await world.until(lambda: world.status("second").phase is RunPhase.REJECTED, 60)
    assert world.status("second").reason == Reason.SESSION_BUSY


def test_a_second_run_is_refused_at_once_and_told_who_holds_the_session() -> None:
    async def test(world: World) -> None:
        book = await begin(world)
        await refused(world)
        uid = world.cluster.get_run("default", "run").metadata.uid
        assert world.status("second").message == f"session s is held by run run ({uid})"
        assert (await world.ended(within=7200)).phase is RunPhase.SUCCEEDED
        assert book.holders == {}

    in_world(test, TOOLS, SLOW)


def test_a_ledger_that_forgot_the_session_is_not_asked_twice() -> None:
    async def test(world: World) -> None:
        await begin(world)
        world.ledger.space("default").sessions.clear()
        await refused(world)

    in_world(test, TOOLS, SLOW)


def test_a_lease_that_was_deleted_frees_nothing_and_comes_back() -> None:
    async def test(world: World) -> None:
        book = await begin(world)
        book.holders.clear()
        await refused(world)
        assert book.holders == {}
        await asyncio.sleep(600)
        assert book.holders["s"].name == "run"

    in_world(test, TOOLS, SLOW)


def test_run_and_lease_deleted_in_mid_call_keep_the_session_busy_until_the_attempt_has_ended() -> None:
    async def test(world: World) -> None:
        book = await begin(world)
        world.cluster.delete_run("default", "run")
        book.holders.clear()
        await refused(world)
        assert "run" in world.status("second").message
        await world.until(lambda: world.ledger.space("default").claims == {}, 7200)
        world.apply_run(SHORT, "third")
        assert (await world.ended("third")).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, SLOW)


def test_the_lease_of_a_run_that_is_gone_is_taken_over() -> None:
    async def test(world: World) -> None:
        book = await begin(world)
        await world.kill_scheduler()
        world.cluster.delete_run("default", "run")
        world.start_scheduler()
        await asyncio.sleep(3600)
        world.apply_run(SHORT, "second")
        assert (await world.ended("second")).phase is RunPhase.SUCCEEDED
        assert book.holders == {}

    in_world(test, TOOLS, SLOW)


def test_a_scheduler_that_starts_again_adopts_the_leases_of_its_runs() -> None:
    async def test(world: World) -> None:
        book = await begin(world)
        await world.kill_scheduler()
        await asyncio.sleep(900)
        world.start_scheduler()
        before = book.renewals_total
        await world.until(lambda: book.renewals_total > before, 60)
        await refused(world)
        assert (await world.ended(within=7200)).phase is RunPhase.SUCCEEDED

    in_world(test, TOOLS, SLOW)


def test_a_lease_is_renewed_at_half_its_time_and_not_while_the_run_is_suspended() -> None:
    async def test(world: World) -> None:
        book = await begin(world)
        await asyncio.sleep(900)
        assert 3 <= book.renewals_total <= 5
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update={"suspend": True}))
        await world.until(lambda: world.status().phase is RunPhase.SUSPENDED, 3600)
        await asyncio.sleep(60)
        before = book.renewals_total
        await asyncio.sleep(3600)
        assert book.renewals_total == before
        world.cluster.patch_run_spec("default", "run", lambda spec: spec.model_copy(update={"suspend": False}))
        assert (await world.ended(within=3600)).phase is RunPhase.SUCCEEDED
        assert book.renewals_total > before

    in_world(test, TOOLS, SLOW)


def test_nothing_is_sent_under_a_lease_that_has_run_out() -> None:
    async def test(world: World) -> None:
        book = await begin(world)
        book.away = True
        await world.until(lambda: world.nodes()["a"].phase == "Succeeded", 7200)
        assert world.counts.effects["act"] == 1
        await asyncio.sleep(600)
        assert world.counts.effects["act"] == 1
        assert world.nodes()["b"].phase in ("Pending", "Ready")
        book.away = False
        assert (await world.ended(within=600)).phase is RunPhase.SUCCEEDED
        assert world.counts.effects["act"] == 2

    in_world(test, TOOLS, SLOW)
