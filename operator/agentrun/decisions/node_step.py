"""The next step of one node: the only place that decides it.

Called by the engine's turn for every node that something happened to. Early returns, one fact of the world above each.
What a report, a failure or a human's answer leads to stands in report_step, failed_step and human_step.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from agentrun.contract.defaults import BUSY_RECHECK, CLAIM_WITHIN, HEARTBEAT_INTERVAL, HEARTBEAT_SILENCE
from agentrun.contract.exact_json import canonical_json
from agentrun.contract.execution import ExecutionMode
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.node import TERMINAL_NODE_PHASES, CallStatus, InboxKind, NodePhase
from agentrun.contract.run import NodeType, RunPhase
from agentrun.contract.tool import SideEffect
from agentrun.decisions.approval_rules import call_needs_approval
from agentrun.decisions.billing import bill_worst_case
from agentrun.decisions.calls import CallRefused
from agentrun.decisions.conditions import ConditionError, choose_case
from agentrun.decisions.deadlines import phase_deadline, workers_heard_at
from agentrun.decisions.facts import NodeFacts, OrderSight
from agentrun.decisions.failed_step import decide_failed
from agentrun.decisions.inboxes import open_inbox
from agentrun.decisions.join_rules import Met, NotChosen, Skip, Unsatisfiable, Waiting
from agentrun.decisions.moves import (
    Expand,
    Fence,
    GiveUpRecovery,
    Move,
    NodeDecision,
    Recover,
    Send,
    Stay,
    TakeBack,
    Touch,
)
from agentrun.decisions.priorities import PriorityUndecidedError, node_priority
from agentrun.decisions.references import UnresolvedReferenceError, parse_template, resolve_template
from agentrun.decisions.run_waits import waits_for_job


def decide_node(facts: NodeFacts, call: CallStatus | CallRefused | None = None) -> NodeDecision:
    """Return what happens to the node now. ``call`` is the built call of a Task that is Ready."""
    phase = facts.status.phase
    if phase in TERMINAL_NODE_PHASES:
        return Stay()
    # The run has its outcome, or the fan-out above has: what has not begun is not begun any more.
    ended = _end_with_run(facts) or _end_with_parent(facts)
    if ended is not None:
        return ended
    if not facts.run.admitted:
        return Stay()
    match phase:
        case NodePhase.PENDING:
            return _pending(facts)
        case NodePhase.READY:
            return _ready(facts, call)
        case NodePhase.QUEUED:
            return _queued(facts)
        case NodePhase.RUNNING:
            return _running(facts)
        case NodePhase.TIMED_OUT:
            return _timed_out(facts)
        case NodePhase.FAILED:
            return decide_failed(facts)
        case NodePhase.RETRY_WAIT:
            return _retry_wait(facts)
        case NodePhase.WAITING_APPROVAL | NodePhase.QUARANTINED:
            return _inbox(facts)
        case NodePhase.EXPANDED:
            return _expanded(facts)
        case NodePhase.SUCCEEDED | NodePhase.SKIPPED | NodePhase.CANCELLED | NodePhase.DEAD:
            return Stay()
        case _:
            assert_never(phase)


def _end_with_run(facts: NodeFacts) -> NodeDecision | None:
    ending = facts.run.ending
    if ending is None:
        return None
    reason = Reason.CANCELLED if ending.phase is RunPhase.CANCELLED else Reason.RUN_ENDED
    gone = Move(NodePhase.CANCELLED, reason, ending.message or ending.reason)
    match facts.status.phase:
        case NodePhase.QUEUED:
            return TakeBack(gone)
        # What a worker may be doing ends by itself, or by its deadline; the truth about it is still wanted.
        case NodePhase.RUNNING:
            return _running(facts)
        case NodePhase.TIMED_OUT:
            return _timed_out(facts)
        # The children end first.
        case NodePhase.EXPANDED:
            return Stay() if isinstance(facts.children, Waiting) and facts.children.pending else gone
        case NodePhase.FAILED:
            decision = decide_failed(facts)
            return decision if isinstance(decision, Move) and decision.to in TERMINAL_NODE_PHASES else gone
        case _:
            return gone


def _end_with_parent(facts: NodeFacts) -> NodeDecision | None:
    if not facts.parent_ended:
        return None
    gone = Move(NodePhase.CANCELLED, Reason.NO_LONGER_NEEDED, "the fan-out has its outcome without this instance")
    match facts.status.phase:
        case NodePhase.QUEUED:
            return TakeBack(gone)
        case NodePhase.RUNNING | NodePhase.TIMED_OUT:
            return None
        case _:
            return gone


def _pending(facts: NodeFacts) -> NodeDecision:
    # A condition that ended without choosing this node has decided about it, whatever else it waits for.
    if isinstance(facts.chooser, NotChosen):
        return Move(NodePhase.SKIPPED, facts.chooser.reason, "no condition chose it")
    if not isinstance(facts.chooser, Waiting):
        match facts.join:
            case Skip():
                return Move(NodePhase.SKIPPED, facts.join.reason, "a node it depends on was skipped")
            case Unsatisfiable():
                return Move(NodePhase.SKIPPED, facts.join.reason, facts.join.problem)
            case Met():
                return _become_ready(facts)
            case Waiting():
                pass
            case _:
                assert_never(facts.join)
    # The clock of this wait stands still while a human has an upstream node in hand.
    if facts.run.suspended or facts.upstream_in_inbox:
        return Stay(waiting_for="Human" if facts.upstream_in_inbox else "Suspended")
    since = facts.status.entered_at + facts.inbox_pause
    until = _deadline_on_run_clock(facts, since, facts.run.waits.dependencies)
    if facts.run.now < until:
        return Stay(until, "Dependencies")
    return Move(
        NodePhase.QUARANTINED,
        Reason.DEPENDENCY_WAIT_EXCEEDED,
        f"waited for upstream nodes longer than {facts.run.waits.dependencies}",
        open_inbox(facts.status, InboxKind.QUARANTINE, facts.run.now, facts.run.waits.inbox),
    )


def _become_ready(facts: NodeFacts) -> NodeDecision:
    if facts.held_by_fan_out:
        return Stay(waiting_for=f"FanOut({facts.spec.parent})")
    try:
        priority = node_priority(facts.spec.node, facts.run.spec.priority, facts.scope)
    except PriorityUndecidedError as error:
        return _quarantine(facts, Reason.REFERENCE_UNRESOLVED, str(error))
    return Move(NodePhase.READY, Reason.DEPENDENCIES_MET, "", {"priority": priority})


def _ready(facts: NodeFacts, call: CallStatus | CallRefused | None) -> NodeDecision:
    match facts.spec.node.type:
        case NodeType.CONDITION:
            return _evaluate_condition(facts)
        case NodeType.JOIN:
            return Move(NodePhase.SUCCEEDED, Reason.JOIN_MET)
        case NodeType.FAN_OUT:
            return _expand(facts)
        case NodeType.APPROVAL:
            return _ask_approval(facts)
        case NodeType.TASK:
            return _ready_task(facts, call)
        case _:
            assert_never(facts.spec.node.type)


def _evaluate_condition(facts: NodeFacts) -> NodeDecision:
    condition = facts.spec.node.condition
    if condition is None:
        raise ValueError("a Condition node has a condition: the contract says so")
    try:
        chosen = choose_case(condition, facts.scope)
    except ConditionError as error:
        return _fail(facts, Reason.CONDITION_ERROR, str(error))
    return Move(
        NodePhase.SUCCEEDED,
        Reason.CONDITION_MET,
        f"chose {chosen}" if chosen else "no case held and there is no default",
        {"chosen": chosen or "-", "result": {"chosen": chosen}},
    )


def _expand(facts: NodeFacts) -> NodeDecision:
    fan_out = facts.spec.node.fan_out
    if fan_out is None:
        raise ValueError("a FanOut node has a fanOut: the contract says so")
    if facts.status.waiting_for:
        # The cluster has refused its instances, a quota being full.
        waits = _wait_in_line(facts)
        if waits is not None:
            return waits
    try:
        items = resolve_template(parse_template(fan_out.items), facts.scope)
    except UnresolvedReferenceError as error:
        return _quarantine(facts, Reason.REFERENCE_UNRESOLVED, str(error))
    if not isinstance(items, list):
        return _quarantine(facts, Reason.PARAMS_INVALID, f"fanOut.items is no list but {type(items).__name__}")
    if len(items) > fan_out.max_items:
        return _fail(
            facts, Reason.TOO_MANY_ITEMS, f"fanOut.items has {len(items)} items, maxItems is {fan_out.max_items}"
        )
    return Expand(
        tuple(items),
        Move(NodePhase.EXPANDED, Reason.EXPANDED, f"{len(items)} instances", {"children": len(items)}),
    )


def _ask_approval(facts: NodeFacts) -> NodeDecision:
    question = facts.spec.node.approval
    try:
        asked = resolve_template(parse_template(question.message), facts.scope) if question else ""
    except UnresolvedReferenceError as error:
        return _quarantine(facts, Reason.REFERENCE_UNRESOLVED, str(error))
    expires = question.expires_after if question and question.expires_after else facts.run.waits.inbox
    return Move(
        NodePhase.WAITING_APPROVAL,
        Reason.APPROVAL_REQUIRED,
        asked if isinstance(asked, str) else canonical_json(asked),
        open_inbox(facts.status, InboxKind.CALL, facts.run.now, expires),
    )


def _ready_task(facts: NodeFacts, call: CallStatus | CallRefused | None) -> NodeDecision:
    status, run, now = facts.status, facts.run, facts.run.now
    if call is None:
        raise ValueError("a ready task is decided with its call")
    if isinstance(call, CallRefused):
        return _quarantine(facts, call.reason, call.message)
    # Another node's approval pauses the whole run.
    if run.held_by and run.held_by != facts.spec.path:
        return Stay(waiting_for=f"Approval({run.held_by})")
    # The policy looks at the final params, and an approval holds for exactly these.
    if facts.tool is not None and call.params_digest not in status.approved_digests:
        needed = call_needs_approval(facts.tool, call.params)
        if needed is not None:
            expires = facts.tool.approval.expires_after if facts.tool.approval else None
            return Move(
                NodePhase.WAITING_APPROVAL,
                Reason.APPROVAL_REQUIRED,
                needed,
                {
                    "call": call,
                    **open_inbox(
                        status.model_copy(update={"call": call}), InboxKind.CALL, now, expires or run.waits.inbox
                    ),
                },
            )
    if status.waiting_for.startswith("Idempotency(") and status.due_at is not None:
        return _held_too_long(facts) or _look_at_record_again(facts, call, status.due_at)
    if run.suspended:
        return Stay(waiting_for="Suspended")
    return _wait_in_line(facts) or Send(call)


def _wait_in_line(facts: NodeFacts) -> NodeDecision | None:
    status, now, limit = facts.status, facts.run.now, facts.run.waits.queue
    if now >= _deadline_on_run_clock(facts, status.queued_since or status.entered_at, limit):
        waited_for = f" for {status.waiting_for}" if status.waiting_for else ""
        if waits_for_job(status.waiting_for) and status.message:
            waited_for += f": {status.message}"
        return _fail(facts, Reason.QUEUE_WAIT_EXCEEDED, f"waited in line longer than {limit}{waited_for}")
    if status.due_at is not None and now < status.due_at:
        return Stay(status.due_at, status.waiting_for)
    return None


def _look_at_record_again(facts: NodeFacts, call: CallStatus, due_at: datetime) -> NodeDecision:
    now, waiting_for = facts.run.now, facts.status.waiting_for
    if now < due_at:
        return Stay(due_at, waiting_for)
    # To ask at the gate costs a tool of mode Job a pod each time; while the owner lives the answer is known.
    if not facts.run.suspended and not (facts.owner_lives and _has_jobs(facts)):
        return Send(call)
    # The run stands still because of the very question that the record's owner waits for: so does this node.
    if facts.owner_lives:
        return Stay(now + BUSY_RECHECK, waiting_for)
    return Touch({"due_at": None, "waiting_for": ""})


def _has_jobs(facts: NodeFacts) -> bool:
    execution = facts.tool.execution if facts.tool is not None else None
    return execution is not None and execution.mode is ExecutionMode.JOB


def _held_too_long(facts: NodeFacts) -> Move | None:
    # The wait in line stands still while the record's owner lives; but nothing waits for ever.
    since = facts.status.queued_since or facts.status.entered_at
    limit = facts.run.waits.inbox if facts.owner_lives else facts.run.waits.queue
    if facts.run.now < _deadline_on_run_clock(facts, since, limit):
        return None
    return _quarantine(facts, Reason.HELD_BY_OTHER, f"waited longer than {limit} for {facts.status.waiting_for}")


def _queued(facts: NodeFacts) -> NodeDecision:
    status, run, now = facts.status, facts.run, facts.run.now
    if run.deadline is not None and now >= run.deadline:
        return TakeBack(_fail(facts, Reason.DEADLINE_EXCEEDED, "the run's deadline passed before a worker claimed it"))
    if facts.sight is OrderSight.GONE:
        return TakeBack(Move(NodePhase.READY, Reason.ORDER_LOST, "the ledger lost the order"))
    if run.suspended:
        return TakeBack(Move(NodePhase.READY, Reason.HANDED_BACK, "the run is suspended"))
    waits_until = _deadline_on_run_clock(facts, status.queued_since or status.entered_at, run.waits.queue)
    if now >= waits_until:
        return TakeBack(_fail(facts, Reason.QUEUE_WAIT_EXCEEDED, f"waited in line longer than {run.waits.queue}"))
    claimed_by = status.entered_at + CLAIM_WITHIN
    if now >= claimed_by:
        return TakeBack(Move(NodePhase.READY, Reason.NEVER_CLAIMED, f"no worker claimed it within {CLAIM_WITHIN}"))
    return Stay(min(claimed_by, waits_until, *([run.deadline] if run.deadline else [])))


def _running(facts: NodeFacts) -> NodeDecision:
    status, now = facts.status, facts.run.now
    deadline = status.deadline or status.entered_at
    heard = workers_heard_at(facts.run.ledger_since, facts.run.now)
    if heard is not None:
        return Stay(heard)
    # The worker's own timeout comes first; this is for workers that cannot say so any more.
    late = deadline + HEARTBEAT_INTERVAL
    if now >= late:
        if status.recovering:
            return GiveUpRecovery(_outcome_unknown(facts, "the call was still running when the recovery's time ended"))
        return Fence(_time_out(facts, Reason.ATTEMPT_TIMEOUT, "no report came by the attempt's deadline"))
    if facts.sight is OrderSight.SILENT and not status.recovering:
        return Fence(_time_out(facts, Reason.HEARTBEAT_LOST, "the worker has not been heard of for too long"))
    if facts.sight is OrderSight.GONE and not status.recovering:
        # No claim, no report: whoever made the call cannot say so any more.
        return Fence(_time_out(facts, Reason.LEDGER_LOST, "the ledger lost its data while the call was out"))
    return Stay(min(late, now + HEARTBEAT_SILENCE))


def _timed_out(facts: NodeFacts) -> NodeDecision:
    status, tool, now = facts.status, facts.tool, facts.run.now
    once = tool is None or tool.side_effect is SideEffect.ONCE
    lookup = tool is not None and tool.recovery is not None
    paid = status.call is not None and status.call.hold_micros > 0
    # Repeating is harmless, so nobody has to be asked; but a paid call with a lookup is asked about first.
    if not once and not (lookup and paid):
        failure = status.failure or Failure(
            effect=Effect.UNKNOWN, failure_class=FailureClass.RETRYABLE, reason=status.reason, message=status.message
        )
        return Move(NodePhase.FAILED, status.reason, status.message, {"failure": failure, "effect": failure.effect})
    deadline = status.deadline or status.entered_at + facts.run.waits.recovery
    if not status.recovering:
        # The worker itself said that it does not know, and there is nobody to ask.
        if once and not lookup and status.failure is not None:
            return _outcome_unknown(facts, status.failure.message)
        # Turned away by the gate just now: it is asked again a little later, and not for ever.
        if status.due_at is not None and now < status.due_at and now < deadline:
            return Stay(min(status.due_at, deadline))
        if now >= deadline:
            return _give_up(facts)
        return Recover()
    if facts.sight is OrderSight.GONE and now < deadline:
        return Recover()
    if now >= deadline:
        return _give_up(facts)
    return Stay(min(deadline, now + HEARTBEAT_SILENCE))


def _give_up(facts: NodeFacts) -> NodeDecision:
    heard = workers_heard_at(facts.run.ledger_since, facts.run.now)
    if heard is not None:
        return Stay(heard)
    return GiveUpRecovery(_outcome_unknown(facts, "the recovery brought no answer in time"))


def _retry_wait(facts: NodeFacts) -> NodeDecision:
    if facts.run.suspended:
        return Stay(waiting_for="Suspended")
    due = facts.status.due_at or facts.status.entered_at
    if facts.run.now < due:
        return Stay(due)
    return Move(NodePhase.READY, Reason.RETRY_DUE)


def _inbox(facts: NodeFacts) -> NodeDecision:
    inbox = facts.status.inbox
    expires = inbox.expires_at if inbox else None
    if expires is None or facts.run.now < expires:
        return Stay(expires, "Human")
    said = "nobody answered in time"
    if facts.status.phase is NodePhase.QUARANTINED:
        return Move(NodePhase.DEAD, Reason.EXPIRED, said, _answered(facts))
    failure = Failure(
        effect=Effect.NOT_EXECUTED, failure_class=FailureClass.PERMANENT, reason=Reason.EXPIRED, message=said
    )
    return Move(NodePhase.FAILED, Reason.EXPIRED, said, {"failure": failure, **_answered(facts)})


def _expanded(facts: NodeFacts) -> NodeDecision:
    match facts.children:
        case Met() | Skip():
            return Move(NodePhase.SUCCEEDED, Reason.JOIN_MET, f"{facts.status.children} instances")
        case Unsatisfiable():
            return _fail(facts, Reason.CHILDREN_FAILED, facts.children.problem)
        case Waiting():
            return Stay(waiting_for="Children")
        case _:
            assert_never(facts.children)


def _outcome_unknown(facts: NodeFacts, said: str) -> Move:
    """Where nobody can say what happened: a human must, for a Once tool; others may simply be repeated."""
    if facts.tool is not None and facts.tool.side_effect is not SideEffect.ONCE:
        failure = Failure(
            effect=Effect.UNKNOWN, failure_class=FailureClass.RETRYABLE, reason=Reason.EFFECT_UNKNOWN, message=said
        )
        return Move(NodePhase.FAILED, Reason.EFFECT_UNKNOWN, said, {"failure": failure, "effect": Effect.UNKNOWN})
    return Move(
        NodePhase.QUARANTINED,
        Reason.OUTCOME_UNKNOWN,
        said,
        {
            "effect": Effect.UNKNOWN,
            **open_inbox(
                facts.status, InboxKind.QUARANTINE, facts.run.now, facts.run.waits.inbox, unknown_outcome=True
            ),
        },
    )


def _time_out(facts: NodeFacts, reason: Reason, said: str) -> Move:
    changes = {"failure": None, "effect": Effect.UNKNOWN, **bill_worst_case(facts.status)}
    return Move(NodePhase.TIMED_OUT, reason, said, changes)


def _fail(facts: NodeFacts, reason: Reason, said: str) -> Move:
    failure = Failure(effect=Effect.NOT_EXECUTED, failure_class=FailureClass.PERMANENT, reason=reason, message=said)
    return Move(NodePhase.FAILED, reason, said, {"failure": failure, "effect": Effect.NOT_EXECUTED})


def _quarantine(facts: NodeFacts, reason: str, said: str) -> Move:
    return Move(
        NodePhase.QUARANTINED,
        reason,
        said,
        open_inbox(facts.status, InboxKind.QUARANTINE, facts.run.now, facts.run.waits.inbox),
    )


def _answered(facts: NodeFacts) -> dict[str, object]:
    inbox = facts.status.inbox
    return {"decided": (*facts.status.decided, inbox.id)[-32:]} if inbox else {}


def _deadline_on_run_clock(facts: NodeFacts, since: datetime, limit: timedelta) -> datetime:
    return phase_deadline(since, limit, facts.status.pause_at_entry, facts.run.pause_total)
