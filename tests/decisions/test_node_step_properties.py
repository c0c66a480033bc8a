"""Whatever the facts are, a node's decision is one that the table permits, and nothing waits without an end."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import JsonObject, JsonValue, json_digest
from agentrun.contract.failures import Effect, Failure, FailureClass, Reason
from agentrun.contract.node import (
    TERMINAL_NODE_PHASES,
    AgentNodeSpec,
    AgentNodeStatus,
    CallStatus,
    Inbox,
    InboxKind,
    NodePhase,
    RunRef,
    ToolRef,
)
from agentrun.contract.orders import AttemptOutcome, Report, ReportKind
from agentrun.contract.run import AgentRunSpec, FailurePolicy, Priority, RunNode, RunPhase
from agentrun.contract.tool import AgentToolSpec, IdempotencyScope, SideEffect
from agentrun.decisions.conditions import NodeEnd
from agentrun.decisions.facts import Ending, NodeFacts, OrderSight, Problem, RunFacts, WaitLimits
from agentrun.decisions.join_rules import Chosen, Met, NotChosen, Skip, Unsatisfiable, Waiting
from agentrun.decisions.moves import Expand, Fence, GiveUpRecovery, Move, NodeDecision, Stay, TakeBack, apply_move
from agentrun.decisions.node_step import decide_node
from agentrun.decisions.references import Found, Given, Missing, NodeValue
from agentrun.decisions.report_step import read_report
from support.manifest_texts import build_tool

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
REF = ToolRef(name="act", digest="sha256:t")
PARAMS: JsonObject = {"n": 1}
CALL = CallStatus(
    request_id="act-1",
    tool=REF,
    params=PARAMS,
    params_digest=json_digest(PARAMS),
    key="k",
    scope=IdempotencyScope.SESSION,
    hold_micros=5,
)


class Values:
    """A scope in which every node gave 1."""

    def inputs(self) -> JsonObject:
        return {"list": [1, 2], "x": 1}

    def item(self) -> JsonValue:
        return 1

    def index(self) -> int | None:
        return 0

    def node_result(self, name: str) -> NodeValue:
        return Given(1)

    def root_value(self, root: str) -> Found | Missing:
        return Found(self.inputs()) if root == "inputs" else Missing("not here")

    def node_end(self, name: str) -> NodeEnd | Missing:
        return NodeEnd("Succeeded", "Completed", None, None, Given(1))


def judge(schema: JsonObject, value: JsonValue) -> tuple[Problem, ...]:
    return ()


moments = st.sampled_from([NOW - timedelta(days=9), NOW - timedelta(minutes=1), NOW, NOW + timedelta(minutes=1)])
failures = st.builds(
    lambda effect, failure_class, reason: Failure(effect=effect, failure_class=failure_class, reason=reason),
    st.sampled_from(Effect),
    st.sampled_from(FailureClass),
    st.sampled_from(
        [Reason.HTTP_STATUS, Reason.REJECTED, Reason.EXPIRED, Reason.TOO_MANY_ITEMS, Reason.BUDGET_EXHAUSTED, "Odd"]
    ),
)
tools = st.builds(
    lambda effect, recovery, approval, ladder: AgentToolSpec.model_validate(
        build_tool(
            "act",
            {
                "sideEffect": effect,
                **({"recovery": RECOVERY} if recovery else {}),
                **({"approval": {"required": "Always"}} if approval else {}),
                "degradeTo": ["cheap"] if ladder else [],
            },
        ).spec.to_wire()
    ),
    st.sampled_from(SideEffect),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
RECOVERY = {"lookup": {"tool": "look"}, "outcome": {"completed": {"when": {"path": "result.x", "op": "exists"}}}}
nodes = st.sampled_from(
    [
        {"name": "a", "tool": "act"},
        {"name": "a", "tool": "act", "optional": True, "onFailure": "Continue"},
        {"name": "a", "tool": "act", "retry": {"limit": 0, "afterLast": "Human"}},
        {"name": "a", "tool": "act", "retry": {"limit": 3, "afterLast": "Ask"}},
        {"name": "a", "type": "Join"},
        {"name": "a", "type": "Approval", "approval": {"message": "ok ${inputs.x}?"}},
        {"name": "a", "type": "Condition", "condition": {"cases": [{"when": {"path": "inputs.x", "op": "eq", "value": 1}, "goto": "b"}]}},
        {"name": "a", "type": "FanOut", "fanOut": {"items": "${inputs.list}", "node": {"tool": "act"}}},
        {"name": "a", "type": "FanOut", "fanOut": {"items": "${inputs.x}", "node": {"tool": "act"}}},
        {"name": "a", "type": "FanOut", "fanOut": {"items": [1, 2], "maxItems": 1, "node": {"tool": "act"}}},
    ]
)  # fmt: skip
endings = st.one_of(
    st.none(),
    st.builds(
        Ending,
        phase=st.sampled_from([RunPhase.CANCELLED, RunPhase.FAILED, RunPhase.DEAD]),
        reason=st.just("Cancelled"),
        cancels_running=st.booleans(),
    ),
)
inboxes = st.one_of(
    st.none(),
    st.builds(
        lambda kind, expires: Inbox(kind=kind, id="q-1", asked_at=NOW, expires_at=expires),
        st.sampled_from(InboxKind),
        moments,
    ),
)


@st.composite
def facts(draw: st.DrawFn) -> NodeFacts:
    run = RunFacts(
        now=NOW,
        spec=AgentRunSpec(
            intent="x",
            nodes=(RunNode(name="a", tool="act"),),
            on_node_failure=draw(st.sampled_from(FailurePolicy)),
        ),
        waits=WaitLimits(),
        admitted=True,
        suspended=draw(st.booleans()),
        pause_total=timedelta(),
        deadline=draw(st.one_of(st.none(), moments)),
        ending=draw(endings),
        held_by=draw(st.sampled_from(["", "a", "b"])),
    )
    node = RunNode.model_validate(draw(nodes))
    status = AgentNodeStatus(
        phase=draw(st.sampled_from(NodePhase)),
        reason=draw(st.sampled_from([Reason.HEARTBEAT_LOST, Reason.ATTEMPT_TIMEOUT, Reason.EFFECT_UNKNOWN])),
        entered_at=draw(moments.filter(lambda at: at <= NOW)),
        attempt=draw(st.integers(0, 3)),
        seq=1,
        recovering=draw(st.booleans()),
        priority=draw(st.sampled_from(Priority)),
        call=draw(st.sampled_from([None, CALL])),
        deadline=draw(st.one_of(st.none(), moments)),
        due_at=draw(st.one_of(st.none(), moments)),
        waiting_for=draw(st.sampled_from(["", "Pool(shared)", "Idempotency(x)"])),
        failure=draw(st.one_of(st.none(), failures)),
        inbox=draw(inboxes),
        approved_digests=draw(st.sampled_from([(), (CALL.params_digest,)])),
        degraded=draw(st.integers(0, 1)),
    )
    joins = st.sampled_from([Met(), Waiting(1), Skip(), Unsatisfiable("no")])
    tool = draw(tools) if node.tool else None
    return NodeFacts(
        run=run,
        spec=AgentNodeSpec(run=RunRef(name="r", uid="u"), path="a", node=node),
        status=status,
        tool=tool,
        join=draw(joins),
        chooser=draw(st.sampled_from([Chosen(), Waiting(1), NotChosen(Reason.NOT_CHOSEN)])),
        children=draw(joins),
        upstream_in_inbox=draw(st.booleans()),
        scope=Values(),
        judge=judge,
        sight=draw(st.sampled_from(OrderSight)),
        parent_ended=draw(st.booleans()),
        owner_lives=draw(st.booleans()),
        degrade_tools=("cheap",) if tool and tool.degrade_to else (),
    )


def moves_of(decision: NodeDecision) -> list[Move]:
    match decision:
        case Move():
            return [decision]
        case TakeBack(then) | Fence(then) | GiveUpRecovery(then):
            return [then]
        case Expand(_, then):
            return [then]
        case _:
            return []


def is_possible(given_facts: NodeFacts) -> bool:
    """Tell whether a node of this type can be in this phase at all."""
    kind = given_facts.spec.node.type
    phase = given_facts.status.phase
    if phase is NodePhase.EXPANDED:
        return kind == "FanOut"
    if phase in (NodePhase.QUEUED, NodePhase.RUNNING, NodePhase.TIMED_OUT, NodePhase.RETRY_WAIT):
        return kind == "Task"
    return True


@given(facts())
def test_a_decision_is_never_refused_by_the_table(given_facts: NodeFacts) -> None:
    if not is_possible(given_facts):
        return
    decision = decide_node(given_facts, given_facts.status.call or CALL)
    for move in moves_of(decision):
        status, row = apply_move(given_facts.status, move, NOW, timedelta())
        assert status.phase is row.to_phase
        assert status.timeline[-1].to_phase is move.to


@given(facts())
def test_an_end_absorbs(given_facts: NodeFacts) -> None:
    if given_facts.status.phase in TERMINAL_NODE_PHASES:
        assert decide_node(given_facts, CALL) == Stay()


@given(facts())
def test_an_unknown_effect_of_a_once_tool_never_leads_to_another_attempt(given_facts: NodeFacts) -> None:
    status = given_facts.status
    once = given_facts.tool is not None and given_facts.tool.side_effect is SideEffect.ONCE
    unknown = status.failure is not None and status.failure.effect is not Effect.NOT_EXECUTED
    if status.phase is NodePhase.FAILED and once and unknown and is_possible(given_facts):
        for move in moves_of(decide_node(given_facts, CALL)):
            assert move.to not in (NodePhase.RETRY_WAIT, NodePhase.READY, NodePhase.QUEUED)


@given(facts())
def test_a_timeout_never_goes_straight_to_a_retry(given_facts: NodeFacts) -> None:
    if given_facts.status.phase is NodePhase.TIMED_OUT and is_possible(given_facts):
        for move in moves_of(decide_node(given_facts, CALL)):
            assert move.to not in (NodePhase.RETRY_WAIT, NodePhase.READY, NodePhase.QUEUED)


@given(facts())
def test_whatever_waits_has_an_end_or_waits_for_somebody_who_has(given_facts: NodeFacts) -> None:
    """Standing still is bounded by the run's own limit; inboxes by their expiry; children by theirs."""
    if given_facts.status.phase in TERMINAL_NODE_PHASES or not is_possible(given_facts):
        return
    decision = decide_node(given_facts, given_facts.status.call or CALL)
    if isinstance(decision, Stay) and decision.until is None:
        bounded = ("Suspended", "Human", "Children", "FanOut(", "Approval(")
        ends_with_run = given_facts.run.ending is not None or given_facts.parent_ended
        assert decision.waiting_for.startswith(bounded) or ends_with_run, decision


outcomes = st.one_of(
    st.none(),
    st.just(AttemptOutcome(effect=Effect.EXECUTED, result=1)),
    failures.map(lambda failure: AttemptOutcome(effect=failure.effect, failure=failure)),
)
reports = st.builds(
    lambda kind, attempt, seq, recovering, outcome: Report(
        kind=kind,
        namespace="n",
        run_uid="u",
        node_uid="v",
        attempt=attempt,
        seq=seq,
        recovering=recovering,
        outcome=outcome,
    ),
    st.sampled_from(ReportKind),
    st.integers(0, 3),
    st.integers(0, 2),
    st.booleans(),
    outcomes,
)


@given(facts(), reports)
def test_a_report_in_any_state_leads_only_to_moves_of_the_table(given_facts: NodeFacts, report: Report) -> None:
    if not is_possible(given_facts) or given_facts.tool is None:
        return
    status = given_facts.status
    for step in read_report(given_facts, report):
        for move in moves_of(step):
            status, _ = apply_move(status, move, NOW, timedelta())


@given(facts(), reports)
def test_a_report_that_was_read_changes_nothing_when_it_comes_again(given_facts: NodeFacts, report: Report) -> None:
    if not is_possible(given_facts) or given_facts.tool is None:
        return
    status = given_facts.status
    for step in read_report(given_facts, report):
        for move in moves_of(step):
            status, _ = apply_move(status, move, NOW, timedelta())
    ended = report.kind is ReportKind.COMMITTED and report.outcome is not None
    if ended and status.phase in TERMINAL_NODE_PHASES:
        assert read_report(replace(given_facts, status=status), report) == ()
