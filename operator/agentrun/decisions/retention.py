"""Which ended runs have kept their nodes long enough. Pure; called by the engine's housekeeping."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended, as far as keeping it goes."""

    namespace: str
    uid: str
    name: str
    resource_version: str
    finished_at: datetime
    ttl: timedelta | None
    """``spec.ttlAfterFinished``; None: the run stays."""


def find_expired_runs(ended: Iterable[EndedRun], now: datetime) -> list[EndedRun]:
    """Return the runs whose own ``ttlAfterFinished`` has passed; it counts from the end only."""
    return [run for run in ended if run.ttl is not None and run.finished_at + run.ttl <= now]


def find_runs_past_retention(
    ended: Iterable[EndedRun], now: datetime, keep: timedelta, most: int
) -> set[tuple[str, str]]:
    """Return (namespace, uid) of the runs whose nodes are to go.

    Those that ended ``keep`` ago or earlier; and in each namespace of those that are left the oldest, until ``most``
    remain. Ends at the same moment are ordered by uid.
    """
    expired: set[tuple[str, str]] = set()
    left: dict[str, list[EndedRun]] = {}
    for run in ended:
        if run.finished_at + keep <= now:
            expired.add((run.namespace, run.uid))
        else:
            left.setdefault(run.namespace, []).append(run)
    for namespace, runs in left.items():
        runs.sort(key=lambda run: (run.finished_at, run.uid), reverse=True)
        expired.update((namespace, run.uid) for run in runs[most:])
    return expired
