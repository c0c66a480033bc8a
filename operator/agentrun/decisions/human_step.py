"""What a human's answer means for a node.

Whether an answer may be applied at all is judged in ``approval_rules``; here it becomes a move, and, where the outcome
of a call was in question, the answer that the idempotency record gets first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.exact_json import JsonObject, json_digest
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.node import Inbox, InboxKind, NodePhase
from agentrun.contract.object_meta import Actor
from agentrun.contract.run import NodeType
from agentrun.decisions.facts import NodeFacts
from agentrun.decisions.moves import Move


@dataclass(frozen=True, slots=True)
class RecordAnswer:
    """What a human says really happened; goes to the record as it was asked about, before the node moves."""

    key: str
    version: int
    effect: Effect


@dataclass(frozen=True, slots=True)
class HumanStep:
    """The move an accepted answer leads to, and what the record is told first."""

    move: Move | None
    """None: nothing moves (a dead node's question was closed)."""
    answer: RecordAnswer | None = None
    retry_run: bool = False
    """The run has ended: a ``retryOf`` run is to be made."""
    if_record_moved: Move | None = None
    """Instead of ``move``, when the record is another one by now."""


def read_decision(facts: NodeFacts, inbox: Inbox, decision: Decision) -> HumanStep:
    """Return the step that an accepted answer leads to."""
    actor = Actor(kind="human", name=decision.decided_by)
    answered: dict[str, object] = {"decided": (*facts.status.decided, inbox.id)[-32:]}
    said = decision.reason or f"{decision.verdict} by {decision.decided_by or 'a human'}"
    match decision.verdict:
        case Verdict.APPROVE:
            return HumanStep(_approve(facts, inbox, decision, said, answered, actor))
        case Verdict.REJECT:
            failure = Failure(
                effect=Effect.NOT_EXECUTED, failure_class=FailureClass.PERMANENT, reason=Reason.REJECTED, message=said
            )
            changes = {**answered, "failure": failure, "effect": Effect.NOT_EXECUTED}
            return HumanStep(Move(NodePhase.FAILED, Reason.REJECTED, said, changes, actor))
        case Verdict.RELEASE:
            return _release(facts, inbox, decision, said, answered, actor)
        case Verdict.RESOLVE:
            result = {
                "result": decision.result,
                "result_digest": json_digest(decision.result),
                "failure": None,
                "effect": Effect.EXECUTED,
            }
            resolved = Move(NodePhase.SUCCEEDED, Reason.RESOLVED, said, {**answered, **result}, actor)
            return HumanStep(
                resolved, _answer(inbox, Effect.EXECUTED), if_record_moved=_look_again(facts, answered, actor)
            )
        case Verdict.DISCARD:
            if inbox.kind is InboxKind.DEAD:
                return HumanStep(None)
            changes = {**answered, "effect": decision.effect or facts.status.effect}
            discarded = Move(NodePhase.DEAD, Reason.DISCARDED, said, changes, actor)
            return HumanStep(discarded, _answer(inbox, decision.effect) if decision.effect else None)
        case Verdict.REDRIVE:
            if not facts.run.lives or facts.run.ending is not None:
                return HumanStep(None, retry_run=True)
            changes = {**answered, **_fresh_start(facts), **_edited(decision)}
            return HumanStep(Move(NodePhase.READY, Reason.REDRIVEN, said, changes, actor))
        case _:
            assert_never(decision.verdict)


def _approve(
    facts: NodeFacts, inbox: Inbox, decision: Decision, said: str, answered: dict[str, object], actor: Actor
) -> Move:
    if facts.spec.node.type is NodeType.APPROVAL:
        result: JsonObject = {"approved": True, "by": decision.decided_by, "reason": decision.reason}
        changes = {**answered, "result": result, "result_digest": json_digest(result)}
        return Move(NodePhase.SUCCEEDED, Reason.APPROVED, said, changes, actor)
    if inbox.kind is InboxKind.GRANT:
        changes = {**answered, "attempts_granted": facts.status.attempts_granted + 1, **_edited(decision)}
        return Move(NodePhase.READY, Reason.RETRY_GRANTED, said, changes, actor)
    if inbox.kind is InboxKind.DUPLICATE:
        changes = {
            **answered,
            "own_key": f"{facts.spec.run.uid}/{facts.spec.path}/{inbox.id}",
            "call": None,
            "replay_of": "",
        }
        return Move(NodePhase.READY, Reason.APPROVED, said, {**changes, **_edited(decision)}, actor)
    digest = inbox.params_digest if decision.params is None else json_digest(decision.params)
    changes = {
        **answered,
        **_edited(decision),
        "approved_digests": (*facts.status.approved_digests, digest)[-16:],
    }
    return Move(NodePhase.READY, Reason.APPROVED, said, changes, actor)


def _release(
    facts: NodeFacts, inbox: Inbox, decision: Decision, said: str, answered: dict[str, object], actor: Actor
) -> HumanStep:
    changes = {**answered, **_fresh_start(facts), **_edited(decision)}
    released = Move(NodePhase.READY, Reason.RELEASED, said, changes, actor)
    if not inbox.unknown_outcome:
        return HumanStep(released)
    return HumanStep(released, _answer(inbox, Effect.NOT_EXECUTED), if_record_moved=_look_again(facts, answered, actor))


def _look_again(facts: NodeFacts, answered: dict[str, object], actor: Actor) -> Move:
    said = "the record had moved since the question was asked: the gate looks again"
    return Move(NodePhase.READY, Reason.RELEASED, said, {**answered, **_fresh_start(facts)}, actor)


def _answer(inbox: Inbox, effect: Effect) -> RecordAnswer | None:
    if not (inbox.unknown_outcome or inbox.executed) or not inbox.record_key:
        return None
    return RecordAnswer(inbox.record_key, inbox.record_version, effect)


def _fresh_start(facts: NodeFacts) -> dict[str, object]:
    return {"attempts_before": facts.status.attempt, "attempts_granted": 0, "active": None, "failure": None}


def _edited(decision: Decision) -> dict[str, object]:
    return {} if decision.params is None else {"edited_params": decision.params, "call": None}
