"""The page of states and transitions, from the table that the product runs on."""

from __future__ import annotations

from collections.abc import Iterable

from agentrun.contract.node import INBOX_PHASES, TERMINAL_NODE_PHASES, NodePhase
from agentrun.crdgen.enum_texts import member_texts
from agentrun.decisions.node_states import TRANSITIONS

_HEAD = """# States of a node

Generated from the table in `agentrun/decisions/node_states.py` by `make generate`. A move that is not in this table is
refused. Every state that does not end has a deadline and an exit; an inbox moves only by a human or its expiry.

"""


def build_state_table() -> str:
    """Return the page as Markdown."""
    what = member_texts(NodePhase)
    states = "".join(f"| {phase} | {_kind(phase)} | {what[phase]} |\n" for phase in NodePhase)
    rows = "".join(
        f"| {row.from_phase} | {row.to_phase} | {_links(row.reasons)} | {row.when} |\n" for row in TRANSITIONS
    )
    return (
        f"{_HEAD}| state | kind | meaning |\n|---|---|---|\n{states}\n"
        f"## Transitions\n\n| from | to | reasons | when |\n|---|---|---|---|\n{rows}"
    )


def _kind(phase: NodePhase) -> str:
    if phase in TERMINAL_NODE_PHASES:
        return "end"
    return "inbox" if phase in INBOX_PHASES else "on its way"


def _links(reasons: Iterable[str]) -> str:
    return ", ".join(f"[{reason}](reasons.md#{reason.lower()})" for reason in sorted(reasons))
