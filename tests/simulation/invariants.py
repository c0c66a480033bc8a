"""What must hold in every history, each promise a function that is named for it.

``simulation.one_history`` asks: the first group at every effect outside, the second at every step of the ledger
(``simulation.watched_ledger``), the third at every change of an object, the last one after the end. What is judged was seen from outside: effects as the simulated provider booked them, objects as
the cluster stored them, the ledger as it stands. Nothing here asks the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentrun.contract.node import TERMINAL_NODE_PHASES, AgentNode, AgentNodeStatus, NodePhase
from agentrun.contract.orders import Amount, Order, OrderKind
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun
from agentrun.contract.tool import SideEffect
from agentrun.decisions.node_states import TRANSITIONS
from agentrun.ledger.port import RunCounters

_LEGAL = {(str(row.from_phase), str(row.to_phase)) for row in TRANSITIONS}


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


# --- at every effect


def no_once_effect_happens_twice(effect: BookedEffect, before: Iterable[BookedEffect]) -> None:
    """What may happen only once has happened at most once under its key."""
    if effect.side_effect is not SideEffect.ONCE:
        return
    for earlier in before:
        if earlier.key == effect.key:
            raise BrokenPromiseError(
                "no_once_effect_happens_twice",
                f"{effect.tool} by {effect.request} at {effect.at:.3f}, and by {earlier.request} at {earlier.at:.3f}",
            )


def every_effect_is_of_a_claimed_attempt(effect: BookedEffect, claimed: bool) -> None:
    """Nothing happens outside but under a claim that the ledger gave for it; a recovery's claim is none.

    What a lost ledger has forgotten is excepted.
    """
    if not claimed:
        raise BrokenPromiseError("every_effect_is_of_a_claimed_attempt", f"{effect.tool} by {effect.request}")


def a_session_has_effects_of_one_run_at_a_time(effect: BookedEffect, in_flight: Mapping[str, str]) -> None:
    """While calls of one run are in flight in a session, no other run of it has any (``in_flight``: request, run)."""
    others = {run for run in in_flight.values() if run != effect.run_uid}
    if effect.session and others:
        raise BrokenPromiseError(
            "a_session_has_effects_of_one_run_at_a_time",
            f"session {effect.session}: run {effect.run_uid} beside {sorted(others)}",
        )


# --- at every step of the ledger


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


# --- at every change


def money_is_never_over_the_limit(run: AgentRun, counters: RunCounters) -> None:
    """Settled costs and live holds together stay within the run's budget."""
    budget = run.spec.budget
    limit = budget.limit if budget is not None else None
    if limit is None:
        return
    spent = counters.settled.micros + counters.held.micros
    if spent > limit:
        raise BrokenPromiseError("money_is_never_over_the_limit", f"{run.metadata.name}: {spent} of {limit} micros")


def slots_are_never_exceeded(limit: str, in_use: int, most: int) -> None:
    """No more calls are under way than a limit allows."""
    if in_use > most:
        raise BrokenPromiseError("slots_are_never_exceeded", f"{limit}: {in_use} of {most}")


def no_transition_is_illegal(node: AgentNode) -> None:
    """Every step of a node's timeline is a row of the state machine."""
    if node.status is None:
        return
    for step in node.status.timeline:
        if (str(step.from_phase), str(step.to_phase)) not in _LEGAL:
            said = f"{node.spec.path}: {step.from_phase} to {step.to_phase}"
            raise BrokenPromiseError("no_transition_is_illegal", said)


def what_has_ended_stays_as_it_ended(before: AgentRun | AgentNode, after: AgentRun | AgentNode) -> None:
    """A terminal phase absorbs; a dead node alone may be repaired, along a row of the state machine."""
    if before.status is None or before.metadata.uid != after.metadata.uid:
        return
    was = str(before.status.phase)
    became = str(after.status.phase) if after.status is not None else ""
    terminal = TERMINAL_RUN_PHASES if isinstance(before, AgentRun) else TERMINAL_NODE_PHASES
    # States that pass quickly are not stored: the timeline tells that it was repaired first.
    repaired = isinstance(after, AgentNode) and after.status is not None and _was_repaired(after.status)
    if before.status.phase in terminal and was != became and not repaired:
        raise BrokenPromiseError("what_has_ended_stays_as_it_ended", f"{after.metadata.name}: {was} to {became}")


def _was_repaired(status: AgentNodeStatus) -> bool:
    return any(step.from_phase is NodePhase.DEAD for step in status.timeline)


# --- after the end


def every_run_ends(runs: Sequence[AgentRun]) -> None:
    """Every run has reached a terminal phase, in bounded time."""
    for run in runs:
        if run.status is None or run.status.phase not in TERMINAL_RUN_PHASES:
            phase, why = (run.status.phase, run.status.message) if run.status else ("", "")
            raise BrokenPromiseError("every_run_ends", f"{run.metadata.name} is {phase}: {why}")


def every_node_of_an_ended_run_has_ended(nodes: Sequence[AgentNode]) -> None:
    """No node is left in a state that waits for something."""
    for node in nodes:
        if node.status is None or node.status.phase not in TERMINAL_NODE_PHASES:
            phase = node.status.phase if node.status else ""
            raise BrokenPromiseError("every_node_of_an_ended_run_has_ended", f"{node.spec.path} is {phase}")


def money_adds_up(run: AgentRun, counters: RunCounters) -> None:
    """The run's counter is the sum of what its nodes settled, and nothing is held any more."""
    settled = sum(amount.micros for amount in counters.nodes.values())
    if counters.held != Amount() or counters.settled.micros != settled:
        raise BrokenPromiseError(
            "money_adds_up",
            f"{run.metadata.name}: counter {counters.settled.micros}, nodes {settled}, held {counters.held.micros}",
        )


def no_result_came_from_a_failed_attempt(node: AgentNode, booked: Sequence[BookedEffect], replays: bool) -> None:
    """A succeeded call was made, or another's result was replayed: no dependant saw what never happened."""
    status = node.status
    if status is None or status.phase is not NodePhase.SUCCEEDED or status.call is None or replays:
        return
    if not any(effect.key == status.call.key for effect in booked):
        raise BrokenPromiseError(
            "no_result_came_from_a_failed_attempt", f"{node.spec.path} succeeded without an effect"
        )


def nothing_is_left_behind(claims: int, slots: int, sessions: Sequence[str]) -> None:
    """Claims, slots and sessions are free again."""
    if claims or slots or sessions:
        raise BrokenPromiseError(
            "nothing_is_left_behind", f"{claims} claims, {slots} slots, sessions {', '.join(sessions) or 'none'}"
        )


def no_turn_failed_for_a_bug(failed_turns: int) -> None:
    """Every failure was one that passes by itself."""
    if failed_turns:
        raise BrokenPromiseError("no_turn_failed_for_a_bug", f"{failed_turns} turns")
