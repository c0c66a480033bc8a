"""Drawing a history from its seed: which runs there are, what people do to them, and what goes wrong when.

Pure: the same seed gives the same plan. Every kind of mishap has a stream of chance of its own, so that a new kind
leaves what a seed means otherwise as it was. Histories are short and dense, so that many of them can be lived.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from agentrun.contract.exact_json import JsonObject
from simulation.shelf import HOUSES, HouseRules
from simulation.trees import draw_spec


class MishapKind(StrEnum):
    """What goes wrong."""

    SCHEDULER_DIES = "the scheduler dies"
    SCHEDULER_SLEEPS = "the scheduler stands still, another takes the lead, the first wakes up"
    LEAD_GOES_AND_COMES = "another takes the lead, and the first takes it again"
    WORKER_DIES = "the worker dies"
    WORKER_SLEEPS = "the worker stands still and wakes up"
    WORKER_DRAINS = "the worker is drained, and another is there"
    LEDGER_AWAY = "the ledger is away"
    CLUSTER_AWAY = "the API server is away"
    LEDGER_EMPTIED = "the ledger loses everything"
    LEDGER_RESTARTED = "the ledger's server is another one, which has kept everything"
    BAD_WEATHER = "steps fail, carried out or not"
    SLOW_ANSWERS = "answers come late"
    CONFLICTS = "others change the objects that are written"
    QUOTA = "the quota admits no new objects"
    EVENTS_LATE = "watch events come late, and those of different objects in another order"
    EVENTS_AGAIN = "watch events come again, after newer ones"
    WATCH_BREAKS = "the watch breaks and is begun again"
    REPORTS_AGAIN = "reports are read again"
    CLOCK_FORWARD = "the scheduler's clock is ahead for a while"
    CLOCK_BACK = "the scheduler's clock is behind for a while"
    WORKER_CLOCK_FORWARD = "the worker's clock jumps forward"
    WORKER_CLOCK_BACK = "the worker's clock jumps back"


_LIKELY = {MishapKind.SCHEDULER_DIES: 0.25, MishapKind.WORKER_DIES: 0.12, MishapKind.BAD_WEATHER: 0.12}
_LIKELY_ELSE = 0.07


@dataclass(frozen=True, slots=True)
class Mishap:
    """One thing that goes wrong."""

    kind: MishapKind
    at: float
    """Virtual seconds."""
    lasts: float
    """Virtual seconds; of a death, until another process is there; of a clock, how far it jumps."""
    step: int = 0
    """Of the scheduler's death: the step outside at which it dies, counted from its start; 0: at the time."""
    after: bool = False
    """Whether that step is carried out."""


class DeedKind(StrEnum):
    """What a person does to a run."""

    CANCEL = "cancel"
    SUSPEND = "suspend, and let it go on 15 s later"
    RAISE_BUDGET = "raise the budget"
    DELETE = "delete"
    DELETE_AND_APPLY = "delete, and apply again"
    APPLY_AFTER_END = "delete after the end, and apply again"
    RERUN = "delete after the end, and apply again with a rerunToken"
    RETRY = "continue it as another run with retryOf, after its end"


_DEEDS = (
    *(DeedKind.CANCEL, DeedKind.CANCEL, DeedKind.SUSPEND, DeedKind.SUSPEND, DeedKind.RAISE_BUDGET, DeedKind.DELETE),
    *(DeedKind.DELETE_AND_APPLY, DeedKind.APPLY_AFTER_END, DeedKind.RERUN, DeedKind.RETRY, DeedKind.RETRY),
)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run, when it is applied, and what a person does to it."""

    name: str
    spec: JsonObject
    at: float
    deed: DeedKind | None = None
    deed_after: float = 0.0
    """Seconds after it was applied, or after its end."""


@dataclass(frozen=True, slots=True)
class History:
    """All that a seed decides beforehand."""

    seed: int
    runs: tuple[PlannedRun, ...]
    mishaps: tuple[Mishap, ...] = ()
    house: HouseRules = HOUSES[0]


def draw_history(seed: int) -> History:
    """Return the history of a seed."""
    chance = random.Random(f"{seed} runs")
    runs = tuple(_draw_run(chance, number) for number in range(chance.choice((1, 1, 1, 2, 2, 3))))
    mishaps = [mishap for kind in MishapKind for mishap in _draw_mishaps(seed, kind)]
    return History(seed, runs, tuple(sorted(mishaps, key=lambda one: one.at)), chance.choice(HOUSES))


def _draw_mishaps(seed: int, kind: MishapKind) -> list[Mishap]:
    chance = random.Random(f"{seed} {kind.name}")
    likely = _LIKELY.get(kind, _LIKELY_ELSE)
    found: list[Mishap] = []
    while len(found) < 3 and chance.random() < likely:
        at = chance.choice((0.05, 0.3, 1.0, 2.5, 6.0, 11.0, 25.0))
        lasts = chance.choice((0.2, 2.0, 8.0, 40.0))
        dies_at_step = kind is MishapKind.SCHEDULER_DIES and chance.random() < 0.8
        step = chance.randint(1, 80) if dies_at_step else 0
        found.append(Mishap(kind, at, lasts, step, chance.random() < 0.5))
        likely = 0.3
    return found


def _draw_run(chance: random.Random, number: int) -> PlannedRun:
    spec = draw_spec(chance)
    at = number * chance.choice((0.0, 0.5, 4.0, 15.0))
    deed = chance.choice(_DEEDS) if chance.random() < 0.35 else None
    return PlannedRun(f"run-{number}", spec, at, deed, chance.choice((0.3, 1.0, 3.0, 9.0)))
