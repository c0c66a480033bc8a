"""The page of reasons: what each one means, and which moves of a node it explains."""

from __future__ import annotations

from collections.abc import Mapping

from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.node import TERMINAL_NODE_PHASES, NodePhase
from agentrun.crdgen.enum_texts import member_texts
from agentrun.decisions.node_states import TRANSITIONS

_HEAD = """# Reasons

Generated from `agentrun/contract/failures.py` and the table of moves by `make generate`. A reason is the one word in
`status.reason` of a run or a node, in each line of a node's timeline and in a failure; the message beside it says which
value, which limit or which provider's word. A tool may fail with a reason of its own: the node then says `ToolFailed`,
and the tool's word stands in `status.failure.reason`.

"""


def build_reason_table() -> str:
    """Return the page as Markdown."""
    texts = member_texts(Reason)
    reasons = "".join(f"### {reason}\n\n{_plain(texts[reason])}{_moves_of(reason)}\n\n" for reason in sorted(Reason))
    return (
        f"{_HEAD}## What a failure says besides\n\n"
        f"`effect`: whether the call was executed outside.\n\n{_table(member_texts(Effect))}\n"
        f"`failureClass` (`class` in the paths of conditions): who acts next.\n\n{_table(member_texts(FailureClass))}\n"
        f"## All reasons\n\n{reasons.rstrip()}\n"
    )


def _moves_of(reason: Reason) -> str:
    moves = [(row.from_phase, row.to_phase) for row in TRANSITIONS if reason in row.reasons]
    if not moves:
        return ""
    if len({to for _, to in moves}) == 1 and {start for start, _ in moves} == set(NodePhase) - TERMINAL_NODE_PHASES:
        return f" Leads to {moves[0][1]} from every state that does not end."
    return f" Leads {'; '.join(f'from {start} to {to}' for start, to in moves)}."


def _table(texts: Mapping[str, str]) -> str:
    return "| value | meaning |\n|---|---|\n" + "".join(f"| {value} | {text} |\n" for value, text in texts.items())


def _plain(text: str) -> str:
    return text.replace("``", "`")
