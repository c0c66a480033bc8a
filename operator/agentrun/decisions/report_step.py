"""What a worker's report means for a node: the steps it leads to, in order.

A report implies the earlier ones of its attempt, so reports may come late, twice or out of order: the machine passes
through the states between. Reports about older orders, and about nodes that have ended, change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from agentrun.contract.defaults import BUSY_RECHECK
from agentrun.contract.exact_json import json_digest
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.node import TERMINAL_NODE_PHASES, AgentNodeStatus, InboxKind, NodePhase
from agentrun.contract.object_meta import Actor
from agentrun.contract.orders import Amount, AttemptOutcome, Report, ReportKind
from agentrun.contract.tool import OnDuplicate, SideEffect
from agentrun.decisions.billing import bill_attempt, bill_recovery, bill_worst_case, correct_bill
from agentrun.decisions.deadlines import workers_heard_at
from agentrun.decisions.facts import NodeFacts
from agentrun.decisions.inboxes import open_inbox
from agentrun.decisions.moves import Fence, Move, NodeDecision, Touch, apply_move
from agentrun.decisions.node_states import TRANSITIONS

_HAND_BACK_PAUSE = timedelta(seconds=1)
_RUNNING_FAILURES = next(
    row.reasons for row in TRANSITIONS if (row.from_phase, row.to_phase) == (NodePhase.RUNNING, NodePhase.FAILED)
)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One report being read against the node's status."""

    facts: NodeFacts
    report: Report

    @property
    def actor(self) -> Actor:
        return Actor(kind="worker", name=self.report.worker)


def read_report(facts: NodeFacts, report: Report) -> tuple[NodeDecision, ...]:
    """Return the steps that a report leads to; empty when it says nothing new."""
    status = facts.status
    if report.kind is ReportKind.COST_KNOWN:
        return _cost_known(facts, report)
    if status.phase in TERMINAL_NODE_PHASES:
        return ()
    if report.kind is ReportKind.RECORD_FREED:
        return _record_freed(status)
    # Reports of older orders are history.
    if report.seq < status.seq:
        return ()
    steps: list[NodeDecision] = []
    reading = _Reading(facts, report)
    current = status
    for step in _catch_up(reading):
        steps.append(step)
        current = _after(current, step, facts)
    steps.extend(_read(reading, current))
    return tuple(steps)


def _cost_known(facts: NodeFacts, report: Report) -> tuple[NodeDecision, ...]:
    """Let what is known take an estimate's place, whatever has become of the node: its state stays what it is."""
    status = facts.status
    steps: list[NodeDecision] = []
    if status.phase is NodePhase.RUNNING and not status.recovering and report.attempt == status.attempt:
        # The ledger had been told that it was lost, and whoever told it died before writing that down.
        lost = _lost(_Reading(facts, report), status)
        steps.append(Fence(lost))
        status = _after(status, lost, facts)
    changes = correct_bill(status, report.attempt, report.outcome.usage if report.outcome else Amount())
    return (*steps, Touch(changes)) if changes else tuple(steps)


def _after(status: AgentNodeStatus, step: NodeDecision, facts: NodeFacts) -> AgentNodeStatus:
    if isinstance(step, Move):
        return apply_move(status, step, facts.run.now, facts.run.pause_total)[0]
    return status


def _catch_up(reading: _Reading) -> list[Move]:
    """Pass through what the status does not say yet: the order went out before the scheduler could write it down."""
    status, report = reading.facts.status, reading.report
    if report.seq > status.seq and not report.recovering:
        # It was due, or taken back, and sent again.
        if status.phase is NodePhase.RETRY_WAIT:
            return [Move(NodePhase.READY, Reason.RETRY_DUE), _queued(report)]
        if status.phase is NodePhase.QUEUED:
            said = f"order {status.seq} was taken back"
            return [Move(NodePhase.READY, Reason.HANDED_BACK, said), _queued(report)]
    if status.phase is not NodePhase.READY:
        return []
    if report.seq == status.seq and status.reason != Reason.DISPATCHED:
        # This very order was dealt with and left behind (handed back, say).
        return [] if report.kind in _LEAVES_QUEUE else [_queued(report)]
    return [_queued(report)]


_LEAVES_QUEUE = frozenset({ReportKind.BUSY, ReportKind.HANDED_BACK, ReportKind.DEADLINE_PASSED, ReportKind.CLAIMED})


def _queued(report: Report) -> Move:
    return Move(NodePhase.QUEUED, Reason.DISPATCHED, "", {"seq": report.seq, "epoch": report.epoch})


def _read(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    report = reading.report
    match report.kind:
        case ReportKind.CLAIMED:
            return _claimed(reading, status)
        case ReportKind.COMMITTED:
            return _committed(reading, status)
        case ReportKind.ADOPTED:
            return _adopted(reading, status)
        case ReportKind.LOST:
            return _silent(reading, status)
        case (
            ReportKind.REPLAYED
            | ReportKind.BUSY
            | ReportKind.RECOVER
            | ReportKind.CONFLICT
            | ReportKind.DUPLICATE
            | ReportKind.DEADLINE_PASSED
            | ReportKind.POISON
        ):
            if status.phase is NodePhase.QUEUED:
                return [_leave_queue(reading, status)]
            # One that was read is read again at each look: it must not put off what comes after it.
            asks = status.phase is NodePhase.TIMED_OUT and report.recovering and status.recovering
            return [_not_recovered(reading, status)] if asks else []
        case ReportKind.HANDED_BACK:
            return _handed_back(reading, status)
        case ReportKind.RECORD_FREED | ReportKind.COST_KNOWN:
            return []
        case _:
            assert_never(report.kind)


def _claimed(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    report, now = reading.report, reading.facts.run.now
    ends = now + timedelta(milliseconds=report.deadline_ms)
    if report.recovering:
        if status.phase is NodePhase.TIMED_OUT:
            return [Touch({"worker": report.worker})]
        return []
    if status.phase is not NodePhase.QUEUED:
        return []
    return [_start(reading, {"deadline": ends})]


def _start(reading: _Reading, changes: dict[str, object]) -> Move:
    report = reading.report
    return Move(
        NodePhase.RUNNING,
        Reason.CLAIMED,
        "",
        {"attempt": report.attempt, "worker": report.worker, **changes},
        reading.actor,
    )


def _adopted(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    if status.phase is not NodePhase.TIMED_OUT:
        return []
    deadline = status.deadline or reading.facts.run.now + reading.facts.run.waits.recovery
    return [
        Move(
            NodePhase.RUNNING,
            Reason.RECOVERED_RUNNING,
            "the lookup says that it is still being executed",
            {"recovering": True, "deadline": deadline, "worker": reading.report.worker},
            reading.actor,
        )
    ]


def _silent(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    if reading.report.recovering:
        return _recovery_lost(reading, status)
    if status.recovering:
        return []
    run = reading.facts.run
    # It may only not have got through: it is looked at again when everybody has had the time.
    too_early = workers_heard_at(run.ledger_since, run.now) is not None
    if status.phase is NodePhase.RUNNING:
        return [] if too_early else [Fence(_lost(reading, status))]
    if status.phase is not NodePhase.QUEUED:
        return []
    # Who read that it was claimed died before writing that down: it was claimed all the same, and nobody works on it.
    claimed = _start(reading, {"deadline": reading.facts.run.now})
    return [claimed] if too_early else [claimed, Fence(_lost(reading, _after(status, claimed, reading.facts)))]


def _recovery_lost(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    """Have the next worker ask what became of the call: asking again is harmless, and the recovery's time goes on."""
    if not status.recovering:
        return []
    if status.phase is NodePhase.TIMED_OUT:
        return [Touch({"recovering": False, "due_at": None})]
    if status.phase is not NodePhase.RUNNING:
        return []
    said = f"worker {status.worker}, which had found it still being executed, fell silent"
    return [Move(NodePhase.TIMED_OUT, Reason.HEARTBEAT_LOST, said, {"deadline": status.deadline})]


def _lost(reading: _Reading, status: AgentNodeStatus) -> Move:
    changes = {"failure": None, "effect": Effect.UNKNOWN, **bill_worst_case(status)}
    return Move(NodePhase.TIMED_OUT, Reason.HEARTBEAT_LOST, f"worker {status.worker} fell silent", changes)


def _committed(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    report, outcome = reading.report, reading.report.outcome
    if outcome is None:
        return []
    if report.recovering:
        if status.phase is NodePhase.TIMED_OUT or (status.phase is NodePhase.RUNNING and status.recovering):
            billed = {**bill_recovery(status, outcome), "raw_output": outcome.raw_output}
            return [_recovered(reading, status, outcome, billed)]
        return []
    steps: list[NodeDecision] = []
    if status.phase is NodePhase.QUEUED:
        started = _start(reading, {"deadline": reading.facts.run.now})
        steps.append(started)
        status = _after(status, started, reading.facts)
    if status.phase is not NodePhase.RUNNING or status.recovering:
        return steps
    billed = {**bill_attempt(status, outcome), "raw_output": outcome.raw_output}
    steps.append(_ended(reading, status, outcome, billed))
    return steps


def _ended(reading: _Reading, status: AgentNodeStatus, outcome: AttemptOutcome, billed: dict[str, object]) -> Move:
    facts = reading.facts
    ending = facts.run.ending
    failure = outcome.failure
    # After a cancel the truth is kept and nobody depends on it any more.
    if ending is not None and ending.cancels_running:
        return Move(
            NodePhase.CANCELLED,
            Reason.CANCELLED,
            f"cancelled; the attempt had ended with effect {outcome.effect}",
            {**billed, "effect": outcome.effect, "failure": failure},
            reading.actor,
        )
    if failure is None:
        return Move(NodePhase.SUCCEEDED, Reason.COMPLETED, "", {**billed, **_result(outcome)}, reading.actor)
    facts_of_failure = {**billed, "failure": failure, "effect": failure.effect}
    # Nobody knows whether it happened: ask before anything else, unless a repetition is harmless and free.
    if failure.effect is Effect.UNKNOWN and _must_ask_first(facts, status):
        return Move(NodePhase.TIMED_OUT, Reason.EFFECT_UNKNOWN, failure.message, facts_of_failure, reading.actor)
    reason = failure.reason if failure.reason in _RUNNING_FAILURES else Reason.TOOL_FAILED
    said = failure.message if reason == failure.reason else f"{failure.reason}: {failure.message}"
    return Move(NodePhase.FAILED, reason, said, facts_of_failure, reading.actor)


def _must_ask_first(facts: NodeFacts, status: AgentNodeStatus) -> bool:
    if facts.tool is None or facts.tool.side_effect is SideEffect.ONCE:
        return True
    paid = status.call is not None and status.call.hold_micros > 0
    return paid and facts.tool.recovery is not None


def _recovered(reading: _Reading, status: AgentNodeStatus, outcome: AttemptOutcome, billed: dict[str, object]) -> Move:
    facts, actor = reading.facts, reading.actor
    adopted = status.phase is NodePhase.RUNNING
    failure = outcome.failure
    if failure is None:
        reason = Reason.COMPLETED if adopted else Reason.RECOVERED_COMPLETED
        ending = facts.run.ending
        if ending is not None and ending.cancels_running:
            said = "cancelled; the recovery found that it had been executed"
            return Move(NodePhase.CANCELLED, Reason.CANCELLED, said, {**billed, "effect": Effect.EXECUTED}, actor)
        return Move(NodePhase.SUCCEEDED, reason, "the lookup found it completed", {**billed, **_result(outcome)}, actor)
    changes = {**billed, "failure": failure, "effect": failure.effect}
    if failure.effect is Effect.NOT_EXECUTED:
        return Move(NodePhase.FAILED, Reason.RECOVERED_NOT_EXECUTED, failure.message, changes, actor)
    once = facts.tool is None or facts.tool.side_effect is SideEffect.ONCE
    if not once and failure.effect is Effect.UNKNOWN:
        return Move(NodePhase.FAILED, Reason.EFFECT_UNKNOWN, failure.message, changes, actor)
    executed = failure.effect is Effect.EXECUTED
    inbox = open_inbox(
        status,
        InboxKind.QUARANTINE,
        facts.run.now,
        facts.run.waits.inbox,
        unknown_outcome=not executed,
        executed=executed,
    )
    return Move(NodePhase.QUARANTINED, Reason.OUTCOME_UNKNOWN, failure.message, {**changes, **inbox}, actor)


def _not_recovered(reading: _Reading, status: AgentNodeStatus) -> NodeDecision:
    """The gate turned a recovery away: the outcome is known by now, or it is asked again a little later."""
    report, now = reading.report, reading.facts.run.now
    if report.kind is ReportKind.REPLAYED and report.outcome is not None:
        said = f"the outcome is known: result of {report.holder}"
        changes = {**_result(report.outcome), "replay_of": report.holder}
        return Move(NodePhase.SUCCEEDED, Reason.RECOVERED_COMPLETED, said, changes, reading.actor)
    return Touch({"recovering": False, "due_at": now + _HAND_BACK_PAUSE})


def _leave_queue(reading: _Reading, status: AgentNodeStatus) -> Move:
    facts, report, actor = reading.facts, reading.report, reading.actor
    now, waits = facts.run.now, facts.run.waits
    match report.kind:
        case ReportKind.REPLAYED:
            outcome = report.outcome or AttemptOutcome(effect=Effect.EXECUTED)
            changes = {**_result(outcome), "replay_of": report.holder}
            return Move(NodePhase.SUCCEEDED, Reason.REPLAYED, f"result of {report.holder}", changes, actor)
        case ReportKind.RECOVER:
            said = f"an equal call of {report.holder} stands with an open outcome"
            return Move(NodePhase.TIMED_OUT, Reason.EFFECT_UNKNOWN, said, {"failure": None}, actor)
        case ReportKind.CONFLICT:
            said = f"its idempotency key belongs to a call of {report.holder} with other params"
            return Move(
                NodePhase.QUARANTINED,
                Reason.CONFLICT,
                said,
                open_inbox(status, InboxKind.QUARANTINE, now, waits.inbox),
                actor,
            )
        case ReportKind.POISON:
            return Move(
                NodePhase.QUARANTINED,
                Reason.POISON_ORDER,
                "the order was delivered too often without being claimed: it may be killing its workers",
                open_inbox(status, InboxKind.QUARANTINE, now, waits.inbox),
                actor,
            )
        case ReportKind.DUPLICATE:
            return _duplicate(reading, status)
        case ReportKind.DEADLINE_PASSED:
            if facts.run.deadline is not None and now >= facts.run.deadline:
                return _failed_unused(Reason.DEADLINE_EXCEEDED, "the run's deadline passed before the claim", actor)
            return Move(NodePhase.READY, Reason.NEVER_CLAIMED, "claimed too late", {}, actor)
        case _:
            changes = {"waiting_for": f"Idempotency({report.holder})", "due_at": now + BUSY_RECHECK}
            return Move(
                NodePhase.READY, Reason.HANDED_BACK, f"an equal call of {report.holder} is at work", changes, actor
            )


def _duplicate(reading: _Reading, status: AgentNodeStatus) -> Move:
    facts, report = reading.facts, reading.report
    rule = facts.tool.idempotency.on_duplicate if facts.tool and facts.tool.idempotency else OnDuplicate.REJECT
    said = f"an equal call was made by {report.holder}"
    if rule is OnDuplicate.ASK:
        inbox = open_inbox(status, InboxKind.DUPLICATE, facts.run.now, facts.run.waits.inbox)
        changes = {**inbox, "replay_of": report.holder}
        return Move(NodePhase.WAITING_APPROVAL, Reason.DUPLICATE_ASKED, said, changes, reading.actor)
    return _failed_unused(Reason.DUPLICATE_REJECTED, said, reading.actor)


def _failed_unused(reason: Reason, said: str, actor: Actor) -> Move:
    failure = Failure(effect=Effect.NOT_EXECUTED, failure_class=FailureClass.PERMANENT, reason=reason, message=said)
    return Move(NodePhase.FAILED, reason, said, {"failure": failure, "effect": Effect.NOT_EXECUTED}, actor)


def _handed_back(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    report = reading.report
    if report.recovering:
        return _recovery_handed_back(reading, status)
    changes: dict[str, object] = {"due_at": reading.facts.run.now + _HAND_BACK_PAUSE, "waiting_for": report.reason}
    if status.phase is NodePhase.QUEUED:
        return [Move(NodePhase.READY, Reason.HANDED_BACK, report.reason, changes, reading.actor)]
    if status.phase is NodePhase.RUNNING and not status.recovering and status.attempt == report.attempt:
        # Nothing was executed under that claim: it was no attempt.
        changes["attempt"] = status.attempt - 1
        return [Move(NodePhase.READY, Reason.HANDED_BACK, report.reason, changes, reading.actor)]
    return []


def _recovery_handed_back(reading: _Reading, status: AgentNodeStatus) -> list[NodeDecision]:
    """Have another worker ask what became of the call; the recovery's time goes on."""
    if not status.recovering:
        return []
    if status.phase is NodePhase.TIMED_OUT:
        return [_not_recovered(reading, status)]
    if status.phase is not NodePhase.RUNNING:
        return []
    said = f"worker {status.worker}, which had found it still being executed, gave the recovery back"
    changes = {"deadline": status.deadline, "due_at": reading.facts.run.now + _HAND_BACK_PAUSE}
    return [Move(NodePhase.TIMED_OUT, Reason.HANDED_BACK, said, changes, reading.actor)]


def _record_freed(status: AgentNodeStatus) -> tuple[NodeDecision, ...]:
    if status.phase is NodePhase.READY and status.waiting_for.startswith("Idempotency("):
        # What it says it waits for stands until it goes out, or something else holds it.
        return (Touch({"due_at": None}),)
    return ()


def _result(outcome: AttemptOutcome) -> dict[str, object]:
    return {"result": outcome.result, "result_digest": json_digest(outcome.result)}
