"""Mishaps: doing to processes, ledger, cluster and clocks what a history's plan says. Called by ``simulation.one_history``."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from simulation.plans import Mishap, MishapKind

if TYPE_CHECKING:
    from simulation.one_history import SimulatedWorld

_LONGEST_ABSENCE = 8.0
_WORKER_BACK_SECONDS = 2.0
"""The part of a lease that workers leave unused is 3 s: a clock that loses more could not be noticed by anybody."""


async def suffer(world: SimulatedWorld, mishap: Mishap) -> None:
    """Have one thing go wrong at its time, and be well again after its time."""
    await asyncio.sleep(mishap.at)
    world.say("MISHAP", f"{mishap.kind}, {mishap.lasts:g} s")
    match mishap.kind:
        case MishapKind.SCHEDULER_DIES:
            await _let_scheduler_die(world, mishap)
        case MishapKind.SCHEDULER_SLEEPS:
            await _let_scheduler_sleep(world, mishap)
        case MishapKind.LEAD_GOES_AND_COMES:
            world.around.note(mishap.kind)
            world.begin_scheduler()
            await asyncio.sleep(min(mishap.lasts, _LONGEST_ABSENCE))
            world.begin_scheduler()
        case MishapKind.WORKER_DIES | MishapKind.WORKER_SLEEPS | MishapKind.WORKER_DRAINS:
            await _let_worker_fail(world, mishap)
        case MishapKind.WORKER_CLOCK_FORWARD | MishapKind.WORKER_CLOCK_BACK:
            back = mishap.kind is MishapKind.WORKER_CLOCK_BACK
            ahead = -min(mishap.lasts, _WORKER_BACK_SECONDS) if back else mishap.lasts
            world.around.note(mishap.kind)
            for process in world.workers.values():
                # It stays so: a clock that counts up never goes back to what it was.
                process.clock.ahead += ahead
        case MishapKind.CLOCK_FORWARD | MishapKind.CLOCK_BACK:
            jump = timedelta(seconds=mishap.lasts if mishap.kind is MishapKind.CLOCK_FORWARD else -mishap.lasts)
            world.around.note(mishap.kind)
            world.witness.jumped = True
            world.engine_clock.ahead += jump
            await asyncio.sleep(max(2.0, min(mishap.lasts, 20.0)))
            world.engine_clock.ahead -= jump
        case MishapKind.LEDGER_EMPTIED:
            world.around.note(mishap.kind)
            world.witness.forget_ledger()
            world.ledger.lose_everything()
        case MishapKind.LEDGER_RESTARTED:
            # It says so by a closed gate: what stands in it is put beside what the resources prove.
            world.around.note(mishap.kind)
            await world.ledger.close_gate()
        case MishapKind.WATCH_BREAKS:
            world.around.break_watches()
        case _:
            if mishap.kind is MishapKind.CLUSTER_AWAY:
                world.around.break_watches()
            world.around.begin(mishap.kind)
            await asyncio.sleep(mishap.lasts)
            world.around.end(mishap.kind)
    world.say("MISHAP", f"over: {mishap.kind}")


async def _let_scheduler_die(world: SimulatedWorld, mishap: Mishap) -> None:
    line = world.scheduler_line
    if mishap.step:
        line.dies_at, line.after = line.steps + mishap.step, mishap.after
        while not line.dead and line is world.scheduler_line and not world.runs_have_ended():
            await asyncio.sleep(0.5)
        if not line.dead:
            line.dies_at = None
            return
    if not line.dead:
        line.die()
    world.around.note(mishap.kind)
    await asyncio.sleep(mishap.lasts)
    if world.nobody_leads():
        world.begin_scheduler()


async def _let_scheduler_sleep(world: SimulatedWorld, mishap: Mishap) -> None:
    sleeping = world.scheduler_line
    world.around.note(mishap.kind)
    sleeping.fall_asleep()
    await asyncio.sleep(min(mishap.lasts, _LONGEST_ABSENCE))
    if sleeping is world.scheduler_line:
        world.begin_scheduler()
    asyncio.get_running_loop().call_later(mishap.lasts, sleeping.awake.set)


async def _let_worker_fail(world: SimulatedWorld, mishap: Mishap) -> None:
    process = list(world.workers.values())[-1]
    if process.line.dead:
        return
    world.around.note(mishap.kind)
    match mishap.kind:
        case MishapKind.WORKER_DIES:
            world.end_worker(process, min(mishap.lasts, _LONGEST_ABSENCE))
        case MishapKind.WORKER_SLEEPS:
            process.line.fall_asleep()
            asyncio.get_running_loop().call_later(mishap.lasts, process.line.awake.set)
            if mishap.lasts > _LONGEST_ABSENCE:
                world.begin_worker(f"{process.name}, the second")
        case _:
            assert process.worker is not None
            process.worker.request_drain()
            await asyncio.sleep(min(mishap.lasts, _LONGEST_ABSENCE))
            world.begin_worker(f"{process.name}, after a drain")
