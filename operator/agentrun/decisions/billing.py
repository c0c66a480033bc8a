"""What an attempt adds to its node's bill: the same sums as the ledger's book, from which budgets are kept.

Called where a report or a lost attempt is decided about. The ledger's rules stand in commit.lua and lib/money.lua: an
attempt is booked once, and an estimate is replaced at most once, by what somebody knows.
"""

from __future__ import annotations

from agentrun.contract.failures import Effect
from agentrun.contract.model_base import MicrosInt
from agentrun.contract.node import ESTIMATES_KEPT, AgentNodeStatus, BookedEstimate
from agentrun.contract.orders import Amount, AttemptOutcome


def bill_worst_case(status: AgentNodeStatus) -> dict[str, object]:
    """Return the changes by which the current attempt, of unknown cost, is billed: its hold, until somebody knows."""
    held = status.call.hold_micros if status.call else 0
    if not held or _find(status, status.attempt) is not None:
        return {}
    return {"cost": status.cost + held, **_with_estimate(status, held)}


def bill_attempt(status: AgentNodeStatus, outcome: AttemptOutcome) -> dict[str, object]:
    """Return the changes by which the current attempt is billed, which told of its end itself."""
    if outcome.effect is Effect.UNKNOWN and outcome.usage == Amount():
        return bill_worst_case(status)
    changes = _with_usage(status, outcome.usage, status.cost)
    if outcome.usage_estimated:
        changes |= _with_estimate(status, outcome.usage.micros)
    return changes


def bill_recovery(status: AgentNodeStatus, outcome: AttemptOutcome) -> dict[str, object]:
    """Return the changes by which what a recovery knows takes the estimate's place; most recoveries know no cost."""
    told = outcome.effect is Effect.EXECUTED and outcome.usage != Amount() and not outcome.usage_estimated
    if told or outcome.effect is Effect.NOT_EXECUTED:
        return correct_bill(status, status.attempt, outcome.usage)
    return {}


def correct_bill(status: AgentNodeStatus, attempt: int, usage: Amount) -> dict[str, object]:
    """Return the changes by which a known cost takes an attempt's estimate's place; none where no estimate stands."""
    estimate = _find(status, attempt)
    if estimate is None:
        return {}
    left = tuple(one for one in status.estimates if one is not estimate)
    changes = _with_usage(status, usage, status.cost - estimate.cost)
    return {**changes, "estimates": left, "cost_estimated": bool(left)}


def _find(status: AgentNodeStatus, attempt: int) -> BookedEstimate | None:
    return next((one for one in status.estimates if one.attempt == attempt), None)


def _with_estimate(status: AgentNodeStatus, micros: int) -> dict[str, object]:
    estimate = BookedEstimate(attempt=status.attempt, cost=MicrosInt(micros))
    return {"estimates": (*status.estimates, estimate)[-ESTIMATES_KEPT:], "cost_estimated": True}


def _with_usage(status: AgentNodeStatus, usage: Amount, before: int) -> dict[str, object]:
    return {
        "cost": before + usage.micros,
        "tokens": status.tokens + usage.tokens,
        "model_calls": status.model_calls + usage.model_calls,
    }
