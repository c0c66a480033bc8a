"""The conditions of a run, for people, ``kubectl wait``, GitOps tools and kstatus.

``Complete`` is True in every terminal phase, so waiting for it never hangs on a failed run; ``Succeeded`` is the
summary, Unknown while the run is active; ``Stalled`` is True exactly for Failed, Dead and Rejected (kstatus).
"""

from __future__ import annotations

from datetime import datetime

from agentrun.contract.object_meta import ConditionStatus, StatusCondition
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRunStatus, RunPhase

_STALLED = frozenset({RunPhase.FAILED, RunPhase.DEAD, RunPhase.REJECTED})


def build_run_conditions(
    status: AgentRunStatus, now: datetime, generation: int, *, spec_change_ignored: bool = False
) -> tuple[StatusCondition, ...]:
    """Return the conditions that the status implies; a condition that has not changed keeps its transition time."""
    terminal = status.phase in TERMINAL_RUN_PHASES
    rejected = status.phase is RunPhase.REJECTED
    wanted = [
        ("Accepted", _truth(not rejected), status.reason if rejected else "Accepted"),
        ("Admitted", _truth(status.admitted_at is not None), "Admitted" if status.admitted_at else status.reason),
        ("Complete", _truth(terminal), status.reason),
        (
            "Succeeded",
            _truth(status.phase is RunPhase.SUCCEEDED) if terminal else ConditionStatus.UNKNOWN,
            status.reason,
        ),
        ("Stalled", _truth(status.phase in _STALLED), status.reason),
        ("Reconciling", _truth(not terminal), status.reason),
    ]
    if spec_change_ignored:
        wanted.append(("SpecChangeIgnored", ConditionStatus.TRUE, "ImmutableAfterAdmission"))
    known = {condition.type: condition for condition in status.conditions}
    return tuple(
        StatusCondition(
            type=kind,
            status=truth,
            reason=reason or str(status.phase),
            message=status.message if kind in ("Complete", "Succeeded", "Stalled") else "",
            last_transition_time=known[kind].last_transition_time
            if kind in known and known[kind].status is truth
            else now,
            observed_generation=generation,
        )
        for kind, truth, reason in wanted
    )


def _truth(value: bool) -> ConditionStatus:
    return ConditionStatus.TRUE if value else ConditionStatus.FALSE
