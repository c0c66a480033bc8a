"""Worker processes killed with SIGKILL at named instants, for every kind of tool: one effect, one bill, nothing left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kills.cases import Case, Kind, pool_of
from kills.instants import EVERY_INSTANT, RECOVERY
from kills.kill_site import Site
from kills.nursery import Hatchery
from kills.table import keep_table

pytestmark = [pytest.mark.slow, pytest.mark.kills]


@pytest.mark.parametrize("kind", Kind)
async def test_a_call_whose_worker_is_killed_ends_right_wherever_it_was(
    kind: Kind, tmp_path: Path, hatchery: Hatchery
) -> None:
    async with Site(tmp_path / "site", hatchery) as site:
        cases = [
            Case(site, kind, instant, pool_of(number, instant.name)) for number, instant in enumerate(EVERY_INSTANT)
        ]
        rows = await asyncio.gather(*(case.die_and_recover() for case in cases))
        remains = await site.find_remains()
    keep_table(f"killed {kind}", rows)
    wrong = [str(row) for row in rows if row.got != row.want]
    assert not wrong, "\n".join(wrong) + hatchery.read_log()[-3000:]
    assert not remains


@pytest.mark.parametrize("booked", [True, False], ids=["booked", "not booked"])
async def test_a_recovery_whose_worker_is_killed_as_well_is_made_by_the_next(
    booked: bool, tmp_path: Path, hatchery: Hatchery
) -> None:
    async with Site(tmp_path / "site", hatchery) as site:
        cases = [
            Case(site, Kind.LOOKED, instant, pool_of(number, instant.name)) for number, instant in enumerate(RECOVERY)
        ]
        rows = await asyncio.gather(*(case.die_twice(booked=booked) for case in cases))
        remains = await site.find_remains()
    keep_table(f"killed in recovery, {'booked' if booked else 'not booked'}", rows)
    wrong = [str(row) for row in rows if row.got != row.want]
    assert not wrong, "\n".join(wrong) + hatchery.read_log()[-3000:]
    assert not remains
