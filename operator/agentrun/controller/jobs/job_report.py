"""What one Job is like at a moment: told by the job keeper, shown by the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.decisions.pools.pod_faults import PoolFault


@dataclass(frozen=True, slots=True)
class JobReport:
    """A Job whose pod an order waits for, and what keeps it from starting."""

    tool: str
    fault: PoolFault | None
