"""The demo's scheduler killed at every step: the same outcome and one transfer, whenever it was.

Every step, before and after, on virtual time; a good many of them with SIGKILL on a real process whose ledger outlives it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.exact_json import canonical_json
from agentrun.local.yaml_documents import read_documents
from kills.diary import read_diary
from kills.doomed_scheduler import SchedulerPlan
from kills.kill_site import until
from kills.nursery import Hatchery, until_state
from kills.table import keep_table
from support.ledger_server import DURABLE, LedgerServer
from support.shop import ROOT, RunningShop
from support.world import Mortality, World, in_world

pytestmark = pytest.mark.kills

DEMO = ROOT / "examples" / "stock-transfer"
SCRIPT = """
tools:
  check-stock:
  - {when: {warehouse: north}, answers: [{result: {items: {kettle: 14}}}]}
  - {when: {warehouse: south}, answers: [{result: {items: {kettle: 3}}}]}
  compare-stock: [{result: {items: [{item: kettle, quantity: 5}], total: 5}}]
  transfer-order: [{result: {id: 1}}]
"""
REAL_DEATHS = 24


def demo_specs(file: str) -> dict[str, object]:
    """Return name and spec of what stands in one of the demo's files."""
    found = [document.value for document in read_documents((DEMO / file).read_bytes())]
    return {str(one["metadata"]["name"]): one["spec"] for one in found}  # type: ignore[index,call-overload]


TOOLS = canonical_json(demo_specs("tools.yaml"))  # type: ignore[arg-type]
RUN = canonical_json(demo_specs("run.yaml")["stock-transfer"])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Played:
    """What came of the demo."""

    run: str
    phases: dict[str, str]
    effects: dict[str, int]
    steps: int


def play(dies_at: int | None, after: bool) -> Played:
    """Play the demo on virtual time; a scheduler that dies is followed by another."""

    async def test(world: World) -> Played:
        world.start_worker()
        world.start_scheduler(Mortality(dies_at, after))
        world.apply_run(RUN)
        agreed = False
        while not world.runs_have_ended():
            if world.mortality.dead:
                await world.wait_for_death()
                world.start_scheduler()
            await asyncio.sleep(0.05)
            try:
                agreed = agreed or bool(world.open_question("transfer"))
                world.decide("transfer", Decision(verdict=Verdict.APPROVE, decided_by="Ada"))
            except (StopIteration, LookupError):
                continue
        assert agreed
        nodes = {path: str(status.phase) for path, status in world.nodes().items()}
        return Played(str(world.status().phase), nodes, dict(world.counts.effects), world.mortality.steps)

    return in_world(test, TOOLS, SCRIPT)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
def test_a_scheduler_that_dies_at_any_step_of_the_demo_changes_nothing(after: bool) -> None:
    undisturbed = play(None, after)
    assert undisturbed.run == "Succeeded"
    assert undisturbed.effects == {"check-stock": 2, "compare-stock": 1, "transfer-order": 1}
    for step in range(1, undisturbed.steps + 1):
        played = play(step, after)
        assert replace(played, steps=0) == replace(undisturbed, steps=0), f"at step {step} of {undisturbed.steps}"


class Demo:
    """The demo in a folder of its own, with a shop of its own, on a ledger that others use as well."""

    def __init__(self, folder: Path, server: LedgerServer, hatchery: Hatchery, shop: RunningShop) -> None:
        self._hatchery = hatchery
        self._shop = shop
        self.plan = SchedulerPlan(str(folder), server.url, folder.name)
        (folder / "tools.yaml").write_text(
            (DEMO / "tools.yaml").read_text().replace("127.0.0.1:8480", f"127.0.0.1:{shop.port}")
        )
        for name in ("run.yaml", "stock_tools.py"):
            shutil.copy(DEMO / name, folder / name)

    async def live(self, step: int = 0, *, after: bool = False) -> bool:
        """Start it and wait for its end; True: it brought the run to its end."""
        pid = await self._hatchery.hatch(replace(self.plan, step=step, after=after).to_json())
        await until_state(pid, "Z", 100)
        return self.plan.outcome.exists()

    def tell(self) -> tuple[object, int, int]:
        """Return how it ended, how many transfers the shop has, and how many notes."""
        return json.loads(self.plan.outcome.read_text()), self._shop.count("transfers"), self._shop.count("notes")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_real_scheduler_that_is_killed_and_started_again_makes_one_transfer(tmp_path: Path) -> None:
    width = asyncio.Semaphore(6)

    killed: list[str] = []

    async def play_real(name: str, step: int, *, after: bool) -> tuple[object, int, int]:
        folder = tmp_path / name
        folder.mkdir()
        with RunningShop(folder) as shop:
            demo = Demo(folder, server, hatchery, shop)
            async with width:
                if not await demo.live(step, after=after):
                    killed.append(name)
                    await demo.live()
            await until(demo.plan.outcome.exists, 1, lambda: f"{name} did not end: {hatchery.read_log()[-2000:]}")
            return demo.tell()

    with LedgerServer(DURABLE) as server, Hatchery(tmp_path, "kills.doomed_scheduler") as hatchery:
        undisturbed = await play_real("undisturbed", 0, after=False)
        assert undisturbed[1:] == (1, 0)
        lines = read_diary(tmp_path / "undisturbed" / "diary")
        names = {int(number): name for number, _, name in (line.partition(": ") for line in lines) if name}
        # Those before the end: the last ones are of a scheduler that only waits to be stopped.
        steps = len(names) - 2
        chosen = [1 + round(at * (steps - 1) / (REAL_DEATHS - 1)) for at in range(REAL_DEATHS)]
        ends = await asyncio.gather(
            *(play_real(f"at-{at}-{step}", step, after=bool(at % 2)) for at, step in enumerate(chosen))
        )
    told = [
        f"| {'after' if at % 2 else 'before'} step {step} of {len(names)}: {names.get(step, '')} | {end[1]} |"
        for at, (step, end) in enumerate(zip(chosen, ends, strict=True))
    ]
    keep_table("scheduler killed", told)
    wrong = [f"{line} {end}" for line, end in zip(told, ends, strict=True) if end != undisturbed]
    assert not wrong, "\n".join(wrong)
    # How often it looks for reports is a matter of time: a run may be over a step or two earlier than another.
    assert len(killed) >= REAL_DEATHS - 2
