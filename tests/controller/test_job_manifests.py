"""What a Job is made of: the pools' hardened pod with the duty to carry one order out, and limits on everything."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agentrun.contract.run import Priority
from agentrun.contract.tool import AgentToolSpec
from agentrun.controller.jobs.job_manifests import JobSettings, build_job, build_job_policy
from agentrun.controller.jobs.job_sights import find_creation_refusal, job_key_of, read_job
from agentrun.controller.pools.pool_manifests import LedgerAccess, build_pool
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.decisions.jobs.job_step import JobRules
from agentrun.decisions.jobs.job_wishes import JobKey, JobStage, JobWish, build_job_pod
from agentrun.decisions.pools.pool_wishes import PoolKey
from agentrun.decisions.pools.resource_amounts import ContainerAmounts

USUAL = ContainerAmounts({"cpu": "100m", "memory": "128Mi"}, {"cpu": "1", "memory": "512Mi"})
SETTINGS = JobSettings(PoolSettings("agentrun", "worker:1", usual_amounts=USUAL), JobRules(timedelta(hours=1)))
ACCESS = LedgerAccess("agentrun-agentrun-worker-ledger", "v1")
FULL = {
    "mode": "Job",
    "image": "mine:2",
    "serviceAccountName": "robot",
    "env": [{"name": "PYTHONPATH", "value": "/more"}],
    "volumes": [{"name": "data", "kind": "PersistentVolumeClaim", "source": "disk", "mountPath": "/data"}],
    "secrets": ["mail"],
    "resources": {"limits": {"memory": "4Gi"}},
}
WISH = JobWish(
    key=JobKey("shop", "run-a-0123456789ab"),
    stage=JobStage.START,
    queue="shared.0123456789abcdef0123456789abcdef",
    node="run-a",
    node_uid="node-uid",
    seq=3,
    run_uid="run-uid",
    tool="act",
    priority=Priority.P2,
    spec=AgentToolSpec.model_validate(
        {"type": "python", "python": {"entryPoint": "m:f"}, "execution": {"mode": "Job"}}
    ),
    lookup=None,
    longest_call=timedelta(seconds=90),
    patience=timedelta(minutes=30),
)


def build(**execution: Any) -> dict[str, Any]:
    spec = AgentToolSpec.model_validate(
        {"type": "python", "python": {"entryPoint": "m:f"}, "execution": {"mode": "Job", **execution}}
    )
    found: dict[str, Any] = build_job(replace(WISH, spec=spec), SETTINGS, ACCESS)
    return found


@pytest.mark.parametrize("execution", [{}, FULL], ids=["plain", "full"])
def test_its_pod_is_that_of_a_pool_but_for_its_duty(execution: dict[str, Any]) -> None:
    job = build(**execution)
    spec = AgentToolSpec.model_validate(
        {"type": "python", "python": {"entryPoint": "m:f"}, "execution": {"mode": "Job", **execution}}
    )
    pool: Any = build_pool(
        PoolKey("shop", WISH.queue), build_job_pod(replace(WISH, spec=spec)), SETTINGS.pods, ACCESS, "v1"
    ).deployment["spec"]
    mine, theirs = job["spec"]["template"]["spec"], pool["template"]["spec"]
    differing = {field for field in mine.keys() | theirs.keys() if mine.get(field) != theirs.get(field)}
    assert differing == {"restartPolicy", "containers", "affinity"}
    assert mine["restartPolicy"] == "Never"
    (own,), (other,) = mine["containers"], theirs["containers"]
    assert {field for field in own.keys() | other.keys() if own.get(field) != other.get(field)} == {
        "command", "env", "ports", "startupProbe", "livenessProbe", "readinessProbe"
    }  # fmt: skip
    assert own["command"] == ["agentrun-worker", "run", "--one-order"]
    told = {entry["name"]: entry.get("value") for entry in own["env"]}
    assert told["AGENTRUN_WORKER_POOL"] == WISH.queue
    assert told["AGENTRUN_WORKER_ORDER_PATIENCE"] == "30m"
    assert told["AGENTRUN_WORKER_DRAIN_GRACE"] == "1m30s"


def test_a_job_is_tried_once_ends_by_itself_and_goes_with_its_node() -> None:
    job = build()
    spec, meta = job["spec"], job["metadata"]
    assert (spec["backoffLimit"], spec["parallelism"], spec["completions"]) == (0, 1, 1)
    grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > 90
    # Whatever its worker waits for and does by itself comes first.
    assert spec["activeDeadlineSeconds"] == 30 * 60 + 2 * grace
    assert spec["ttlSecondsAfterFinished"] == 3600
    assert meta["ownerReferences"] == [
        {"apiVersion": "agentrun.dev/v1alpha1", "kind": "AgentNode", "name": "run-a", "uid": "node-uid",
         "controller": True, "blockOwnerDeletion": False}
    ]  # fmt: skip
    assert (
        job_key_of(job) == job_key_of({"metadata": {**spec["template"]["metadata"], "namespace": "shop"}}) == WISH.key
    )


def test_a_token_is_mounted_for_a_named_account_alone() -> None:
    assert build()["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    named = build(serviceAccountName="robot")["spec"]["template"]["spec"]
    assert (named["automountServiceAccountToken"], named["serviceAccountName"]) == (True, "robot")


def test_nobody_talks_to_a_jobs_pod_and_it_reaches_no_metadata_address() -> None:
    spec: Any = build_job_policy("shop", "agentrun")["spec"]
    assert "ingress" not in spec
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    labels = build()["spec"]["template"]["metadata"]["labels"]
    selector = spec["podSelector"]
    assert selector["matchLabels"].items() <= labels.items()
    assert all(wanted["key"] in labels and wanted["operator"] == "Exists" for wanted in selector["matchExpressions"])
    assert "169.254.0.0/16" in str(spec["egress"])


@pytest.mark.parametrize(
    "conditions, want_ended",
    [
        pytest.param([], False, id="none"),
        pytest.param([{"type": "Complete", "status": "True"}], True, id="complete"),
        pytest.param([{"type": "Failed", "status": "True"}], True, id="failed"),
        pytest.param([{"type": "Suspended", "status": "True"}], False, id="suspended"),
        pytest.param([{"type": "Failed", "status": "False"}], False, id="not failed"),
        pytest.param([{"type": "FailureTarget", "status": "True"}], False, id="its pod is still ending"),
    ],
)
def test_a_job_has_ended_when_kubernetes_says_so(conditions: list[Any], want_ended: bool) -> None:
    at = "2026-05-01T12:00:00Z"
    found = read_job({"status": {"conditions": [{**one, "lastTransitionTime": at} for one in conditions]}})
    assert (found.ended_at is not None) is want_ended
    assert found.ended_at is None or found.ended_at.isoformat() == "2026-05-01T12:00:00+00:00"


def test_the_last_event_says_why_no_pod_could_be_made() -> None:
    events: list[Any] = [
        {"reason": "FailedCreate", "message": "newer", "lastTimestamp": "2026-05-01T12:00:05Z"},
        {"reason": "FailedCreate", "message": "older", "eventTime": "2026-05-01T12:00:01.5Z"},
        {"reason": "SuccessfulCreate", "message": "another", "lastTimestamp": "2026-05-01T12:00:09Z"},
    ]
    assert find_creation_refusal(events) == "newer"
    assert find_creation_refusal(events[2:]) == ""
