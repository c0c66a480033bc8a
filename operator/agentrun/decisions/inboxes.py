"""Opening a question to a human: the fields of a node's status that go with it."""

from __future__ import annotations

from datetime import datetime, timedelta

from agentrun.contract.node import AgentNodeStatus, Inbox, InboxKind


def open_inbox(
    status: AgentNodeStatus,
    kind: InboxKind,
    now: datetime,
    expires_after: timedelta,
    *,
    unknown_outcome: bool = False,
    executed: bool = False,
) -> dict[str, object]:
    """Return the status changes that open the next question about a node.

    The question's id counts up per node, so an answer to an earlier question never fits a later one. Where the outcome
    of a call is in question, the engine adds the record's version before the status is stored.
    """
    number = status.questions + 1
    call = status.call
    about_record = call is not None and (unknown_outcome or executed)
    return {
        "questions": number,
        "inbox": Inbox(
            kind=kind,
            id=f"{kind.lower()}-{number}",
            asked_at=now,
            expires_at=now + expires_after,
            params_digest=call.params_digest if call else "",
            record_key=call.key if call and about_record else "",
            unknown_outcome=unknown_outcome,
            executed=executed,
        ),
    }
