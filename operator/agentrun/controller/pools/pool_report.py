"""What one pool is like at a moment: told by the pool keeper, shown by the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.decisions.pools.pod_faults import PoolFault


@dataclass(frozen=True, slots=True)
class PoolReport:
    """How many workers a pool should have, how many work, and what keeps the others from it."""

    wished: int
    ready: int
    fault: PoolFault | None
