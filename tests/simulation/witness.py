"""The witness of a history: sees what happens outside, in the ledger and in the cluster, and holds promises against it.

Made by ``simulation.one_history``, which asks it at every such event. It believes what the simulated provider booked,
what the cluster stored and what the ledger holds, and nothing that an engine or a worker says of itself. It changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentrun.contract.node import AgentNode, NodePhase
from agentrun.contract.orders import AttemptOutcome, Order, OrderKind
from agentrun.contract.run import AgentRun, Priority
from agentrun.contract.tool import SideEffect
from agentrun.engine.cluster_port import ChangeKind, ClusterChange
from agentrun.ledger.memory_state import NamespaceState, NodeState, RunState
from agentrun.ledger.port import ClaimVerdict, RecordStatus
from agentrun_worker.executor import ToolCall
from simulation import invariants
from simulation.invariants import BookedEffect, BrokenPromiseError, CallUnderWay
from simulation.lines import Line, Step
from simulation.shelf import CONCURRENCY, LIED_ABOUT, RATE_PER_SECOND, HouseRules

_ENDED = ("Succeeded", "Dead", "Skipped", "Cancelled")


@dataclass(slots=True)
class Findings:
    """What one history came to."""

    seed: int
    promise: str = ""
    """Which invariant fell; empty: none."""
    said: str = ""
    virtual_seconds: float = 0.0
    effects: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    mishaps: Counter[str] = field(default_factory=Counter)
    """How often something of a kind went wrong, not how often it was planned."""
    occurred: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What else was seen to occur, by group."""
    trace: list[str] = field(default_factory=list)


class WatchedState(Protocol):
    """The ledger, as it stands."""

    def space(self, namespace: str) -> NamespaceState:
        """Return what it holds of a namespace."""
        ...


@dataclass(slots=True)
class _Observed:
    call: CallUnderWay
    tool: str
    line: Line
    sleeps: int

    @property
    def is_awake(self) -> bool:
        """Whether its worker has not stood still since: then its claim may be another's by now."""
        return self.line.sleeps_total == self.sleeps and not self.line.dead


class Witness:
    """Sees one history."""

    def __init__(self, findings: Findings, time: Callable[[], float], house: HouseRules, *, keeps_trace: bool) -> None:
        self._findings = findings
        self._time = time
        self._house = house
        self._keeps_trace = keeps_trace
        self.ledger: WatchedState | None = None
        self.broken: BrokenPromiseError | None = None
        self.emptied = False
        """The ledger has lost everything once."""
        self.jumped = False
        """A clock was wrong at some time: the scheduler may take a claim for dead that lives."""
        self.lied_about: set[str] = set()
        self.cancelled: set[str] = set()
        self.deleted: set[str] = set()
        self._known_before_loss: set[str] = set()
        self._last_seen: dict[tuple[str, str], AgentRun | AgentNode] = {}
        self._runs: dict[str, AgentRun] = {}
        self._calls: dict[str, _Observed] = {}
        self._successes: dict[str, tuple[str, AttemptOutcome | None]] = {}
        self.newest_epoch = 0
        self._written_under: dict[tuple[str, str], tuple[int, bool]] = {}
        """By object: under which epoch a scheduler wrote it last, and whether it was overtaken by then."""
        self._claimed_at: dict[str, float] = {}
        """By tool with a rate: when it was claimed last."""
        self._rated: set[str] = set()

    def see_lead(self, line: Line, epoch: int) -> None:
        """See a scheduler lead: it was told that its epoch stands in the Lease, perhaps late, and acts under it."""
        line.epoch = epoch
        self.newest_epoch = max(self.newest_epoch, epoch)

    def say(self, who: str, what: str) -> None:
        """Keep a line of the trace."""
        if self._keeps_trace:
            self._findings.trace.append(f"{self._time():10.3f}  {who:10} {what}")

    def count(self, group: str, what: str) -> None:
        """Count what occurred."""
        self._findings.occurred[group, what] += 1

    def check(self, promise: Callable[..., None], *seen: object, **named: object) -> None:
        """Hold a promise against what was seen; the first that falls is the finding."""
        try:
            promise(*seen, **named)
        except BrokenPromiseError as error:
            self.say("INVARIANT", str(error))
            self.broken = self.broken or error

    def forget_ledger(self) -> None:
        """Know that the ledger has lost everything: what it promised about the past is void."""
        self.emptied = True
        self._known_before_loss |= set(self._space.runs)
        self._successes.clear()
        self._claimed_at.clear()

    @property
    def _space(self) -> NamespaceState:
        assert self.ledger is not None
        return self.ledger.space("default")

    # --- calls

    def call_begins(self, call: ToolCall, line: Line) -> None:
        """See a call pass its worker's last check."""
        owner, run = self._find_owner(call)
        claimed = owner is not None and owner.state == "claimed" and owner.kind is OrderKind.EXECUTE
        excuse = "the ledger lost it" if self.emptied else "a clock was wrong" if self.jumped else ""
        self.check(invariants.every_effect_is_of_a_claimed_attempt, call.request_id, claimed, excuse)
        begun = CallUnderWay(call.request_id, run.uid if run else "", run.session if run else "")
        if not self.emptied and not self.jumped:
            others = [one.call for one in self._calls.values() if one.is_awake]
            self.check(invariants.a_session_has_effects_of_one_run_at_a_time, begun, others)
        self._calls[call.request_id] = _Observed(begun, call.tool_name, line, line.sleeps_total)
        most = CONCURRENCY.get(call.tool_name)
        if most is not None and not self.emptied and not self.jumped:
            at_work = sum(one.tool == call.tool_name and one.is_awake for one in self._calls.values())
            self.check(invariants.calls_under_way_are_never_more_than_slots, call.tool_name, at_work, most)

    def call_ends(self, call: ToolCall) -> None:
        """See its worker give it up or have its answer."""
        self._calls.pop(call.request_id, None)

    def effect_happens(self, call: ToolCall, before: list[BookedEffect]) -> BookedEffect:
        """See an effect, and what was booked under its key before; return how it is booked."""
        owner, run = self._find_owner(call)
        effect = BookedEffect(
            at=self._time(),
            tool=call.tool_name,
            side_effect=call.tool.side_effect,
            key=call.idempotency_key,
            request=call.request_id,
            session=run.session if run is not None else "",
            run_uid=owner.run_uid if owner is not None else "",
            token=f"{call.tool_name} {call.idempotency_key[:8]} {len(before) + 1}",
        )
        self.say("outside", f"EFFECT of {effect.tool} by {effect.request}")
        self._findings.effects += 1
        self.count("effects", f"{call.tool.side_effect}")
        self.check(invariants.no_once_effect_happens_twice, effect, before, self._excuse(effect, before))
        return effect

    def _excuse(self, effect: BookedEffect, before: list[BookedEffect]) -> str:
        if effect.side_effect is not SideEffect.ONCE or not before:
            return ""
        if effect.key in self.lied_about:
            excuse = "a person said what was not so"
        elif effect.tool in LIED_ABOUT or any(one.tool in LIED_ABOUT for one in before):
            excuse = "its lookup lies"
        elif self.emptied and any(one.run_uid in self.deleted or not one.run_uid for one in before):
            excuse = "ledger and objects were both taken away"
        else:
            return ""
        self.count("excused", excuse)
        return excuse

    def _find_owner(self, call: ToolCall) -> tuple[NodeState | None, RunState | None]:
        """Return whose call it is, as the ledger has it."""
        space = self._space
        owner = next((node for node in space.nodes.values() if node.request == call.request_id), None)
        return owner, space.runs.get(owner.run_uid) if owner is not None else None

    # --- steps of the ledger

    def see_step(self, step: Step, answer: object) -> None:
        """See a step that a process made outside."""
        if not step.to_ledger:
            return
        match step.method:
            case "dispatch":
                if getattr(answer, "refusal", None) is None:
                    self._judge_order(step.arguments[0])
                else:
                    self.count("refused orders", f"{getattr(answer, 'refusal', '')}")
            case "claim":
                self._see_claim(step, answer)
            case "commit":
                order = step.arguments[0].order
                self.count("commits", f"{answer}")
                self._judge_order(order)
            case "heartbeat":
                self._judge_slots()
            case "withdraw" | "fence_attempt" | "answer_record" | "admit_run" | "abandon_recovery":
                self.count("ledger", f"{step.method} {getattr(answer, 'verdict', answer)}")
            case _:
                return

    def _see_claim(self, step: Step, answer: object) -> None:
        verdict = getattr(answer, "verdict", None)
        self.count("gate", str(getattr(answer, "report_kind", "") or verdict))
        order = step.arguments[1].order
        if verdict is not ClaimVerdict.EXECUTE:
            return
        self._judge_order(order)
        rate = RATE_PER_SECOND.get(order.tool)
        # A claim that is asked for again, its answer having been lost, is no second one.
        token = step.arguments[2]
        if rate is not None and token not in self._rated:
            last = self._claimed_at.get(order.tool)
            if last is not None:
                self.check(invariants.rates_are_never_exceeded, order.tool, self._time() - last, rate)
                self.count("rates", "claims were judged")
            self._claimed_at[order.tool] = self._time()
            self._rated.add(token)

    def _judge_order(self, order: Order) -> None:
        self._judge_slots()
        space = self._space
        run = space.runs.get(order.run_uid)
        known = self._runs.get(order.run_uid)
        if run is not None and known is not None and order.run_uid not in self._known_before_loss:
            spent = run.settled["micros"] + run.held["micros"]
            self.check(invariants.money_is_never_over_the_limit, known.metadata.name, known.spec.budget, spent)
            nodes = sum(space.nodes[uid].settled["micros"] for uid in run.nodes if uid in space.nodes)
            holds = sum(
                space.nodes[uid].hold.micros for uid in run.nodes if uid in space.nodes and space.nodes[uid].held
            )
            self.check(
                invariants.money_is_what_nodes_settled_and_hold,
                known.metadata.name,
                (run.settled["micros"], run.held["micros"]),
                (nodes, holds),
            )
        record = space.record(order.record.key)
        before = self._successes.get(order.record.key)
        if before is not None:
            self.check(invariants.a_success_on_record_stays, *before, record)
        elif record is not None and record.status is RecordStatus.SUCCESS:
            self._successes[order.record.key] = (record.owner, record.outcome)

    def _judge_slots(self) -> None:
        space, house, now = self._space, self._house, self._space.now()
        limits = {f"tool:{tool}": most for tool, most in CONCURRENCY.items()}
        limits["global"] = house.global_limit
        if house.namespace_limit is not None:
            limits["namespace"] = house.namespace_limit
        for limit, most in limits.items():
            in_use = sum(until > now for until in space.slot_holders(limit).values())
            if in_use:
                self.check(invariants.slots_are_never_exceeded, limit, in_use, most)
        if house.reserved_for_p0 and not self.emptied:
            below = 0
            for holder, until in space.slot_holders("global").items():
                uid, _, attempt = holder.partition("/")
                node = space.nodes.get(uid)
                if until > now and node is not None and node.epoch == self.newest_epoch:
                    below += attempt == str(node.attempt) and _is_out_below_p0(node)
            most = house.global_limit - house.reserved_for_p0
            self.check(invariants.reserved_slots_stay_free, "P0", below, most)

    # --- changes of objects

    def note_change(self, change: ClusterChange, epoch: int) -> None:
        """Judge a change of an object; ``epoch``: of the scheduler that makes it, 0: somebody else does."""
        seen = change.object
        if not isinstance(seen, AgentRun | AgentNode):
            return
        key = (seen.kind, seen.metadata.name)
        before = self._last_seen.get(key)
        if change.kind is ChangeKind.GONE:
            self._last_seen.pop(key, None)
            self._written_under.pop(key, None)
            if isinstance(seen, AgentRun):
                self.deleted.add(seen.metadata.uid)
                self.say("cluster", f"{seen.metadata.name} is deleted")
            return
        self._last_seen[key] = seen
        if isinstance(seen, AgentRun):
            self._runs[seen.metadata.uid] = seen
        self._tell_of(before, seen)
        if isinstance(seen, AgentNode):
            self.check(invariants.no_transition_is_illegal, seen)
            self.check(invariants.nothing_waits_without_a_deadline, seen)
        if before is not None:
            last, late = self._written_under.get(key, (0, False))
            if epoch:
                self.check(invariants.no_former_leader_writes_over_its_successor, seen.metadata.name, last, epoch)
            if late:
                # What it wrote after it had lost the lead, and before it noticed, was not its to write.
                self.count("excused", "a former leader wrote it last")
            else:
                self.check(invariants.what_has_ended_stays_as_it_ended, before, seen)
        if epoch:
            self._written_under[key] = (epoch, epoch < self.newest_epoch)

    def _tell_of(self, before: AgentRun | AgentNode | None, seen: AgentRun | AgentNode) -> None:
        status = seen.status
        if status is None:
            self.say("cluster", f"{seen.kind} {seen.metadata.name} created")
            if isinstance(seen, AgentNode):
                self._count_node(seen)
            return
        old = before.status if before is not None else None
        ended = (
            isinstance(seen, AgentNode) and status.phase in _ENDED and (old is None or old.phase is not status.phase)
        )
        if ended:
            self._count_end(seen)
        if old is None or old.phase is not status.phase:
            self.count("reasons", status.reason or "none")
            self.say("cluster", f"{seen.metadata.name} is {status.phase} ({status.reason}) {status.message}".rstrip())

    def _count_node(self, node: AgentNode) -> None:
        spec = node.spec.node
        self.count("nodes", str(spec.type))
        if spec.join is not None:
            self.count("joins", str(spec.join.rule))
        for name in (
            "optional",
            "on_failure",
            "priority",
            "priority_from",
            "idempotency",
            "budget",
            "retry",
            "timeout",
        ):
            if getattr(spec, name):
                self.count("policies", name)

    def _count_end(self, node: AgentRun | AgentNode) -> None:
        if not isinstance(node, AgentNode) or node.status is None:
            return
        for step in node.status.timeline:
            self._findings.transitions[f"{step.from_phase} -> {step.to_phase}"] += 1
        if node.status.degraded:
            self.count("policies", "degraded")

    def judge_waiting(self, nodes: Sequence[AgentNode], now: object) -> None:
        """Judge that whatever stands in line says why."""
        for node in nodes:
            if node.status is not None and node.status.phase is NodePhase.READY:
                self.check(invariants.nothing_waits_without_a_reason, node, now)


def _is_out_below_p0(node: NodeState) -> bool:
    # The slot of a call that has ended is free in the scheduler's book as soon as it has read of the end.
    return node.state in ("queued", "claimed") and node.order is not None and node.order.priority is not Priority.P0
