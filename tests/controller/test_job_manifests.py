"""What a Job is made of: the pools' hardened pod with the duty to carry one order out, and limits on everything."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from agentrun.contract.run import Priority
from agentrun.contract.tool import AgentToolSpec
from agentrun.controller.jobs.job_manifests import JobSettings, build_job, build_job_policy
from agentrun.controller.jobs.job_sights import find_creation_refusal, job_key_of, read_job
from agentrun.controller.pools.pool_manifests import LedgerAccess, build_pool
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.controller.pools.pool_sights import read_pod
from agentrun.decisions.jobs.job_step import JobRules
from agentrun.decisions.jobs.job_wishes import JobKey, JobStage, JobWish, build_job_pod
from agentrun.decisions.pools.pod_faults import find_pod_fault
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


CONTAINER_TOOL = {
    "type": "container",
    "container": {"image": "reports:7", "command": ["/bin/report", "--as", "$(HOME) $$x"]},
    "execution": {field: value for field, value in FULL.items() if field != "image"},
    "recovery": {"lookup": {"tool": "ask"}, "outcome": {"completed": {"when": {"path": "result", "op": "exists"}}}},
}
LOOKUP = AgentToolSpec.model_validate(
    {
        "type": "http",
        "sideEffect": "None",
        "http": {"url": "https://x", "headersFrom": [{"name": "A", "secretKeyRef": {"name": "asking", "key": "k"}}]},
    }
)


def build_container_pod(stage: JobStage = JobStage.START) -> dict[str, Any]:
    spec = AgentToolSpec.model_validate(CONTAINER_TOOL)
    job: dict[str, Any] = build_job(replace(WISH, stage=stage, spec=spec, lookup=("ask", LOOKUP)), SETTINGS, ACCESS)
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def _mounts(container: dict[str, Any]) -> dict[str, bool]:
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


def test_an_authors_image_gets_what_the_author_names_and_the_worker_the_ledger() -> None:
    pod = build_container_pod()
    worker, tool = pod["containers"]
    assert (worker["name"], worker["image"], tool["name"], tool["image"]) == ("worker", "worker:1", "tool", "reports:7")
    assert tool["args"] == ["/bin/report", "--as", "$$(HOME) $$$$x"], "Kubernetes halves them again"
    assert {variable["name"] for variable in tool["env"]} == {"HOME", "PYTHONPATH"}
    assert "PYTHONPATH" not in {variable["name"] for variable in worker["env"]}
    assert _mounts(tool) == {
        "/tmp": False,
        "/run/agentrun/helper": True,
        "/run/agentrun/call": True,
        "/run/agentrun/answer": False,
        "/run/agentrun/secrets/mail": True,
        "/data": True,
    }
    seen = _mounts(worker)
    assert (seen["/run/agentrun/call"], seen["/run/agentrun/answer"]) == (False, True)
    assert "/run/agentrun/ledger" in seen
    assert not {"/data", "/run/agentrun/secrets/mail"} & seen.keys()
    assert tool["resources"]["limits"]["memory"] == "4Gi"
    assert worker["resources"]["limits"]["memory"] == "512Mi"
    told = {variable["name"]: variable.get("value") for variable in worker["env"]}
    assert told["AGENTRUN_WORKER_CALL_DIRECTORY"] == "/run/agentrun/call"
    assert told["AGENTRUN_WORKER_ANSWER_DIRECTORY"] == "/run/agentrun/answer"


def test_every_container_of_such_a_pod_is_hardened_and_every_volume_bounded() -> None:
    pod = build_container_pod()
    containers = [*pod["initContainers"], *pod["containers"]]
    assert [one["name"] for one in containers] == ["helper", "worker", "tool"]
    for one in containers:
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert one["resources"]["limits"]
        assert one["resources"]["requests"]
        mounted = {mount["name"] for mount in one["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in pod["volumes"]}
    assert all(volume["emptyDir"].get("sizeLimit") for volume in pod["volumes"] if "emptyDir" in volume)
    names = [volume["name"] for volume in pod["volumes"]]
    assert len(set(names)) == len(names)


def test_a_missing_secret_keeps_the_pod_from_its_start() -> None:
    (secret,) = [volume for volume in build_container_pod()["volumes"] if volume["name"].startswith("secret-")]
    assert secret["secret"] == {"secretName": "mail", "optional": False, "defaultMode": 0o440}


def test_who_asks_what_became_of_a_program_starts_none() -> None:
    pod = build_container_pod(JobStage.RECOVER)
    (worker,) = pod["containers"]
    assert "initContainers" not in pod
    assert worker["image"] == "worker:1"
    assert "/run/agentrun/secrets/asking" in _mounts(worker)
    assert not {"/run/agentrun/secrets/mail", "/data"} & _mounts(worker).keys()
    assert "serviceAccountName" not in pod


def _container_status(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


@pytest.mark.parametrize(
    "statuses, reason, words",
    [
        pytest.param(
            {
                "initContainerStatuses": [
                    _container_status("helper", terminated={"exitCode": 0, "reason": "Completed"})
                ],
                "containerStatuses": [
                    _container_status("tool", waiting={"reason": "ImagePullBackOff", "message": "no reports:7"}),
                    _container_status("worker", running={}),
                ],
            },
            "Image",
            "no reports:7",
            id="the tool's image",
        ),
        pytest.param(
            {
                "initContainerStatuses": [_container_status("helper", waiting={"reason": "ErrImagePull"})],
                "containerStatuses": [
                    _container_status("tool", waiting={"reason": "PodInitializing"}),
                    _container_status("worker", waiting={"reason": "PodInitializing"}),
                ],
            },
            "Image",
            "ErrImagePull",
            id="the helper's image",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    _container_status(
                        "tool", terminated={"exitCode": 127, "reason": "Error", "message": "command x: no such program"}
                    ),
                    _container_status("worker", terminated={"exitCode": 8, "reason": "Error"}),
                ]
            },
            "Crash",
            "exit code 127: command x: no such program",
            id="no such program",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    _container_status("tool", terminated={"exitCode": 137, "reason": "OOMKilled"}),
                    _container_status("worker", running={}),
                ]
            },
            "OutOfMemory",
            "execution.resources.limits.memory",
            id="out of memory",
        ),
    ],
)
def test_what_keeps_either_container_from_its_work_is_told(statuses: dict[str, Any], reason: str, words: str) -> None:
    made = "2026-01-01T00:00:00Z"
    pod = {"metadata": {"name": "p-1", "creationTimestamp": made}, "status": {"phase": "Pending", **statuses}}
    fault = find_pod_fault(read_pod(pod), datetime.fromisoformat(made))
    assert fault is not None
    assert (fault.reason, words in fault.message) == (reason, True), fault.message
