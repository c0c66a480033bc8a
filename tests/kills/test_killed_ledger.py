"""The ledger's server killed at named instants and started again, with its data or empty; workers live on or die with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from kills.cases import PRICE, Case, End, Kind, pool_of
from kills.instants import LEDGER, Instant, Reached
from kills.kill_site import Site
from kills.nursery import Hatchery
from kills.table import keep_table

pytestmark = [pytest.mark.slow, pytest.mark.kills]

LEASE = timedelta(seconds=12)
"""Longer than all calls of a site may take to come to their instant: it is the ledger's death that is looked at."""
KINDS = (Kind.ONCE, Kind.LOOKED, Kind.AGAIN)


@dataclass(slots=True)
class Blow:
    """Strikes the server once all calls of a site have come to the instant."""

    site: Site
    emptied: bool
    expected: int
    arrived: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def strike(self) -> None:
        """Wait for the others; the last one to come has it happen."""
        self.arrived += 1
        if self.arrived == self.expected:
            await self.site.restart_server(emptied=self.emptied)
            self.done.set()
        await self.done.wait()


def find_faults(kind: Kind, end: End, reached: Reached, *, lives: bool, emptied: bool) -> str:
    """Return what must not be, whatever the instant was."""
    if kind.is_once and end.effects > 1:
        return "a Once effect happened twice"
    if end.phase == "Succeeded" and not end.effects:
        return "it succeeded without an effect"
    if end.phase not in ("Succeeded", "Quarantined") or (end.phase == "Quarantined" and not kind.is_once):
        return "it may not end so"
    if end.phase == "Quarantined" and end.reason != "OutcomeUnknown":
        return "nobody should have to ask why"
    if reached is Reached.UNCLAIMED and kind is Kind.ONCE and (end.phase, end.effects) == ("Quarantined", 0):
        # Rebuilt before it was claimed. That nobody has claimed it is what the ledger says, and a ledger whose server
        # is another one (a replica that was behind, a copy) may have forgotten a claim: it is asked about.
        return ""
    if lives and not emptied and (end.phase, end.effects, end.micros) != ("Succeeded", 1, PRICE):
        return "nothing was lost and nobody died"
    return ""


async def live_through(
    site: Site, instant: Instant, *, lives: bool, emptied: bool
) -> tuple[list[tuple[Kind, End]], list[str]]:
    """Play one call of each kind through the blow; return how they ended, and what is left."""
    async with site:
        blow = Blow(site, emptied, len(KINDS))
        cases = [Case(site, kind, instant, pool_of(at, instant.name)) for at, kind in enumerate(KINDS)]
        ends = await asyncio.gather(*(case.outlive(blow.strike, blow.done, lives=lives) for case in cases))
        remains = await site.find_remains(within=60)
    return list(zip(KINDS, ends, strict=True)), remains


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lives", [True, False], ids=["workers live", "workers die as well"])
async def test_a_ledger_that_is_killed_has_no_effect_twice_and_nothing_lost(
    lives: bool, tmp_path: Path, hatchery: Hatchery
) -> None:
    played = [(instant, emptied) for instant in LEDGER for emptied in (False, True)]
    sites = [Site(tmp_path / str(number), hatchery, LEASE) for number in range(len(played))]
    ended = await asyncio.gather(
        *(
            live_through(site, instant, lives=lives, emptied=emptied)
            for site, (instant, emptied) in zip(sites, played, strict=True)
        )
    )
    rows, faults = [], []
    for (instant, emptied), (ends, remains) in zip(played, ended, strict=True):
        faults += [f"{instant.name}, emptied: {emptied}: {told}" for told in remains]
        for kind, end in ends:
            fault = find_faults(kind, end, instant.reached, lives=lives, emptied=emptied)
            state = "emptied" if emptied else "kept"
            told = f"{end.phase} ({end.reason}) | {end.effects} | {end.micros}"
            rows.append(f"| {instant.step} | {instant.name} | {state} | {kind} | {told} |")
            if fault:
                faults.append(f"{rows[-1]} {fault}")
    keep_table(f"ledger killed, {'workers live' if lives else 'workers die as well'}", rows)
    assert not faults, "\n".join(faults) + hatchery.read_log()[-3000:]
