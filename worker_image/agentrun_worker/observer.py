"""What the worker tells whoever watches it: facts as they arise. The worker knows no metric.

By default they are forgotten; the process's composition root gives an observer that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from agentrun.contract.orders import AttemptOutcome
from agentrun.ledger.port import ClaimVerdict, CommitVerdict


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    """The gate answered a claim."""

    verdict: ClaimVerdict


@dataclass(frozen=True, slots=True)
class CallsUnderWay:
    """So many calls are under way from now on, recoveries included."""

    count: int


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A tool was called, and this is what came of it."""

    tool: str
    outcome: AttemptOutcome


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The ledger took an outcome, or refused it."""

    verdict: CommitVerdict


@dataclass(frozen=True, slots=True)
class HandedBack:
    """An order is given back that was taken and not carried out."""

    cause: str
    """One word, with details in parentheses at most."""


@dataclass(frozen=True, slots=True)
class CallsInterrupted:
    """The drain's grace was over for so many calls."""

    count: int


@dataclass(frozen=True, slots=True)
class LedgerAnswered:
    """The ledger answered a step."""


@dataclass(frozen=True, slots=True)
class LedgerUnavailable:
    """The ledger did not answer a step."""


WorkerFact: TypeAlias = (
    ClaimAnswered
    | CallsUnderWay
    | CallEnded
    | CommitAnswered
    | HandedBack
    | CallsInterrupted
    | LedgerAnswered
    | LedgerUnavailable
)


class WorkerObserver(Protocol):
    """Is told of facts in the worker's own loop: it must neither wait nor raise."""

    def note(self, happened: WorkerFact) -> None:
        """Take a fact in."""
        ...


class Unobserved:
    """Forgets everything."""

    def note(self, happened: WorkerFact) -> None:
        """Forget the fact."""
