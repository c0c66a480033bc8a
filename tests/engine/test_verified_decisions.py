"""What becomes of decisions that nobody vouches for."""

from agentrun.contract.approval import AgentApproval, AgentApprovalStatus, Decision, Verdict
from agentrun.engine.settings import SchedulerSettings
from support.world import World, in_world

TOOLS = "act: {approval: {required: Always}}"
SCRIPT = "tools: {act: [{result: done}]}"
RUN = "nodes: [{name: a, tool: act, params: {x: 1}}]"


class _Knows:
    """Vouches for one person."""

    def __init__(self, person: str) -> None:
        self._person = person

    async def is_verified(self, approval: AgentApproval, params_digest: str) -> bool:
        decision = approval.spec.decision
        return decision is not None and decision.decided_by == self._person and params_digest != ""


def state(world: World) -> list[AgentApprovalStatus]:
    uid = world.cluster.get_run("default", "run").metadata.uid
    found = [approval.status for approval in world.cluster.approvals_of("default", uid)]
    return sorted((status for status in found if status), key=lambda status: status.request.inbox_id)  # type: ignore[union-attr]


async def _begin(world: World, *, require_verified: bool) -> None:
    world.verifier = _Knows("Ada")
    world.start_scheduler(settings=SchedulerSettings(require_verified=require_verified))
    world.start_worker()
    world.apply_run(RUN)
    await world.until(lambda: world.open_question("a") is not None)


def test_where_it_is_required_an_unverified_decision_is_refused_and_the_question_asked_again() -> None:
    async def live(world: World) -> None:
        await _begin(world, require_verified=True)
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


def test_where_it_is_not_required_an_unverified_decision_is_applied_and_called_so() -> None:
    async def live(world: World) -> None:
        await _begin(world, require_verified=False)
        world.decide("a", Decision(verdict=Verdict.APPROVE, decided_by="Eve"))
        assert (await world.ended()).phase == "Succeeded"
        (applied,) = state(world)
        assert (applied.state, applied.verified) == ("Applied", False)

    in_world(live, TOOLS, SCRIPT)
