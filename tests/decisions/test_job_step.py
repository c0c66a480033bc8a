"""What is done about a Job: one table of its factors, and what holds whatever happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.run import Priority
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.jobs.job_step import (
    CreateJob,
    DeleteJob,
    JobAction,
    JobFacts,
    JobMemory,
    JobRules,
    JobSight,
    decide_job,
)
from agentrun.decisions.jobs.job_wishes import JobKey, JobStage, JobWish, build_job_pod
from agentrun.decisions.pools.pod_faults import FAULT_REASONS, PodSight, PoolFault

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
POD = PodSight("job-x", NOW - SECOND, phase="Pending")
CRASHED = replace(POD, phase="Failed", ended_reason="Error", exit_code=3)
SIGHT = JobSight("uid-1", NOW - SECOND, pods=(replace(POD, phase="Running"),))
ENDED = replace(SIGHT, ended_at=NOW, pods=(CRASHED,))
LEAVING = replace(SIGHT, leaving=True)
WAITS = JobMemory(ended_uid="uid-1", starts=1, again_at=NOW + SECOND, fault=PoolFault("Crash", "it ended"))
DUE = replace(WAITS, again_at=NOW)


def build_tool(**execution: object) -> AgentToolSpec:
    return AgentToolSpec.model_validate(
        {"type": "python", "python": {"entryPoint": "m:f"}, "execution": {"mode": "Job", **execution}}
    )


def build_wish(stage: JobStage = JobStage.START) -> JobWish:
    return JobWish(
        key=JobKey("shop", "run-a-0123456789ab"),
        stage=stage,
        queue="shared.0123456789abcdef0123456789abcdef",
        node="run-a",
        node_uid="node-uid",
        seq=1,
        run_uid="run-uid",
        tool="act",
        priority=Priority.P2,
        spec=build_tool(secrets=["mail"]),
        lookup=None,
        longest_call=timedelta(seconds=90),
        patience=timedelta(minutes=30),
    )


START, OUT, RECOVER = (build_wish(stage) for stage in JobStage)


def build_facts(
    wish: JobWish | None,
    sight: JobSight | None = None,
    *others: PodSight,
    memory: JobMemory | None = None,
) -> JobFacts:
    return JobFacts(NOW, wish, sight, others, memory or JobMemory(), JobRules(keep_ended=HOUR))


OLD_POD = PodSight("job-old", NOW - HOUR, phase="Running")


@pytest.mark.parametrize(
    "facts, want",
    [
        pytest.param(build_facts(START), CreateJob(), id="a call that is to be made has its Job made"),
        pytest.param(build_facts(START, SIGHT), None, id="one that exists is not made again"),
        pytest.param(build_facts(START, LEAVING), None, id="the next one waits until the name is free"),
        pytest.param(build_facts(START, ENDED), None, id="one that ended without its order is left for a while"),
        pytest.param(build_facts(START, ENDED, memory=WAITS), None, id="until its time has come"),
        pytest.param(build_facts(START, ENDED, memory=DUE), DeleteJob(), id="then it makes room for the next"),
        pytest.param(build_facts(START, None, memory=DUE), CreateJob(), id="which is made as the first was"),
        pytest.param(build_facts(START, None, OLD_POD), None, id="never two pods of a node at work"),
        pytest.param(build_facts(START, None, replace(OLD_POD, phase="Failed")), CreateJob(), id="a former one ended"),
        pytest.param(
            build_facts(START, None, replace(OLD_POD, leaving=True, leaves_by=NOW)), None, id="a former one is leaving"
        ),
        pytest.param(
            build_facts(START, None, replace(OLD_POD, leaving=True, leaves_by=NOW - HOUR)),
            CreateJob(),
            id="a former one is on a machine that nobody hears of",
        ),
        pytest.param(build_facts(RECOVER, None, OLD_POD), CreateJob(), id="who merely asks need not wait for it"),
        pytest.param(build_facts(RECOVER, SIGHT), None, id="a recovery has one Job as well"),
        pytest.param(build_facts(OUT), None, id="an order that is out has no second Job made for it"),
        pytest.param(build_facts(OUT, SIGHT), None, id="a call under way is left alone"),
        pytest.param(build_facts(OUT, ENDED, memory=DUE), None, id="whatever its Job says"),
        pytest.param(build_facts(None), None, id="nothing wanted, nothing there"),
        pytest.param(build_facts(None, SIGHT), None, id="a worker may be saying goodbye"),
        pytest.param(
            build_facts(None, SIGHT, memory=JobMemory(unwished_since=NOW - 10 * SECOND)),
            DeleteJob(),
            id="one that nobody wants goes",
        ),
        pytest.param(
            build_facts(None, SIGHT, memory=JobMemory(unwished_since=NOW - 29 * SECOND, was_out=True)),
            None,
            id="one whose order was out is given longer for its goodbye",
        ),
        pytest.param(
            build_facts(None, SIGHT, memory=JobMemory(unwished_since=NOW - 30 * SECOND, was_out=True)),
            DeleteJob(),
            id="and goes as well",
        ),
        pytest.param(
            build_facts(None, replace(SIGHT, pods=(CRASHED,)), memory=JobMemory(unwished_since=NOW - 59 * 60 * SECOND)),
            None,
            id="one whose pod has ended is left to be read, although Kubernetes is slow to note its end",
        ),
        pytest.param(
            build_facts(None, replace(SIGHT, pods=(CRASHED,)), memory=JobMemory(unwished_since=NOW - HOUR)),
            DeleteJob(),
            id="but not for ever",
        ),
        pytest.param(
            build_facts(None, LEAVING, memory=JobMemory(unwished_since=NOW - HOUR)), None, id="and is told so once"
        ),
        pytest.param(build_facts(None, ENDED), None, id="what has ended stays to be read"),
        pytest.param(
            build_facts(None, replace(ENDED, ended_at=NOW - HOUR)), DeleteJob(), id="for as long as it is to be kept"
        ),
    ],
)
def test_each_factor_has_its_step(facts: JobFacts, want: JobAction | None) -> None:
    assert decide_job(facts).action == want


def test_a_pod_that_ends_without_its_order_is_followed_by_another_ever_later_and_says_why() -> None:
    memory, now, pauses = JobMemory(), NOW, []
    for at in range(8):
        sight = replace(ENDED, uid=f"uid-{at}")
        step = decide_job(replace(build_facts(START, sight, memory=memory), now=now))
        assert step.action is None
        assert step.memory.again_at is not None
        pauses.append(step.memory.again_at - now)
        assert step.fault is not None
        assert "exit code 3; see: kubectl logs job-x; the next is started at" in step.fault.message
        # A second look at the same Job counts nothing.
        assert decide_job(replace(build_facts(START, sight, memory=step.memory), now=now)).memory == step.memory
        memory, now = step.memory, step.memory.again_at
    assert pauses[:3] == [10 * SECOND, 20 * SECOND, 40 * SECOND]
    assert pauses[-1] == timedelta(minutes=5)


@pytest.mark.parametrize(
    "sight, want_reason",
    [
        pytest.param(
            replace(SIGHT, pods=(replace(POD, waiting_reason="ImagePullBackOff"),)), "Image", id="no such image"
        ),
        pytest.param(replace(SIGHT, pods=(), refusal=PoolFault("Quota", "exceeded quota: q")), "Quota", id="no pod"),
        pytest.param(
            replace(SIGHT, refusal=PoolFault("Quota", "exceeded quota: q")), None, id="a refusal that is over"
        ),
        pytest.param(SIGHT, None, id="on its way"),
    ],
)
def test_a_pod_that_does_not_start_says_why(sight: JobSight, want_reason: str | None) -> None:
    fault = decide_job(build_facts(START, sight)).fault
    assert (fault.reason if fault else None) == want_reason
    assert want_reason is None or want_reason in FAULT_REASONS


def test_that_its_order_was_out_is_remembered_until_its_end() -> None:
    out = decide_job(build_facts(OUT, SIGHT))
    unwished = decide_job(build_facts(None, SIGHT, memory=out.memory))
    later = replace(build_facts(None, SIGHT, memory=unwished.memory), now=NOW + 20 * SECOND)
    assert decide_job(later).action is None
    assert decide_job(replace(later, now=NOW + 30 * SECOND)).action == DeleteJob()


def test_a_pod_of_the_former_attempt_is_named() -> None:
    fault = decide_job(build_facts(START, None, OLD_POD)).fault
    assert fault == PoolFault("FormerPod", "pod job-old of this node's former attempt has not ended yet")
    assert fault.reason in FAULT_REASONS


def test_a_job_that_is_wanted_again_is_not_taken_away_for_the_time_before() -> None:
    unwished = decide_job(build_facts(None, SIGHT))
    wished = decide_job(build_facts(START, SIGHT, memory=unwished.memory))
    later = replace(build_facts(None, SIGHT, memory=wished.memory), now=NOW + HOUR)
    assert decide_job(later).action is None


def test_its_pod_is_that_of_the_tools_pool_with_the_time_of_this_very_call() -> None:
    pod = build_job_pod(replace(START, spec=build_tool(secrets=["mail"], image="x:1", serviceAccountName="a")))
    assert (pod.image, pod.account, pod.secrets) == ("x:1", "a", ("mail",))
    assert pod.longest_call == timedelta(seconds=90)
    lookup = AgentToolSpec.model_validate(
        {
            "type": "http",
            "http": {
                "url": "https://shop.example/",
                "headersFrom": [{"name": "A", "secretKeyRef": {"name": "shop", "key": "t"}}],
            },
        }
    )
    asked = AgentToolSpec.model_validate(
        build_tool(secrets=["mail"]).to_wire()
        | {
            "recovery": {
                "lookup": {"tool": "ask"},
                "outcome": {"completed": {"when": {"path": "result.ok", "op": "eq", "value": True}}},
            }
        }
    )
    assert build_job_pod(replace(START, spec=asked, lookup=("ask", lookup))).secrets == ("mail", "shop")


moments = st.integers(-4000, 4000).map(lambda seconds: NOW + timedelta(seconds=seconds))
pods = st.builds(
    PodSight,
    st.sampled_from(["p-1", "p-2"]),
    moments,
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    leaves_by=st.none() | moments,
    ended_reason=st.sampled_from(["", "Error", "OOMKilled"]),
)
sights = st.builds(
    JobSight,
    st.sampled_from(["uid-1", "uid-2"]),
    moments,
    ended_at=st.none() | moments,
    leaving=st.booleans(),
    pods=st.lists(pods, max_size=2).map(tuple),
)
memories = st.builds(
    JobMemory,
    ended_uid=st.sampled_from(["", "uid-1", "uid-2"]),
    starts=st.integers(0, 50),
    again_at=st.none() | moments,
    unwished_since=st.none() | moments,
    was_out=st.booleans(),
)
facts = st.builds(
    JobFacts,
    st.just(NOW),
    st.sampled_from([None, START, OUT, RECOVER]),
    st.none() | sights,
    st.lists(pods, max_size=2).map(tuple),
    memories,
)


@given(facts)
def test_nothing_is_made_beside_what_exists_and_nothing_at_work_is_taken_from_a_call(found: JobFacts) -> None:
    step = decide_job(found)
    if step.action == CreateJob():
        assert found.sight is None
        assert found.wish in (START, RECOVER)
    if step.action == DeleteJob():
        assert found.sight is not None
        assert not found.sight.leaving
        assert found.wish is not OUT
        # What a call may still want is taken away only after its pod has ended.
        assert found.wish is None or found.sight.ended_at is not None


@given(facts)
def test_whatever_is_found_comes_to_rest(found: JobFacts) -> None:
    """Left to itself a Job that nobody wants goes, and one that is wanted is there: within bounded time."""
    now, sight, memory = NOW, found.sight, found.memory
    wish = found.wish if found.wish is not OUT else None
    for _ in range(40):
        step = decide_job(replace(found, now=now, wish=wish, sight=sight, other_pods=(), memory=memory))
        memory = step.memory
        if step.action == DeleteJob() or (sight is not None and sight.leaving):
            sight = None
        elif step.action == CreateJob():
            sight = JobSight("uid-3", now)
        now += timedelta(minutes=5)
    assert (sight is None) == (wish is None)
