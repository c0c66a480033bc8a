"""What is said about pods that do not start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agentrun.decisions.pools.pod_faults import FAULT_REASONS, PodSight, find_pod_fault, find_pool_fault

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
POD = PodSight("p-1", NOW - timedelta(seconds=5), phase="Pending")
OLD = replace(POD, created_at=NOW - timedelta(minutes=2))


@pytest.mark.parametrize(
    "pod, want_reason, want_words",
    [
        pytest.param(
            replace(POD, waiting_reason="ImagePullBackOff", waiting_message='Back-off pulling image "x:1"'),
            "Image",
            'check execution.image and the registry\'s Secret; ImagePullBackOff: Back-off pulling image "x:1"',
            id="image",
        ),
        pytest.param(
            replace(POD, waiting_reason="ErrImagePull", waiting_message="failed to do request: " * 100),
            "Image",
            "check execution.image and the registry's Secret; ErrImagePull: failed to do request",
            id="image, told at length",
        ),
        pytest.param(replace(POD, waiting_reason="InvalidImageName"), "Image", "InvalidImageName", id="image's name"),
        pytest.param(
            replace(POD, waiting_reason="CreateContainerConfigError", waiting_message='secret "s" not found'),
            "Container",
            'secret "s" not found',
            id="configuration",
        ),
        pytest.param(
            replace(POD, unscheduled="0/3 nodes are available: insufficient memory"),
            "Unschedulable",
            "insufficient memory",
            id="no node",
        ),
        pytest.param(
            replace(POD, phase="Running", waiting_reason="CrashLoopBackOff", ended_reason="OOMKilled", exit_code=137),
            "OutOfMemory",
            "raise execution.resources.limits.memory",
            id="memory",
        ),
        pytest.param(
            replace(POD, phase="Running", waiting_reason="CrashLoopBackOff", ended_reason="Error", exit_code=2),
            "Crash",
            "exit code 2; see: kubectl logs --previous p-1",
            id="crash",
        ),
        pytest.param(
            replace(POD, phase="Failed", reason="Evicted", message="low on memory"),
            "Evicted",
            "Evicted: low on memory",
            id="evicted",
        ),
        pytest.param(
            replace(OLD, waiting_reason="ContainerCreating"), "Volume", "kubectl describe pod p-1", id="volume"
        ),
    ],
)
def test_a_pod_that_does_not_start_says_why_and_what_to_do(pod: PodSight, want_reason: str, want_words: str) -> None:
    fault = find_pod_fault(pod, NOW)
    assert fault is not None
    assert fault.reason == want_reason
    assert want_words in fault.message
    assert fault.reason in FAULT_REASONS


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(POD, id="new"),
        pytest.param(replace(POD, waiting_reason="ContainerCreating"), id="being created"),
        pytest.param(replace(OLD, phase="Running"), id="started, not ready yet"),
        pytest.param(replace(OLD, waiting_reason="ImagePullBackOff", leaving=True), id="leaving"),
        pytest.param(replace(OLD, ready=True, ended_reason="Error", exit_code=1), id="ready again"),
    ],
)
def test_a_pod_on_its_way_is_no_fault(pod: PodSight) -> None:
    assert find_pod_fault(pod, NOW) is None


def test_one_ready_worker_takes_the_orders_of_all() -> None:
    bad = replace(POD, waiting_reason="ErrImagePull")
    assert find_pool_fault([bad, replace(POD, name="p-2", ready=True)], NOW) is None
    fault = find_pool_fault([replace(bad, name="p-2"), bad], NOW)
    assert fault is not None
    assert fault.message.startswith("pod p-1:")


def test_what_a_pod_says_cannot_grow_without_end_or_break_a_line() -> None:
    fault = find_pod_fault(replace(POD, waiting_reason="ErrImagePull", waiting_message="a\nb " * 5000), NOW)
    assert fault is not None
    assert len(fault.message) <= 400
    assert "\n" not in fault.message


def test_a_pod_that_is_never_started_again_says_how_its_container_ended() -> None:
    ended = replace(POD, phase="Failed", ended_reason="Error", exit_code=2)
    crash = find_pod_fault(ended, NOW)
    assert crash is not None
    assert (crash.reason, "kubectl logs p-1" in crash.message) == ("Crash", True)
    memory = find_pod_fault(replace(ended, ended_reason="OOMKilled"), NOW)
    assert memory is not None
    assert memory.reason == "OutOfMemory"
    evicted = find_pod_fault(replace(ended, reason="Evicted"), NOW)
    assert evicted is not None
    assert evicted.reason == "Evicted"
