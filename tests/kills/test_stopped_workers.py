"""Worker processes stopped with SIGSTOP, succeeded by others and woken: refused at the commit, one effect, one bill."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kills.cases import Case, Kind, pool_of
from kills.instants import STOPPED
from kills.kill_site import Site
from kills.nursery import Hatchery
from kills.table import keep_table

pytestmark = [pytest.mark.slow, pytest.mark.kills]


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.LOOKED])
async def test_a_worker_that_wakes_after_another_took_its_call_over_changes_nothing(
    kind: Kind, tmp_path: Path, hatchery: Hatchery
) -> None:
    async with Site(tmp_path / "site", hatchery) as site:
        cases = [Case(site, kind, instant, pool_of(number, instant.name)) for number, instant in enumerate(STOPPED)]
        rows = await asyncio.gather(*(case.stop_and_wake() for case in cases))
        remains = await site.find_remains()
    keep_table(f"stopped {kind}", rows)
    wrong = [str(row) for row in rows if row.got != row.want]
    assert not wrong, "\n".join(wrong) + hatchery.read_log()[-3000:]
    assert not remains
