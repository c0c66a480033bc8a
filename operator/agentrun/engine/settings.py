"""What an operator may set about scheduling; every number here has a row in the documented table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from agentrun.contract.run import Priority
from agentrun.decisions.decision_authority import UnverifiedDecisions
from agentrun.decisions.namespace_policy import NO_POLICIES, NamespacePolicies


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of one scheduler."""

    install: str = "agentrun"
    consumer: str = "scheduler"
    """Name in the reports' consumer group; the same after a restart."""
    global_limit: int = 1000
    """Attempts at once, over all namespaces."""
    namespace_limit: int | None = None
    """Attempts at once in one namespace; None: no limit of its own."""
    policies: NamespacePolicies = NO_POLICIES
    """What the runs of each namespace may ask for, and its share of the slots."""
    reserved_slots: Mapping[Priority, int] = field(default_factory=dict)
    """Slots of the global limit and of each pool kept free for a priority and those above it."""
    pool_prefetch: int = 1
    """Orders that may wait in a pool's streams for each announced slot, beside the one being worked on."""
    jobs: bool = False
    """Somebody makes Jobs for the attempts of tools of mode ``Job``; else their calls go to their pools."""
    jobs_starting: int = 10
    """Attempts of one tool whose Jobs may be starting at a time; each holds its slots meanwhile."""
    coalesce: timedelta = timedelta(seconds=1)
    """A state that lasts shorter than this is not written, unless it is terminal or an inbox."""
    pool_poll: timedelta = timedelta(seconds=1)
    report_block: timedelta = timedelta(milliseconds=250)
    """How long one read waits for reports; a namespace that appears meanwhile is read from the next one on."""
    reports_at_once: int = 256
    parallel_turns: int = 64
    parallel_writes: int = 32
    parallel_lasting_writes: int = 8
    """Of states that have merely lasted: how many are written at a time, so that they keep no urgent write waiting."""
    ledger_look: timedelta = timedelta(seconds=1)
    """How often the ledger is looked at as a whole: whether it lost data, or its server was replaced."""
    sweep_every: timedelta | None = None
    """How often what exists is compared with what is known, and what has been kept long enough is deleted; None:
    never."""
    nodes_kept: timedelta = timedelta(hours=24)
    """How long the nodes and approvals of a run that has ended are kept."""
    runs_kept_with_nodes: int = 1000
    """Runs of a namespace that keep their nodes after the end; of more the oldest lose them earlier."""
    unverified_decisions: UnverifiedDecisions = UnverifiedDecisions.ALL
    """What becomes of decisions that no admission webhook has sealed. In local mode all count: whoever decides is the
    person who runs it."""
    finished_keep: timedelta = timedelta(days=30)
    """How long the ledger remembers the outcome of a finished run."""

    @property
    def finished_keep_ms(self) -> int:
        """``finished_keep`` as the ledger takes it."""
        return self.finished_keep // timedelta(milliseconds=1)
