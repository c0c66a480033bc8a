"""What must hold in every history: each promise a function that is named for it, with the promise as its first line.

``simulation.witness`` asks: the first group at every call and effect outside, the second at every step of the ledger,
the third at every change of an object, the last one after the end. What is judged was seen from outside: effects as the
simulated provider booked them, objects as the cluster stored them, the ledger as it stands. Nothing here asks the
engine. Every exception stands in the promise's text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NoReturn

from agentrun.contract.failures import Reason
from agentrun.contract.node import INBOX_PHASES, TERMINAL_NODE_PHASES, AgentNode, AgentNodeStatus, NodePhase
from agentrun.contract.orders import Amount, AttemptOutcome, Order, OrderKind
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, Budget, NodeType, RunPhase
from agentrun.contract.tool import SideEffect
from agentrun.decisions.node_states import TRANSITIONS
from agentrun.ledger.memory_state import RecordState
from agentrun.ledger.port import RecordStatus, RunCounters

_LEGAL = {(str(row.from_phase), str(row.to_phase)) for row in TRANSITIONS}
_PATIENCE = timedelta(seconds=5)
_NOTHING = Amount()


class BrokenPromiseError(AssertionError):
    """An invariant fell; ``promise`` is its name."""

    def __init__(self, promise: str, said: str) -> None:
        super().__init__(f"{promise}: {said}")
        self.promise = promise


@dataclass(frozen=True, slots=True)
class BookedEffect:
    """Something that happened outside."""

    at: float
    """Virtual seconds."""
    tool: str
    side_effect: SideEffect
    key: str
    """The idempotency key that the provider was told."""
    request: str
    session: str
    run_uid: str
    token: str = ""
    """What the call gives, the same for nothing else."""


@dataclass(frozen=True, slots=True)
class CallUnderWay:
    """A call that has passed its worker's last check and has not ended."""

    request: str
    run_uid: str
    session: str


def _fail(promise: str, said: str) -> NoReturn:
    raise BrokenPromiseError(promise, said)


# --- at every call and effect outside


def no_once_effect_happens_twice(effect: BookedEffect, before: Iterable[BookedEffect], excuse: str = "") -> None:
    """What may happen only once has happened at most once under its key.

    Excused is a key about which the engine was told something false: a person said that the call had not been executed
    while it had been, or was still on its way; the tool's lookup lies; or ledger and objects were both taken away, and
    nothing that exists knows of the first call.
    """
    if effect.side_effect is not SideEffect.ONCE or excuse:
        return
    for earlier in before:
        _fail(
            "no_once_effect_happens_twice",
            f"{effect.tool} by {effect.request} at {effect.at:.3f}, and by {earlier.request} at {earlier.at:.3f}",
        )


def every_effect_is_of_a_claimed_attempt(request: str, claimed: bool, excuse: str = "") -> None:
    """A worker passes its last check only under a claim that the ledger gave and has not taken back.

    Excused is what nobody could have told the worker in time: the ledger has lost the claim meanwhile, or the
    scheduler's clock has jumped past the attempt's deadline.
    """
    if not claimed and not excuse:
        _fail("every_effect_is_of_a_claimed_attempt", request)


def a_session_has_effects_of_one_run_at_a_time(call: CallUnderWay, others: Iterable[CallUnderWay]) -> None:
    """While a run has a call under way in a session, no other run begins one there.

    ``others`` leaves out the calls of workers that have stood still meanwhile: their claims may have ended.
    """
    for other in others:
        if call.session and other.session == call.session and other.run_uid != call.run_uid:
            _fail(
                "a_session_has_effects_of_one_run_at_a_time",
                f"session {call.session}: {call.request} beside {other.request}",
            )


# --- at every step of the ledger


def money_is_never_over_the_limit(name: str, budget: Budget | None, spent: int) -> None:
    """A run's settled costs and live holds together stay within its budget.

    Not judged for runs that a lost ledger knew: holds of calls that were out are lost with it.
    """
    limit = budget.limit if budget is not None else None
    if limit is not None and spent > limit:
        _fail("money_is_never_over_the_limit", f"{name}: {spent} of {limit} micros")


def money_is_what_nodes_settled_and_hold(name: str, run: tuple[int, int], nodes: tuple[int, int]) -> None:
    """At every moment a run's counters, (settled, held), are the sums over its nodes."""
    if run != nodes:
        _fail("money_is_what_nodes_settled_and_hold", f"{name}: the run says {run}, its nodes {nodes}")


def slots_are_never_exceeded(limit: str, in_use: int, most: int) -> None:
    """No more attempts hold a slot than a limit has."""
    if in_use > most:
        _fail("slots_are_never_exceeded", f"{limit}: {in_use} of {most}")


def calls_under_way_are_never_more_than_slots(tool: str, under_way: int, most: int) -> None:
    """Seen from outside, no more calls of a tool are under way than it has slots.

    Not counted are the calls of workers that have stood still meanwhile: their slots may be others' by now.
    """
    if under_way > most:
        _fail("calls_under_way_are_never_more_than_slots", f"{tool}: {under_way} of {most}")


def rates_are_never_exceeded(tool: str, pause: float, per_second: int) -> None:
    """Between two claims of a tool lies at least the time that its rate asks for."""
    # The ledger counts whole milliseconds.
    if pause < 1 / per_second - 0.002:
        _fail("rates_are_never_exceeded", f"{tool}: {pause:.3f} s after the last one, {per_second} a second")


def reserved_slots_stay_free(priority: str, in_use: int, most: int) -> None:
    """What is less urgent than a priority with reserved slots never takes those.

    Judged for what one scheduler sends: what its predecessor has out it learns run by run, and after a ledger lost its
    data not at all.
    """
    if in_use > most:
        _fail("reserved_slots_stay_free", f"{in_use} of {most} slots are taken by what is less urgent than {priority}")


def a_success_on_record_stays(owner: str, outcome: AttemptOutcome | None, after: RecordState | None) -> None:
    """A record that says done, with a result, says so ever after, with that result."""
    if after is None or after.status is not RecordStatus.SUCCESS or after.outcome != outcome:
        _fail("a_success_on_record_stays", f"{owner}: SUCCESS became {after.status if after else 'nothing'}")


def only_the_standing_claim_commits(request: str, stood: bool, record_is_its: bool) -> None:
    """What an attempt ends with counts only while its claim stands, on the node and on the record."""
    if not stood or not record_is_its:
        whose = "its claim did not stand any more" if not stood else "the record was another claim's"
        raise BrokenPromiseError("only_the_standing_claim_commits", f"{request}: {whose}")


def only_the_standing_claim_is_kept_alive(request: str, stood: bool) -> None:
    """A heartbeat extends nothing but the claim it was sent for."""
    if not stood:
        raise BrokenPromiseError(
            "only_the_standing_claim_is_kept_alive", f"{request}: its claim did not stand any more"
        )


def orders_of_a_node_only_count_up(request: str, before: int, after: int) -> None:
    """An order that was overtaken never comes back."""
    if after < before:
        raise BrokenPromiseError("orders_of_a_node_only_count_up", f"{request}: order {after} after {before}")


def orders_go_out_under_the_newest_epoch(request: str, epoch: int, newest: int) -> None:
    """Whoever has lost the lead sends nothing any more."""
    if epoch < newest:
        raise BrokenPromiseError("orders_go_out_under_the_newest_epoch", f"{request}: epoch {epoch}, not {newest}")


def a_once_order_is_on_record_before_it_goes_out(order: Order, stored: AgentNodeStatus | None) -> None:
    """The cluster tells of a call that may happen only once before anybody can make it."""
    if order.side_effect is not SideEffect.ONCE or order.kind is not OrderKind.EXECUTE:
        return
    if stored is None or stored.seq < order.seq:
        seq = stored.seq if stored else 0
        raise BrokenPromiseError(
            "a_once_order_is_on_record_before_it_goes_out", f"{order.request_id}: order {order.seq}, on record is {seq}"
        )


def epochs_only_rise(before: int, taken: int) -> None:
    """Every leader leads under an epoch of its own, above all earlier ones."""
    if taken <= before:
        raise BrokenPromiseError("epochs_only_rise", f"epoch {taken} after {before}")


def nothing_is_billed_twice(node: str, settled: int, claims: int, price: int) -> None:
    """A node has cost at most what each of its claims may cost, once."""
    if settled > claims * price:
        raise BrokenPromiseError("nothing_is_billed_twice", f"{node}: {settled} micros for {claims} calls of {price}")


# --- at every change of an object


def no_transition_is_illegal(node: AgentNode) -> None:
    """Every step of a node's timeline is a row of the state machine, and each goes on where the one before ended."""
    if node.status is None:
        return
    at: str | None = None
    for step in node.status.timeline:
        said = f"{node.spec.path}: {step.from_phase} to {step.to_phase}"
        if (str(step.from_phase), str(step.to_phase)) not in _LEGAL:
            _fail("no_transition_is_illegal", said)
        if at is not None and at != str(step.from_phase):
            _fail("no_transition_is_illegal", f"{said}, after it had become {at}")
        at = str(step.to_phase)
    if at is not None and at != str(node.status.phase):
        _fail("no_transition_is_illegal", f"{node.spec.path}: {at} to {node.status.phase}, of which nothing tells")


def what_has_ended_stays_as_it_ended(before: AgentRun | AgentNode, after: AgentRun | AgentNode) -> None:
    """A terminal phase absorbs, and a success keeps its result; a dead node alone may be repaired, as rows allow.

    Not judged of what a scheduler wrote after another had taken the lead, and before it could know: its successor's
    word counts.
    """
    if before.status is None or before.metadata.uid != after.metadata.uid:
        return
    terminal = TERMINAL_RUN_PHASES if isinstance(before, AgentRun) else TERMINAL_NODE_PHASES
    if before.status.phase not in terminal:
        return
    was = str(before.status.phase)
    became = str(after.status.phase) if after.status is not None else ""
    # States that pass quickly are not stored: the timeline tells that it was repaired first.
    repaired = isinstance(after, AgentNode) and after.status is not None and _was_repaired(after.status)
    if was != became and not (repaired and was == NodePhase.DEAD):
        _fail("what_has_ended_stays_as_it_ended", f"{after.metadata.name}: {was} to {became}")
    if isinstance(before, AgentNode) and isinstance(after, AgentNode) and was == became == NodePhase.SUCCEEDED:
        assert before.status is not None
        assert after.status is not None
        if before.status.result != after.status.result:
            _fail("what_has_ended_stays_as_it_ended", f"{after.metadata.name} has another result")


def _was_repaired(status: AgentNodeStatus) -> bool:
    return any(step.from_phase is NodePhase.DEAD for step in status.timeline)


def no_former_leader_writes_over_its_successor(name: str, before: int, after: int) -> None:
    """What a scheduler has written is never replaced by one that led before it (``before``, ``after``: epochs)."""
    if after < before:
        _fail("no_former_leader_writes_over_its_successor", f"{name}: epoch {after} after {before}")


def nothing_waits_without_a_deadline(node: AgentNode) -> None:
    """Whatever state a stored node waits in, the moment stands there at which the wait ends at the latest.

    Pending and TimedOut end ``spec.waits.dependencies`` and ``.recovery`` after they were entered, which always stands.
    """
    status = node.status
    if status is None:
        return
    if status.phase is NodePhase.RUNNING:
        known = status.deadline is not None
    elif status.phase in (NodePhase.READY, NodePhase.QUEUED):
        # It ends ``spec.waits.queue`` after this.
        known = status.queued_since is not None
    elif status.phase is NodePhase.RETRY_WAIT:
        known = status.due_at is not None
    elif status.phase in INBOX_PHASES:
        known = status.inbox is not None and status.inbox.expires_at is not None
    else:
        return
    if not known:
        _fail("nothing_waits_without_a_deadline", f"{node.spec.path} is {status.phase}")


# --- now and then


def nothing_waits_without_a_reason(node: AgentNode, now: datetime) -> None:
    """A node that is ready and not sent for a while says what it waits for.

    Asked only while a scheduler is there and reaches the cluster.
    """
    status = node.status
    if status is None or status.phase is not NodePhase.READY or now - status.entered_at < _PATIENCE:
        return
    if not status.waiting_for:
        _fail("nothing_waits_without_a_reason", f"{node.spec.path} is Ready since {status.entered_at}")


# --- after the end


def every_run_ends(runs: Sequence[AgentRun]) -> None:
    """Every run reaches a terminal phase, in bounded time."""
    for run in runs:
        if run.status is None or run.status.phase not in TERMINAL_RUN_PHASES:
            phase, why = (run.status.phase, run.status.message) if run.status else ("", "")
            _fail("every_run_ends", f"{run.metadata.name} is {phase}: {why}")


def a_run_is_rejected_for_a_busy_session_only(run: AgentRun, *, origin_deleted: bool) -> None:
    """What was drawn is valid: a run that is not admitted has met another one in its session.

    Or somebody has deleted the run that it was to continue.
    """
    status = run.status
    reasons = {Reason.SESSION_BUSY, Reason.INVALID_REFERENCE} if origin_deleted else {Reason.SESSION_BUSY}
    if status is not None and status.phase is RunPhase.REJECTED and status.reason not in reasons:
        _fail("a_run_is_rejected_for_a_busy_session_only", f"{run.metadata.name}: {status.reason} {status.message}")


def a_run_ends_as_its_nodes_ended(run: AgentRun, nodes: Sequence[AgentNode], *, cancelled: bool) -> None:
    """Succeeded holds no untolerated death, Failed has a cause, and Cancelled was asked for by somebody."""
    status = run.status
    if status is None or status.copy_of:
        return
    dead = [node.spec.path for node in nodes if _is_fatal(node)]
    # What a fan-out's instance does to the run is the fan-out's matter.
    fatal = [path for path in dead if "." not in path]
    if status.phase is RunPhase.SUCCEEDED and fatal:
        _fail("a_run_ends_as_its_nodes_ended", f"{run.metadata.name} succeeded although {fatal} are dead")
    if status.phase is RunPhase.FAILED and not dead and status.reason == "NodeFailed":
        _fail("a_run_ends_as_its_nodes_ended", f"{run.metadata.name} failed, and no node has: {status.message}")
    if status.phase is RunPhase.CANCELLED and not cancelled:
        _fail("a_run_ends_as_its_nodes_ended", f"{run.metadata.name} was cancelled, and nobody had asked for it")


def _is_fatal(node: AgentNode) -> bool:
    status = node.status
    return status is not None and status.phase is NodePhase.DEAD and not status.tolerated


def every_node_of_an_ended_run_has_ended(nodes: Sequence[AgentNode]) -> None:
    """No node is left in a state that waits for something."""
    for node in nodes:
        if node.status is None or node.status.phase not in TERMINAL_NODE_PHASES:
            phase = node.status.phase if node.status else ""
            _fail("every_node_of_an_ended_run_has_ended", f"{node.spec.path} is {phase}")


def money_adds_up(run: AgentRun, counters: RunCounters) -> None:
    """The run's counter is the sum of what its nodes settled, and nothing is held any more."""
    settled = sum(amount.micros for amount in counters.nodes.values())
    if counters.held != _NOTHING or counters.settled.micros != settled:
        _fail(
            "money_adds_up",
            f"{run.metadata.name}: counter {counters.settled.micros}, nodes {settled}, held {counters.held.micros}",
        )


def no_result_came_from_a_failed_attempt(node: AgentNode, told: Collection[str], *, by_a_person: bool) -> None:
    """A succeeded call shows what the outside has told somebody under its key, or what a person has put there.

    The write of an attempt whose answer was lost, or no use, is seen by nobody, unless a lookup told it.
    """
    status = node.status
    if status is None or status.phase is not NodePhase.SUCCEEDED or status.call is None or by_a_person:
        return
    token = _token(status)
    if token not in told:
        _fail(
            "no_result_came_from_a_failed_attempt",
            f"{node.spec.path} shows {token}, told were {sorted(told) or 'none'}",
        )


def what_a_dependant_saw_is_what_stands(node: AgentNode, by_path: Mapping[str, AgentNode]) -> None:
    """What a call took from an upstream node is that node's result, or its default.

    Not judged where a person edited the params, or nodes were adopted from a run before.
    """
    status, authored = node.status, node.spec.node.params.get("from")
    if status is None or status.call is None or status.edited_params is not None or not isinstance(authored, str):
        return
    upstream = by_path.get(authored.removeprefix("${nodes.").partition(".")[0])
    if upstream is None or upstream.status is None or _was_adopted(status) or _was_adopted(upstream.status):
        return
    seen = status.call.params.get("from")
    if seen != "none" and seen != _token(upstream.status):
        _fail(
            "what_a_dependant_saw_is_what_stands",
            f"{node.spec.path} was called with {seen}, {upstream.spec.path} gave {_token(upstream.status)}",
        )


def _was_adopted(status: AgentNodeStatus) -> bool:
    return any(step.reason == "Adopted" for step in status.timeline)


def _token(status: AgentNodeStatus) -> object:
    return status.result.get("token") if isinstance(status.result, dict) else None


def control_nodes_cost_no_call(node: AgentNode) -> None:
    """A node that is no task has no call."""
    if node.spec.node.type is not NodeType.TASK and node.status is not None and node.status.call is not None:
        _fail("control_nodes_cost_no_call", f"{node.spec.path} is a {node.spec.node.type}")


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What is still there when everything has ended."""

    claims: int
    slots: int
    orders: int
    reports: int
    waiters: int
    sessions: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self.claims or self.slots or self.orders or self.reports or self.waiters or self.sessions)


def nothing_is_left_behind(left: LeftBehind) -> None:
    """Claims, slots, orders, reports, lines of waiters and sessions are gone, once the leases have passed."""
    if left:
        _fail("nothing_is_left_behind", str(left))


def no_process_ends_by_itself(name: str, error: BaseException) -> None:
    """A scheduler ends when another has taken the lead, a worker when it is drained, and neither otherwise."""
    _fail("no_process_ends_by_itself", f"{name}: {type(error).__name__}: {error}")


def no_turn_failed_for_a_bug(failed_turns: int) -> None:
    """Every failure of the scheduler was one that passes by itself."""
    if failed_turns:
        _fail("no_turn_failed_for_a_bug", f"{failed_turns} turns")
