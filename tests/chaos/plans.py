"""What a round will do, drawn from its seed before it begins: runs, strikes, and what people do meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from chaos.trees import build_run


class Target(StrEnum):
    """What is struck."""

    OPERATOR = "operator"
    WORKER = "worker"
    LEDGER = "ledger"
    API_SERVER = "apiserver"


class Blow(StrEnum):
    """How it is struck."""

    KILL = "kill"
    """SIGKILL, and started again after a while."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT after a while."""
    FLUSH = "flush"
    """FLUSHALL: the ledger alone."""
    EMPTY = "empty"
    """SIGKILL, and started again without its data: the ledger alone."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One blow at one process."""

    at: float
    """Seconds after the runs were applied."""
    target: Target
    index: int
    """Which operator or worker."""
    blow: Blow
    seconds: float
    """How long the process is down."""

    def __str__(self) -> str:
        number = f"-{self.index}" if self.target in (Target.OPERATOR, Target.WORKER) else ""
        return f"{self.blow} {self.target}{number} at {self.at:.1f} s for {self.seconds:.1f} s"


class Change(StrEnum):
    """What somebody does to a run in mid-flight."""

    CANCEL = "cancel"
    SUSPEND = "suspend"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Meddling:
    """One change to one run."""

    at: float
    run: str
    change: Change
    seconds: float
    """How long a suspension lasts."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """One round."""

    seed: int
    runs: tuple[dict[str, Any], ...]
    strikes: tuple[Strike, ...]
    meddling: tuple[Meddling, ...]
    operators: int
    workers: int
    stable_names: bool
    """Whether a process that is started again bears its old name."""


def build_plan(seed: int, *, empty_ledger: bool = False) -> RoundPlan:
    """Return the round of a seed; the same seed gives the same round."""
    chance = random.Random(seed)
    shared = chance.random() < 0.06
    runs = []
    for number in range(chance.choices((1, 2, 3), (5, 3, 2))[0]):
        session = "shared" if shared else chance.choice((None, f"session-{number}"))
        runs.append(build_run(chance, f"r{number}", session))
    operators = chance.choices((1, 2), (3, 1))[0]
    workers = chance.choices((1, 2), (3, 2))[0]
    strikes = tuple(sorted(_strikes(chance, operators, workers, empty_ledger), key=lambda strike: strike.at))
    meddling = []
    if chance.random() < 0.3:
        meddling.append(
            Meddling(
                at=chance.uniform(0.3, 5),
                run=chance.choice(runs)["metadata"]["name"],
                change=chance.choice(list(Change)),
                seconds=chance.uniform(1, 4),
            )
        )
    return RoundPlan(seed, tuple(runs), strikes, tuple(meddling), operators, workers, chance.random() < 0.5)


def _strikes(chance: random.Random, operators: int, workers: int, empty_ledger: bool) -> Iterator[Strike]:
    for _ in range(chance.randint(1, 4)):
        at = chance.uniform(0.2, 7)
        count = 2 if chance.random() < 0.2 else 1
        targets: list[Target] = []
        while len(targets) < count:
            target = chance.choices(list(Target), (5, 5, 4, 2))[0]
            if target not in targets:
                targets.append(target)
        for target in targets:
            blow = chance.choices((Blow.KILL, Blow.STOP), (3, 1))[0]
            if empty_ledger and target is Target.LEDGER:
                blow = chance.choice((Blow.FLUSH, Blow.EMPTY, blow))
            count = {Target.OPERATOR: operators, Target.WORKER: workers}.get(target, 1)
            seconds = chance.uniform(0.5, 6) if blow is Blow.STOP else chance.uniform(0, 2.5)
            yield Strike(at, target, chance.randrange(count), blow, seconds)
