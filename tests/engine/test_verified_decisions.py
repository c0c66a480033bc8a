"""What becomes of decisions that nobody vouches for."""

import pytest

from agentrun.contract.approval import AgentApproval, AgentApprovalStatus, Decision, Verdict
from agentrun.contract.failures import Effect
from agentrun.decisions.decision_authority import UnverifiedDecisions
from agentrun.engine.settings import SchedulerSettings
from support.world import World, in_world

TOOLS = """
act: {approval: {required: Always}}
pay: {sideEffect: Once}
"""
SCRIPT = """
tools:
  act: [{result: done}]
  pay: [{failure: {effect: Unknown, reason: ConnectionLost, message: reset}}, {result: paid}]
"""
ASKED = "nodes: [{name: a, tool: act, params: {x: 1}}]"
UNKNOWN = "session: s\nnodes: [{name: a, tool: pay, params: {x: 1}}]"
DEAD = "onNodeFailure: Suspend\n" + ASKED


class _Knows:
    """Vouches for one person."""

    def __init__(self, person: str) -> None:
        self._person = person

    def can_verify(self) -> bool:
        return True

    async def is_verified(self, approval: AgentApproval, params_digest: str) -> bool:
        decision = approval.spec.decision
        return decision is not None and decision.decided_by == self._person and params_digest != ""


def state(world: World) -> list[AgentApprovalStatus]:
    uid = world.cluster.get_run("default", "run").metadata.uid
    found = [approval.status for approval in world.cluster.approvals_of("default", uid)]
    asked = sorted((status for status in found if status), key=lambda status: status.request.asked_at)  # type: ignore[union-attr]
    return sorted(asked, key=lambda status: int(status.request.inbox_id.rpartition("-")[2]))  # type: ignore[union-attr]


def allowed(world: World) -> list[Verdict]:
    request = world.open_question("a").status.request  # type: ignore[union-attr]
    assert request is not None
    return list(request.allowed)


def has_question(world: World, number: int = 1) -> bool:
    found = state(world)
    return len(found) == number and found[-1].state == "Open" and found[-1].request is not None


async def _begin(world: World, unverified: UnverifiedDecisions, run: str = ASKED, knows: str = "Ada") -> None:
    world.verifier = _Knows(knows) if knows else None
    world.start_scheduler(settings=SchedulerSettings(unverified_decisions=unverified))
    world.start_worker()
    world.apply_run(run)
    await world.until(lambda: has_question(world))


def test_where_none_counts_an_unverified_decision_is_refused_and_the_question_asked_again() -> None:
    async def live(world: World) -> None:
        await _begin(world, UnverifiedDecisions.REFUSE)
        world.decide("a", Decision(verdict=Verdict.APPROVE, decided_by="Eve"))
        await world.until(lambda: len(state(world)) == 2)
        refused, fresh = state(world)
        assert (refused.state, refused.verified) == ("Refused", False)
        assert "not verified" in refused.message
        assert "Eve" in refused.message
        assert (fresh.state, fresh.verified) == ("Open", None)
        assert world.counts.calls["act"] == 0
        world.decide("a", Decision(verdict=Verdict.APPROVE, decided_by="Ada"))
        assert (await world.ended()).phase == "Succeeded"
        applied = state(world)[-1]
        assert (applied.state, applied.verified) == ("Applied", True)

    in_world(live, TOOLS, SCRIPT)


@pytest.mark.parametrize("unverified", [UnverifiedDecisions.APPROVE_AND_REJECT, UnverifiedDecisions.ALL])
def test_where_yes_and_no_count_an_unverified_one_is_applied_and_called_so(unverified: UnverifiedDecisions) -> None:
    async def live(world: World) -> None:
        await _begin(world, unverified)
        world.decide("a", Decision(verdict=Verdict.APPROVE, decided_by="Eve"))
        assert (await world.ended()).phase == "Succeeded"
        (applied,) = state(world)
        assert (applied.state, applied.verified) == ("Applied", False)

    in_world(live, TOOLS, SCRIPT)


def test_params_that_somebody_unknown_edited_are_refused_and_the_question_asked_again() -> None:
    async def live(world: World) -> None:
        await _begin(world, UnverifiedDecisions.APPROVE_AND_REJECT, knows="")
        assert allowed(world) == [Verdict.APPROVE, Verdict.REJECT]
        world.decide("a", Decision(verdict=Verdict.APPROVE, params={"x": 2}, decided_by="Eve"))
        await world.until(lambda: has_question(world, 2))
        refused, _ = state(world)
        assert refused.state == "Refused"
        assert "editing the params is refused" in refused.message
        assert "AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED=All" in refused.message
        assert world.counts.calls["act"] == 0
        world.decide("a", Decision(verdict=Verdict.REJECT, decided_by="Eve"))
        assert (await world.ended()).phase == "Failed"
        assert world.counts.calls["act"] == 0
        assert [status.verdict for status in state(world)[:2]] == [Verdict.APPROVE, Verdict.REJECT]

    in_world(live, TOOLS, SCRIPT)


def test_of_an_unknown_outcome_somebody_unknown_may_say_nothing_but_give_up() -> None:
    async def live(world: World) -> None:
        await _begin(world, UnverifiedDecisions.APPROVE_AND_REJECT, UNKNOWN, knows="")
        assert allowed(world) == [Verdict.DISCARD]
        beyond = [
            (Decision(verdict=Verdict.RELEASE, effect=Effect.NOT_EXECUTED), "verdict Release is refused"),
            (Decision(verdict=Verdict.RESOLVE, effect=Effect.EXECUTED, result=1), "verdict Resolve is refused"),
            (Decision(verdict=Verdict.DISCARD, effect=Effect.NOT_EXECUTED), "saying effect NotExecuted is refused"),
        ]
        for number, (decision, want) in enumerate(beyond, 2):
            world.decide("a", decision)
            await world.until(lambda: has_question(world, number))  # noqa: B023
            refused = state(world)[-2]
            assert refused.state == "Refused"
            assert want in refused.message
        world.decide("a", Decision(verdict=Verdict.DISCARD))
        assert (await world.ended()).phase == "Failed"
        given_up = world.nodes()["a"]
        assert (given_up.phase, given_up.reason, given_up.effect) == ("Dead", "Discarded", Effect.UNKNOWN)
        # The record stays unknown: an equal call is asked about again, and never made.
        world.apply_run(UNKNOWN, "second")
        await world.until(lambda: world.nodes("second").get("a", given_up).phase == "Quarantined")
        assert world.nodes("second")["a"].reason == "OutcomeUnknown"
        assert world.counts.calls["pay"] == 1

    in_world(live, TOOLS, SCRIPT)


def test_a_dead_node_is_not_driven_again_by_somebody_unknown() -> None:
    async def live(world: World) -> None:
        await _begin(world, UnverifiedDecisions.APPROVE_AND_REJECT, DEAD, knows="")
        world.decide("a", Decision(verdict=Verdict.REJECT))
        await world.until(lambda: has_question(world, 2))
        assert allowed(world) == [Verdict.DISCARD]
        world.decide("a", Decision(verdict=Verdict.REDRIVE))
        await world.until(lambda: has_question(world, 3))
        assert "verdict Redrive is refused" in state(world)[-2].message
        world.decide("a", Decision(verdict=Verdict.DISCARD))
        assert (await world.ended()).phase == "Failed"
        assert state(world)[-1].state == "Applied"

    in_world(live, TOOLS, SCRIPT)


def test_who_is_vouched_for_may_say_everything_where_others_may_not() -> None:
    async def live(world: World) -> None:
        await _begin(world, UnverifiedDecisions.APPROVE_AND_REJECT, UNKNOWN)
        assert allowed(world) == [Verdict.RELEASE, Verdict.RESOLVE, Verdict.DISCARD]
        world.decide("a", Decision(verdict=Verdict.RELEASE, effect=Effect.NOT_EXECUTED, decided_by="Eve"))
        await world.until(lambda: has_question(world, 2))
        world.decide("a", Decision(verdict=Verdict.RELEASE, effect=Effect.NOT_EXECUTED, decided_by="Ada"))
        assert (await world.ended()).phase == "Succeeded"
        assert world.counts.calls["pay"] == 2

    in_world(live, TOOLS, SCRIPT)


def test_an_open_question_shows_what_counts_after_the_rule_was_changed() -> None:
    async def live(world: World) -> None:
        await _begin(world, UnverifiedDecisions.APPROVE_AND_REJECT, UNKNOWN, knows="")
        asked = world.open_question("a").status.request  # type: ignore[union-attr]
        assert asked is not None
        assert "can only be given up" in asked.question
        await world.kill_scheduler()
        world.start_scheduler(settings=SchedulerSettings(unverified_decisions=UnverifiedDecisions.ALL))
        await world.until(lambda: Verdict.RELEASE in allowed(world))
        (question,) = state(world)
        assert question.request is not None
        assert (question.request.inbox_id, question.request.asked_at) == (asked.inbox_id, asked.asked_at)
        assert "say effect" in question.request.question
        world.decide("a", Decision(verdict=Verdict.RELEASE, effect=Effect.NOT_EXECUTED))
        assert (await world.ended()).phase == "Succeeded"

    in_world(live, TOOLS, SCRIPT)
