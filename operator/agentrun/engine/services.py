"""What every part of the engine is given: ports, settings and the shared books. Built once, by the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from agentrun.contract.exact_json import JsonObject
from agentrun.decisions.facts import Problem, SchemaJudge
from agentrun.engine.acknowledger import Acknowledger
from agentrun.engine.clock import Clock, Entropy
from agentrun.engine.cluster_port import Cluster
from agentrun.engine.decision_verifier import DecisionVerifier, NoVerifier
from agentrun.engine.dispatcher import Dispatcher
from agentrun.engine.job_desk import JobDesk
from agentrun.engine.ledger_contact import LedgerContact
from agentrun.engine.observer import Observer, Unobserved
from agentrun.engine.session_port import NoSessionLeases, SessionLeases
from agentrun.engine.settings import SchedulerSettings
from agentrun.engine.timers import Timers
from agentrun.engine.tool_catalogue import ToolCatalogue
from agentrun.ledger.port import LedgerSight, LedgerUnavailableError, SchedulerLedger


class EpochLostError(Exception):
    """Another scheduler leads: this one must stop deciding."""


class LedgerLostError(Exception):
    """The ledger has lost data, or may have: what is known is to be rebuilt before anything goes on."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as others of its namespace may refer to it."""

    uid: str
    root_uid: str
    """The run whose idempotency it continues; its own uid where it continues none."""
    ended: bool


@dataclass(slots=True)
class EngineServices:
    """The engine's surroundings; ``epoch`` is set once the lead is taken."""

    cluster: Cluster
    ledger: SchedulerLedger
    contact: LedgerContact
    clock: Clock
    entropy: Entropy
    judge: SchemaJudge
    check_schema: Callable[[JsonObject], tuple[Problem, ...]]
    settings: SchedulerSettings
    dispatcher: Dispatcher
    timers: Timers
    tools: ToolCatalogue
    acknowledger: Acknowledger
    jobs: JobDesk
    pump: Callable[[], None]
    """Grants candidates their turn as far as there is room."""
    find_run: Callable[[str, str], KnownRun | None]
    """(namespace, name) to a run that is known."""
    sessions: SessionLeases = field(default_factory=NoSessionLeases)
    observer: Observer = field(default_factory=Unobserved)
    verifier: DecisionVerifier = field(default_factory=NoVerifier)
    epoch: int = 0

    async def refuse_if_overtaken(self) -> None:
        """Raise :class:`EpochLostError` when another scheduler has taken the lead since.

        Asked wherever an object was changed by somebody else: a leader that stood still and wakes up would take what
        its successor has written for a mere conflict, and write its own old state over it. Raises
        :class:`LedgerUnavailableError` where that cannot be known: a ledger that lost its data has lost who leads.
        """
        sight = await self.ledger.look()
        if sight.epoch < self.epoch:
            raise LedgerUnavailableError("it has lost its data, and with them who leads")
        self.compare_epoch(sight)

    def compare_epoch(self, sight: LedgerSight) -> None:
        """Raise :class:`EpochLostError` when the ledger shows an epoch that was taken after ours."""
        if sight.epoch > self.epoch:
            raise EpochLostError(f"epoch {sight.epoch} was taken after {self.epoch}")

    async def abandon_run(self, namespace: str, run_uid: str) -> None:
        """Have the ledger cancel and close a run that does not exist any more."""
        await self.ledger.cancel_run(namespace, run_uid)
        await self.ledger.finish_run(namespace, run_uid, None, self.settings.finished_keep_ms)

    def now(self) -> datetime:
        """Return the present moment."""
        return self.clock.now()
