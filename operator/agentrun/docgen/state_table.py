"""The page of states and transitions, from the table that the product runs on."""

from __future__ import annotations

from agentrun.contract.node import INBOX_PHASES, TERMINAL_NODE_PHASES, NodePhase
from agentrun.decisions.node_states import TRANSITIONS

_HEAD = """# States of a node

Generated from the table in `agentrun/decisions/node_states.py` by `make generate`. A move that is not in this table is
refused. Every state that does not end has a deadline and an exit; an inbox moves only by a human or its expiry.

"""
_WHAT = {
    NodePhase.PENDING: "waits for upstream nodes",
    NodePhase.READY: "may go; waits in line for slots and budget",
    NodePhase.QUEUED: "its order is out, and no worker has claimed it",
    NodePhase.RUNNING: "a worker has claimed it at the gate (or a recovery has adopted it)",
    NodePhase.EXPANDED: "a fan-out whose instances are at work",
    NodePhase.WAITING_APPROVAL: "a human is asked",
    NodePhase.RETRY_WAIT: "failed; the next attempt is due at a known time",
    NodePhase.TIMED_OUT: "nobody knows yet what happened; a recovery finds out",
    NodePhase.FAILED: "passed through: what follows is decided at once",
    NodePhase.QUARANTINED: "nothing moves until a human has looked",
    NodePhase.SUCCEEDED: "done, with a result",
    NodePhase.SKIPPED: "was not needed, or is optional and failed",
    NodePhase.CANCELLED: "the run ended first, or nobody needs it any more",
    NodePhase.DEAD: "failed for good; a human may re-drive it",
}


def build_state_table() -> str:
    """Return the page as Markdown."""
    states = "".join(f"| {phase} | {_kind(phase)} | {what} |\n" for phase, what in _WHAT.items())
    rows = "".join(
        f"| {row.from_phase} | {row.to_phase} | {', '.join(sorted(row.reasons))} | {row.when} |\n"
        for row in TRANSITIONS
    )
    return (
        f"{_HEAD}| state | kind | meaning |\n|---|---|---|\n{states}\n"
        f"## Transitions\n\n| from | to | reasons | when |\n|---|---|---|---|\n{rows}"
    )


def _kind(phase: NodePhase) -> str:
    if phase in TERMINAL_NODE_PHASES:
        return "end"
    return "inbox" if phase in INBOX_PHASES else "on its way"
