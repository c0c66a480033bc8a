"""Exit codes of every command, in one place."""

from __future__ import annotations

from enum import IntEnum

from agentrun.contract.run import RunPhase


class ExitCode(IntEnum):
    """What a command's exit code means."""

    OK = 0
    FAILED = 1
    """A run ended Failed or Dead; a check found problems."""
    USAGE = 2
    """Arguments or manifests cannot be used; nothing was started."""
    REJECTED = 3
    """A run was refused at admission."""
    WAITING = 4
    """A run stands still: a human would have to answer, and nobody does."""
    CANCELLED = 5
    UNAVAILABLE = 6
    """Something that is needed is not there: no ledger server, no connection."""
    INTERRUPTED = 130


_BY_PHASE = {
    RunPhase.SUCCEEDED: ExitCode.OK,
    RunPhase.FAILED: ExitCode.FAILED,
    RunPhase.DEAD: ExitCode.FAILED,
    RunPhase.REJECTED: ExitCode.REJECTED,
    RunPhase.CANCELLED: ExitCode.CANCELLED,
    RunPhase.SUSPENDED: ExitCode.WAITING,
    RunPhase.PENDING: ExitCode.WAITING,
    RunPhase.RUNNING: ExitCode.WAITING,
}


def exit_code_of(phases: list[RunPhase]) -> ExitCode:
    """Return the code of several runs together: the first that is not OK."""
    return next((_BY_PHASE[phase] for phase in phases if phase is not RunPhase.SUCCEEDED), ExitCode.OK)
