"""People: they answer what they are asked, in every way that people answer, and do to runs what plans say.

Called by ``simulation.one_history``. They act on the cluster alone, as with kubectl. What they say about what happened
outside is true most of the time; where it is not, the history remembers that the engine was told something false.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Protocol

from agentrun.contract.approval import AgentApproval, Decision, Verdict
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect
from agentrun.contract.node import AgentNode
from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.run import TERMINAL_RUN_PHASES, AgentRun, AgentRunSpec, Budget
from agentrun.engine.cluster_port import ConflictError, GoneError
from agentrun.local.memory_cluster import MemoryCluster
from simulation.outside import Outside
from simulation.plans import DeedKind, PlannedRun

_MOST_ANSWERS = 12
"""After so many nobody answers any more: a dead node that is driven again and again ends by its expiry."""
_RAISED_TO = Budget.model_validate({"limit": "10"})
_SUSPENDED_SECONDS = 15
BY_A_PERSON = "by a person"
"""The token of a result that a person gave."""
_LATE_SECONDS = 25
_OTHER_DIGEST = "sha256:" + "0" * 64


class Place(Protocol):
    """The history that people live in."""

    cluster: MemoryCluster
    outside: Outside
    lied_about: set[str]
    """Keys about which somebody said that nothing was executed, and it was, or still may be."""
    cancelled: set[str]
    """Uids of runs that somebody cancelled."""

    def say(self, who: str, what: str) -> None:
        """Keep a line of the trace."""
        ...

    def count(self, group: str, what: str) -> None:
        """Count what occurred."""
        ...


# --- answers


async def answer_questions(place: Place, seed: int) -> None:
    """Answer what is open, some of it at once, some of it late, some of it never."""
    chance = random.Random(f"{seed} people")
    answers = 0
    late: set[str] = set()
    while answers < _MOST_ANSWERS:
        await asyncio.sleep(chance.choice((1, 2, 6)))
        for run in place.cluster.runs():
            for approval in place.cluster.approvals_of("default", run.metadata.uid):
                name = approval.metadata.name
                if not _is_open(approval) or name in late:
                    continue
                if chance.random() < 0.2:
                    late.add(name)
                    asyncio.get_running_loop().call_later(_LATE_SECONDS, late.discard, name)
                    place.count("people", "answers late")
                    continue
                answers += _answer(place, approval, chance)


def _is_open(approval: AgentApproval) -> bool:
    status = approval.status
    return status is not None and status.request is not None and status.state == "Open" and not approval.spec.decision


def _answer(place: Place, approval: AgentApproval, chance: random.Random) -> bool:
    node = _node_of(place, approval)
    fields = _draw_decision(place, approval, node, chance)
    if fields is None:
        return False
    name = approval.metadata.name
    try:
        decision = Decision.model_validate(fields)
        place.cluster.patch_decision("default", name, decision)
        if decision.verdict is Verdict.RESOLVE and node is not None and node.status and node.status.call:
            # Whoever asks under the same key gets it as well.
            place.outside.tokens_told[node.status.call.key].add(BY_A_PERSON)
        place.say("person", f"{name}: {decision.verdict} {decision.effect or ''}".rstrip())
        place.count("people", f"says {decision.verdict}{f' {decision.effect}' if decision.effect else ''}")
        if chance.random() < 0.1:
            place.count("people", "answers twice")
            place.cluster.patch_decision("default", name, decision)
            place.cluster.patch_decision("default", name, decision.model_copy(update={"reason": "on second thoughts"}))
    except (ConflictError, GoneError):
        place.say("person", f"{name}: was decided already")
    return True


def _draw_decision(
    place: Place, approval: AgentApproval, node: AgentNode | None, chance: random.Random
) -> JsonObject | None:
    assert approval.status is not None
    request = approval.status.request
    assert request is not None
    verdict = chance.choice(request.allowed)
    fields: dict[str, Any] = {"decidedBy": "Ada"}
    roll = chance.random()
    if roll < 0.06:
        # None of these is allowed: it is refused, and asked again.
        verdict = chance.choice([one for one in Verdict if one not in request.allowed])
        place.count("people", "gives an answer that is not allowed")
    elif roll < 0.10:
        fields["paramsDigest"] = _OTHER_DIGEST
        place.count("people", "has looked at other params")
    elif roll < 0.16 and verdict in (Verdict.APPROVE, Verdict.RELEASE, Verdict.REDRIVE) and request.tool:
        fields["params"] = {"n": chance.choice((3, 5, 9, "none"))}
        place.count("people", "edits the params")
    fields["verdict"] = verdict
    if verdict is Verdict.RESOLVE:
        fields["result"] = {"token": BY_A_PERSON, "n": 1}
    if request.unknown_outcome and chance.random() < 0.9:
        key = node.status.call.key if node is not None and node.status and node.status.call else ""
        if place.outside.is_on_its_way(key) and chance.random() < 0.9:
            # Whoever looks sees that it is still at work, and waits.
            return None
        happened = place.outside.has_happened(key)
        if chance.random() < 0.05:
            happened = not happened
            place.count("people", "says what is not so")
        if not happened and (place.outside.has_happened(key) or place.outside.is_on_its_way(key)):
            place.lied_about.add(key)
        fields["effect"] = Effect.EXECUTED if happened else Effect.NOT_EXECUTED
    return fields


def _node_of(place: Place, approval: AgentApproval) -> AgentNode | None:
    assert approval.status is not None
    assert approval.status.request is not None
    run_uid = next((owner.uid for owner in approval.metadata.owner_references), "")
    wanted = approval.status.request.node
    return next((node for node in place.cluster.nodes_of("default", run_uid) if node.spec.path == wanted), None)


# --- what is done to runs


async def live_a_run(place: Place, plan: PlannedRun) -> None:
    """Apply a run, and do to it what the plan says."""
    await asyncio.sleep(plan.at)
    _apply(place, plan.name, plan.spec)
    if plan.deed is None:
        return
    if plan.deed in (DeedKind.APPLY_AFTER_END, DeedKind.RERUN, DeedKind.RETRY):
        while not _has_ended(place, plan.name):
            await asyncio.sleep(1)
    await asyncio.sleep(plan.deed_after)
    place.say("person", f"{plan.name}: {plan.deed}")
    try:
        await _do(place, plan)
        place.count("people", plan.deed)
    except GoneError:
        place.say("person", f"{plan.name} is not there")


async def _do(place: Place, plan: PlannedRun) -> None:
    match plan.deed:
        case DeedKind.CANCEL:
            place.cancelled.add(place.cluster.get_run("default", plan.name).metadata.uid)
            _change(place, plan.name, lambda spec: spec.model_copy(update={"cancel": True}))
        case DeedKind.SUSPEND:
            _change(place, plan.name, lambda spec: spec.model_copy(update={"suspend": True}))
            await asyncio.sleep(_SUSPENDED_SECONDS)
            _change(place, plan.name, lambda spec: spec.model_copy(update={"suspend": False}))
        case DeedKind.RAISE_BUDGET:
            _change(place, plan.name, lambda spec: spec.model_copy(update={"budget": _RAISED_TO}))
        case DeedKind.DELETE:
            place.cluster.delete_run("default", plan.name)
        case DeedKind.DELETE_AND_APPLY | DeedKind.APPLY_AFTER_END:
            place.cluster.delete_run("default", plan.name)
            await asyncio.sleep(plan.deed_after)
            _apply(place, plan.name, plan.spec)
        case DeedKind.RERUN:
            place.cluster.delete_run("default", plan.name)
            _apply(place, plan.name, {**plan.spec, "rerunToken": "once more"})
        case DeedKind.RETRY:
            _apply(place, f"{plan.name}-again", {**plan.spec, "retryOf": plan.name})
        case None:
            return


def _change(place: Place, name: str, change: Callable[[AgentRunSpec], AgentRunSpec]) -> None:
    place.cluster.patch_run_spec("default", name, change)


def _apply(place: Place, name: str, spec: JsonObject) -> None:
    place.cluster.apply(
        AgentRun(metadata=ObjectMeta(name=name, namespace="default"), spec=AgentRunSpec.model_validate(spec))
    )


def _has_ended(place: Place, name: str) -> bool:
    try:
        run = place.cluster.get_run("default", name)
    except GoneError:
        return True
    return run.status is not None and run.status.phase in TERMINAL_RUN_PHASES
