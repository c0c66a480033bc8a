"""How much a decision may say, by whether anybody vouches for who gave it.

A yes or a no answers what the engine itself proposes, and giving a node up changes nothing outside. Everything else
(sending something on its way again, a result, what really happened, other params) puts a person's word in the place of
what the engine knows: it counts only from a person who is known. Called when a question is asked, so that it shows what
is open, and when it is answered. Whether a decision is verified is not judged here.
"""

from __future__ import annotations

from enum import StrEnum

from agentrun.contract.approval import Decision, Verdict


class UnverifiedDecisions(StrEnum):
    """What becomes of decisions that nobody vouches for."""

    REFUSE = "Refuse"
    """None of them counts."""
    APPROVE_AND_REJECT = "ApproveAndReject"
    """Approve and Reject count, and Discard where it says nothing about what happened outside."""
    ALL = "All"
    """They count like verified ones."""


class Authority(StrEnum):
    """What the author of a decision may say."""

    NOTHING = "Nothing"
    YES_OR_NO = "YesOrNo"
    EVERYTHING = "Everything"


_YES_OR_NO = (Verdict.APPROVE, Verdict.REJECT, Verdict.DISCARD)


def find_authority(unverified: UnverifiedDecisions, *, verified: bool) -> Authority:
    """Return what a decision may say under a rule for unverified ones."""
    if verified or unverified is UnverifiedDecisions.ALL:
        return Authority.EVERYTHING
    return Authority.YES_OR_NO if unverified is UnverifiedDecisions.APPROVE_AND_REJECT else Authority.NOTHING


def limit_verdicts(verdicts: tuple[Verdict, ...], authority: Authority) -> tuple[Verdict, ...]:
    """Return those of the verdicts that the authority covers, in their order."""
    if authority is Authority.EVERYTHING:
        return verdicts
    return tuple(verdict for verdict in verdicts if authority is Authority.YES_OR_NO and verdict in _YES_OR_NO)


def exceeds_authority(decision: Decision, authority: Authority, params_digest: str) -> str | None:
    """Return what the decision says beyond its authority, and the remedy; None when it says nothing beyond."""
    if authority is Authority.EVERYTHING:
        return None
    if authority is Authority.NOTHING:
        on = f" on the params in question ({params_digest})" if params_digest else ""
        who = decision.decided_by or "anybody"
        return (
            f"the decision is not verified: its seal does not prove that {who} gave it{on}; "
            "the admission webhook seals decisions: see that it is on, and answer the question that is open now"
        )
    beyond = _find_beyond(decision)
    if beyond is None:
        return None
    return (
        f"{beyond} is refused: nobody vouches for who decided, so no more than Approve, Reject, and Discard without "
        "effect count; have the operator serve the admission webhook (--webhook-listen), or give this rule up with its "
        f"setting AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED={UnverifiedDecisions.ALL}; then answer the open question"
    )


def _find_beyond(decision: Decision) -> str | None:
    if decision.verdict not in _YES_OR_NO:
        return f"verdict {decision.verdict}"
    if decision.params is not None:
        return "editing the params"
    # It would be written into the call's record, and decide whether an equal call is ever made again.
    if decision.effect is not None:
        return f"saying effect {decision.effect}"
    return None
