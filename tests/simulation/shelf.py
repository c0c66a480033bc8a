"""The tools that histories call, and how the scheduler's limits may be set. Read by the plans and by the world."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import timedelta

from agentrun.contract.run import Priority
from agentrun.contract.tool import AgentTool
from agentrun.engine.settings import SchedulerSettings
from support.manifest_texts import build_tools

_TOOLS = """
once: {timeout: 4s, retry: {limit: 1, backoff: {initial: 1s}}, cost: {perCall: "0.01"}, limits: {concurrency: 2}}
looked:
  timeout: 4s
  cost: {perCall: "0.02"}
  retry: {limit: 1, backoff: {initial: 1s}}
  recovery: &recovery
    pollInterval: 1s
    lookup: {tool: look, params: {key: "${key}"}}
    outcome:
      completed: {when: {path: result.state, op: eq, value: done}, result: result.answer}
      running: {when: {path: result.state, op: eq, value: running}}
      notExecuted: {when: {path: result.state, op: eq, value: none}}
blamed:
  timeout: 4s
  retry: {limit: 1, backoff: {initial: 1s}}
  recovery:
    lookup: {tool: lie, params: {key: "${key}"}}
    outcome: {notExecuted: {when: {path: result.state, op: eq, value: none}}}
sure:
  timeout: 4s
  idempotency: {providerDeduplicates: true}
  retry: {limit: 2, backoff: {initial: 1s}}
  recovery: *recovery
  degradeTo: [once]
again:
  sideEffect: Idempotent
  timeout: 4s
  cost: {perCall: "0.005"}
  retry: {limit: 2, backoff: {initial: 1s}, afterLast: Ask}
  limits: {concurrency: 3}
read: {sideEffect: None, timeout: 3s, retry: {limit: 1, backoff: {initial: 1s}, afterLast: Drop}, limits: {ratePerSecond: 5}}
asked: {approval: {required: Always, expiresAfter: 20s}, timeout: 4s}
weighed:
  timeout: 4s
  approval: {when: [{path: params.n, op: gt, value: 4}], pauses: Run}
  retry: {limit: 0, afterLast: Human}
dear: {timeout: 4s, cost: {perCall: "0.04"}, retry: {limit: 0}, degradeTo: [cheap]}
cheap: {timeout: 4s, retry: {limit: 1, backoff: {initial: 1s}, afterLast: Human}}
narrow: {sideEffect: Idempotent, timeout: 4s, limits: {concurrency: 1, backlog: 2}}
shared: {timeout: 4s, idempotency: {scope: Namespace}}
refused: {timeout: 4s, idempotency: {scope: Namespace, onDuplicate: Reject}}
doubted: {timeout: 4s, idempotency: {scope: Namespace, onDuplicate: Ask}}
typed:
  timeout: 4s
  params: {schema: {type: object, required: [n], properties: {n: {type: integer, maximum: 7}}}}
  result: {schema: {type: object, required: [token], properties: {n: {maximum: 6}}}}
look: {sideEffect: None, timeout: 3s}
lie: {sideEffect: None, timeout: 3s}
"""
CALLED = (
    *("once", "once", "once", "looked", "looked", "sure", "again", "read", "asked", "weighed"),
    *("dear", "narrow", "shared", "refused", "doubted", "typed", "blamed"),
)
"""What nodes call, some more often than others."""
LOOKUPS = frozenset({"look", "lie"})
LIED_ABOUT = frozenset({"blamed"})
"""Tools whose lookup says that nothing has happened, whatever has."""
CONCURRENCY = {"once": 2, "again": 3, "narrow": 1}
RATE_PER_SECOND = {"read": 5}


@dataclass(frozen=True, slots=True)
class HouseRules:
    """What the operator has set."""

    global_limit: int = 1000
    namespace_limit: int | None = None
    reserved_for_p0: int = 0
    workers: int = 1
    slots: int = 4

    def settings(self) -> SchedulerSettings:
        """Return the scheduler's settings. It polls seldom: what it polls for is told by events as well."""
        return SchedulerSettings(
            global_limit=self.global_limit,
            namespace_limit=self.namespace_limit,
            reserved_slots={Priority.P0: self.reserved_for_p0} if self.reserved_for_p0 else {},
            ledger_look=timedelta(seconds=5),
            pool_poll=timedelta(seconds=5),
            report_block=timedelta(seconds=5),
            sweep_every=timedelta(seconds=100),
        )


HOUSES = (
    HouseRules(),
    HouseRules(),
    HouseRules(workers=2),
    HouseRules(slots=1),
    HouseRules(global_limit=2, workers=2),
    HouseRules(global_limit=3, reserved_for_p0=1),
    HouseRules(namespace_limit=2, workers=2, slots=2),
)


@functools.cache
def shelf() -> tuple[AgentTool, ...]:
    """Return the tools; objects of the contract do not change, so one reading serves every history."""
    return tuple(build_tools(_TOOLS))
