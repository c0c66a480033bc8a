"""What holds one pool or one Job up: why its last request failed, when it is tried again, and the log's lines about it.

Kept by the keepers of both for each thing that they look after; what an error means is :mod:`held_back`'s matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import structlog

from agentrun.controller.pools.held_back import BUG, explain_failure
from agentrun.decisions.pools.pod_faults import PoolFault

_log = structlog.get_logger("agentrun.controller")


@dataclass(slots=True)
class Hindrance:
    """Of one thing; ``what`` it is, in the log's words, is said with each call, and ``named`` says which."""

    fault: PoolFault | None = None
    """What people are told; None: nothing, or what passes by itself."""
    again_at: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Tell whether the next step may be tried."""
        return self.again_at is None or self.again_at <= now

    def note(self, error: Exception, now: datetime, what: str, **named: str) -> None:
        """Take in that a step failed; told once for as long as it fails for the same cause."""
        fault, pause = explain_failure(error)
        self.again_at = now + pause
        if fault is None:
            _log.debug(f"{what}_postponed", cause=str(error), **named)
            return
        if self.fault != fault:
            known = fault.reason != BUG
            log = _log.warning if known else _log.error
            log(f"{what}_held_back", reason=fault.reason, cause=fault.message, exc_info=None if known else error,
                **named)  # fmt: skip
        self.fault = fault

    def end(self, what: str, **named: str) -> None:
        """Take in that a step went well."""
        if self.fault is not None:
            _log.info(f"{what}_goes_on", **named)
        self.fault = self.again_at = None
