"""Drawing a history from its seed: which runs there are, how the outside answers, and what goes wrong when.

Pure: the same seed gives the same plan. Histories are short and dense, so that many of them can be lived.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

TOOLS = """
once: {timeout: 5s, retry: {limit: 1, backoff: {initial: 1s}}, cost: {perCall: "0.01"}, limits: {concurrency: 2}}
looked:
  timeout: 5s
  cost: {perCall: "0.02"}
  recovery:
    lookup: {tool: look, params: {key: "${key}"}}
    outcome:
      completed: {when: {path: result.state, op: eq, value: done}, result: result.answer}
      notExecuted: {when: {path: result.state, op: eq, value: none}}
sure: {timeout: 5s, idempotency: {providerDeduplicates: true}, retry: {limit: 2, backoff: {initial: 1s}}, degradeTo: [once]}
again: {sideEffect: Idempotent, timeout: 5s, retry: {limit: 2, backoff: {initial: 1s}}, limits: {concurrency: 3}}
look: {sideEffect: None, timeout: 3s}
read: {sideEffect: None, timeout: 3s, limits: {ratePerSecond: 5}}
asked: {approval: {required: Always}, timeout: 5s}
"""
CONCURRENCY = {"tool:once": 2, "tool:again": 3}
_CALLED = ("once", "once", "looked", "sure", "again", "read", "asked")


class Answer(StrEnum):
    """How the outside takes one call."""

    DONE = "done"
    SLOW = "done after two seconds"
    REFUSED = "refused, nothing done"
    HOPELESS = "refused for good, nothing done"
    DONE_UNSAID = "done, and the answer is lost"
    NOT_DONE_UNSAID = "not done, and the answer is lost"
    DONE_NO_USE = "done, and the answer is no use"
    SILENT = "nothing happens, and no answer comes"
    CRASH_BEFORE = "the worker dies before the effect"
    CRASH_AFTER = "the worker dies after the effect"


ANSWERS = tuple(Answer)
WEIGHTS = (14, 4, 3, 1, 2, 2, 1, 1, 1, 1)


class MishapKind(StrEnum):
    """What goes wrong."""

    SCHEDULER_DIES = "the scheduler dies"
    SCHEDULER_SLEEPS = "the scheduler stands still, another takes the lead, the first wakes up"
    WORKER_DIES = "the worker dies"
    WORKER_SLEEPS = "the worker stands still and wakes up"
    LEDGER_AWAY = "the ledger is away"
    CLUSTER_AWAY = "the API server is away"
    LEDGER_EMPTIED = "the ledger loses everything"
    LEDGER_RESTARTED = "the ledger's server is another one, which has kept everything"
    BAD_WEATHER = "steps fail, or their answers are lost"
    SLOW_ANSWERS = "answers come late"
    EVENTS_AGAIN = "every watch event is told again"


_DRAWN = tuple(kind for kind in MishapKind if kind is not MishapKind.LEDGER_RESTARTED)


@dataclass(frozen=True, slots=True)
class Mishap:
    """One thing that goes wrong."""

    kind: MishapKind
    at: float
    """Virtual seconds."""
    lasts: float
    """Virtual seconds; of a death, until another process is there."""
    step: int = 0
    """Of the scheduler's death: the step outside at which it dies, counted from its start; 0: at the time."""
    after: bool = False
    """Whether that step is carried out."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run and when it is applied."""

    name: str
    text: str
    at: float
    cancelled_at: float | None = None
    suspended_at: float | None = None


@dataclass(frozen=True, slots=True)
class History:
    """All that a seed decides beforehand."""

    seed: int
    runs: tuple[PlannedRun, ...]
    mishaps: tuple[Mishap, ...]


def draw_history(seed: int) -> History:
    """Return the history of a seed."""
    chance = random.Random(seed)
    runs = tuple(_draw_run(chance, number) for number in range(chance.choice((1, 1, 1, 2))))
    mishaps = sorted((_draw_mishap(chance) for _ in range(chance.choice((0, 1, 1, 2, 3)))), key=lambda one: one.at)
    # Drawn apart: whatever else a seed means stays as it was.
    kept = random.Random(f"{seed} kept").random() < 0.5
    return History(seed, runs, tuple(_keep_everything(one) if kept else one for one in mishaps))


def _keep_everything(mishap: Mishap) -> Mishap:
    if mishap.kind is not MishapKind.LEDGER_EMPTIED:
        return mishap
    return replace(mishap, kind=MishapKind.LEDGER_RESTARTED)


def _draw_mishap(chance: random.Random) -> Mishap:
    kind = chance.choice(_DRAWN)
    at = chance.choice((0.05, 0.3, 1.0, 2.5, 6.0, 11.0))
    lasts = chance.choice((0.2, 2.0, 8.0, 40.0))
    step = chance.randint(1, 60) if kind is MishapKind.SCHEDULER_DIES and chance.random() < 0.8 else 0
    return Mishap(kind, at, lasts, step, chance.random() < 0.5)


def _draw_run(chance: random.Random, number: int) -> PlannedRun:
    lines: list[str] = []
    names: list[str] = []
    for at in range(chance.randint(1, 6)):
        name = f"n{at}"
        upstream = [known for known in names if chance.random() < 0.4]
        lines.append(_draw_node(chance, name, upstream))
        names.append(name)
    if len(names) > 1 and chance.random() < 0.25:
        # One of two ways, decided by what an earlier node gave.
        test = f"{{path: nodes.{names[0]}.phase, op: eq, value: Succeeded}}"
        lines.append(
            f"- {{name: way, type: Condition, dependsOn: [{names[0]}], join: {{rule: Always}}, "
            f"condition: {{cases: [{{when: {test}, goto: left}}], default: right}}}}"
        )
        lines.extend(
            (f"- {{name: left, tool: once, params: {{n: {chance.randint(0, 2)}}}}}", "- {name: right, tool: read}")
        )
    head = [f"timeout: {chance.choice(('20m', '20m', '30s'))}", "waits: {inbox: 10m, queue: 5m, dependencies: 15m}"]
    if chance.random() < 0.6:
        head.append(f"session: {chance.choice(('s', 's', 't'))}")
    if chance.random() < 0.3:
        limit = chance.choice(("0.01", "0.03", "0.10"))
        head.append(f'budget: {{limit: "{limit}"}}')
    head.append(f"onNodeFailure: {chance.choice(('Abort', 'Continue', 'Suspend'))}")
    cancelled = chance.choice((0.5, 3.0, 9.0)) if chance.random() < 0.12 else None
    suspended = chance.choice((0.5, 3.0)) if chance.random() < 0.12 else None
    text = "\n".join([*head, "nodes:", *lines])
    return PlannedRun(f"run-{number}", text, number * chance.choice((0.0, 0.5, 4.0)), cancelled, suspended)


def _draw_node(chance: random.Random, name: str, upstream: list[str]) -> str:
    depends = f"dependsOn: [{', '.join(upstream)}], " if upstream else ""
    rules = ("", "join: {rule: Any}, ", "join: {rule: Always}, ", "join: {rule: AtLeast, count: 1}, ")
    rule = chance.choice(rules) if upstream else ""
    more = chance.choice(
        (
            "",
            "",
            "optional: true, ",
            "onFailure: Continue, ",
            "onFailure: Suspend, ",
            "priority: P0, ",
            "priority: P3, ",
        )
    )
    tool = chance.choice(_CALLED)
    kind = chance.random()
    if kind < 0.15:
        items = list(range(chance.randint(0, 4)))
        width = chance.choice(("", ", maxParallel: 1", ", maxParallel: 2"))
        body = f"type: FanOut, fanOut: {{items: {items}{width}, node: {{tool: {tool}, params: {{n: '${{item}}'}}}}}}"
    elif kind < 0.23:
        body = "type: Approval, approval: {message: ok?}"
    elif kind < 0.30 and upstream:
        body = "type: Join"
    else:
        body = f"tool: {tool}, params: {{n: {chance.choice((1, chance.randint(0, 9)))}}}"
    return f"- {{name: {name}, {depends}{rule}{more}{body}}}"
