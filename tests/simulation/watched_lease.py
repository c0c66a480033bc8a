"""The Lease of the lead, judged at every write: whatever becomes of its answer, it was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrun.contract.exact_json import JsonObject
from simulation import invariants
from support.lease_server import LeaseServer


class WatchedLease(LeaseServer):
    """Tells of no epoch below one that it has told of."""

    def __init__(self, check: Callable[..., Any]) -> None:
        super().__init__()
        self._check = check

    def _store(self, body: JsonObject | None) -> JsonObject:
        before = self.epoch
        answer = super()._store(body)
        if self.epoch != before:
            self._check(invariants.epochs_only_rise, before, self.epoch)
        return answer
