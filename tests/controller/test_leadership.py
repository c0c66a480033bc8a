"""What a candidate knows of the lead: its Lease tells the epoch first, and who has lost it hears of that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.leadership import Leadership, LeadershipLostError, LeaseTiming
from agentrun.engine.clock import SystemClock
from agentrun.engine.cluster_port import ClusterUnavailableError
from agentrun.engine.scheduler import Scheduler
from agentrun.engine.settings import SchedulerSettings
from agentrun.local.virtual_time import VirtualTimeLoop, run_on_virtual_time
from agentrun.schemas.validator import SchemaValidator
from support.lease_server import LeaseServer
from support.world import World

TIMING = LeaseTiming(timedelta(seconds=15), timedelta(seconds=10), timedelta(seconds=2))


def candidate(server: Any, name: str) -> Leadership:
    return Leadership(server, "shop", "agentrun-operator", name, SystemClock(), TIMING)


async def leader(server: Any, name: str, epoch: int) -> Leadership:
    leads = candidate(server, name)
    await leads.acquire()
    await leads.record_epoch(epoch)
    return leads


async def test_the_lease_tells_of_an_epoch_as_soon_as_it_is_recorded() -> None:
    server = LeaseServer()
    await leader(server, "first", 7)
    assert (server.holder, server.epoch) == ("first", 7)
    server.run_out()
    second = candidate(server, "second")
    await second.acquire()
    assert second.epoch == 7


@pytest.mark.parametrize(
    "asks", [lambda one: one.confirm(), lambda one: one.record_epoch(9)], ids=["confirm", "record"]
)
async def test_who_stood_still_while_another_took_the_lead_may_not_lead(
    asks: Callable[[Leadership], Awaitable[None]],
) -> None:
    server = LeaseServer()
    first = await leader(server, "first", 1)
    server.run_out()
    await leader(server, "second", 2)
    with pytest.raises(LeadershipLostError, match="second holds the Lease"):
        await asks(first)
    assert (server.holder, server.epoch) == ("second", 2)


async def test_a_hand_that_changes_the_lease_takes_no_lead_away() -> None:
    server = LeaseServer()
    first = await leader(server, "first", 1)
    assert server.lease is not None
    await server.request("PUT", "", {**server.lease, "note": "looked at"})
    await first.record_epoch(2)
    assert (server.holder, server.epoch) == ("first", 2)


async def test_a_lease_that_is_created_by_another_after_its_deletion_is_asked_about_again() -> None:
    server = LeaseServer()
    first = await leader(server, "first", 1)
    server.lease = None
    request = server.request

    async def create_first(verb: str, path: str, body: JsonObject | None = None) -> JsonObject:
        if verb == "POST" and server.lease is None:
            await leader(server, "second", 2)
        return await request(verb, path, body)

    class Raced:
        request = staticmethod(create_first)

    first._client = Raced()
    with pytest.raises(ClusterUnavailableError):
        await first.confirm()
    with pytest.raises(LeadershipLostError):
        await first.confirm()


async def test_renewals_side_by_side_are_made_one_after_the_other() -> None:
    server = LeaseServer()
    first = await leader(server, "first", 1)
    request, conflicts = server.request, 0

    async def request_slowly(verb: str, path: str, body: JsonObject | None = None) -> JsonObject:
        nonlocal conflicts
        conflicts += verb == "GET"
        await asyncio.sleep(0)
        return await request(verb, path, body)

    class Slow:
        request = staticmethod(request_slowly)

    first._client = Slow()
    await asyncio.gather(first.record_epoch(5), first.confirm(), first.record_epoch(6))
    assert (server.epoch, conflicts) == (6, 0)


def test_nothing_is_done_under_an_epoch_that_the_lease_does_not_tell_of_yet() -> None:
    """A ledger that lost its data stays closed, and is opened under an epoch above the one that the Lease knows."""
    loop = VirtualTimeLoop()

    async def test() -> None:
        world = World(loop, "act: {}", "tools: {act: [{result: 1}]}")
        server = LeaseServer()
        leads = await leader(server, "first", 41)
        world.ledger.lose_everything()
        recorded: list[tuple[int, bool]] = []
        answers = iter([ClusterUnavailableError("away"), None])

        async def record(epoch: int) -> None:
            recorded.append((epoch, (await world.ledger.look()).is_open))
            failure = next(answers)
            if failure is not None:
                raise failure
            await leads.record_epoch(epoch)

        scheduler = Scheduler(
            cluster=world.cluster,
            ledger=world.ledger,
            clock=world.clock,
            entropy=world.entropy,
            validator=SchemaValidator(),
            settings=SchedulerSettings(),
            seen_epoch=leads.epoch,
            may_lead=leads.confirm,
            record_lead=record,
        )
        engine = asyncio.create_task(scheduler.run())
        world.start_worker()
        world.apply_run("nodes: [{name: a, tool: act}]")
        assert (await world.ended()).phase == "Succeeded"
        assert recorded == [(42, False), (43, False)]
        assert (server.epoch, (await world.ledger.look()).epoch) == (43, 43)
        server.run_out()
        await leader(server, "second", 44)
        world.ledger.lose_everything()
        with pytest.raises(LeadershipLostError):
            await engine
        assert (await world.ledger.look()).epoch == 0, "who has lost the lead leaves a lost ledger alone"
        await world.stop()

    run_on_virtual_time(test(), loop)


def test_who_loses_the_lead_while_it_rebuilds_a_lost_ledger_takes_no_epoch_from_its_successor() -> None:
    loop = VirtualTimeLoop()

    async def test() -> None:
        world = World(loop, "act: {}", "tools: {act: [{result: 1}]}")
        server = LeaseServer()
        leads = await leader(server, "first", 1)
        list_tools = world.cluster.list_tools

        async def lose_the_lead() -> Any:
            server.run_out()
            await leader(server, "second", 2)
            return await list_tools()

        world.cluster.list_tools = lose_the_lead  # type: ignore[method-assign]
        world.ledger.lose_everything()
        scheduler = Scheduler(
            cluster=world.cluster,
            ledger=world.ledger,
            clock=world.clock,
            entropy=world.entropy,
            validator=SchemaValidator(),
            seen_epoch=leads.epoch,
            may_lead=leads.confirm,
            record_lead=leads.record_epoch,
        )
        with pytest.raises(LeadershipLostError):
            await scheduler.run()
        assert (await world.ledger.look()).epoch == 0
        await world.stop()

    run_on_virtual_time(test(), loop)
