"""Jobs on a real API server: one for each attempt, made once, shown when it cannot start, gone when nobody wants it.

No kubelet runs here: pods are made by Kubernetes' own controllers and started by the test, as processes.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from support.cluster_site import ClusterSite
from support.job_site import JobSite
from support.pool_site import POD_FAULTS

ACT = '{"act": {"timeout": "60s", "execution": {"mode": "Job"}}}'


@pytest.fixture
def jobs(site: ClusterSite) -> JobSite:
    return JobSite(site)


def call(word: str, name: str = "a", seconds: float = 0) -> dict[str, Any]:
    return {"name": name, "tool": "act", "params": {"word": word, "seconds": seconds}}


def wait_messages(site: ClusterSite, run: str) -> str:
    waits = site.get("agentrun", run).get("status", {}).get("waits", [])
    return "\n".join(f"{wait['waitingFor']}: {wait.get('message', '')}" for wait in waits)


def test_a_call_has_a_job_of_its_own_whose_pod_ends_with_it(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one")])
    (pod,) = jobs.wait_for_pods()
    (job,) = jobs.jobs()
    (node,) = site.find_all("agentnode")
    assert [owner["uid"] for owner in job["metadata"]["ownerReferences"]] == [node["metadata"]["uid"]]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["restartPolicy"] == "Never"
    assert len(pod["metadata"]["name"]) <= 63
    assert len(site.find_all("networkpolicies")) == 1
    site.until(lambda: "Job(act): each call of it has a Job" in wait_messages(site, "r"))
    process = jobs.run_pod(pod)
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert jobs.note_end(pod, process) == 0
    assert (site.effects_of("one"), site.nodes("r")["a"]["worker"]) == (1, pod["metadata"]["name"])
    # It is left for people to read, and nothing was made beside it.
    site.until(lambda: "completionTime" in jobs.jobs()[0].get("status", {}))
    assert len(jobs.jobs()) == 1
    assert not site.find_all("deployments")


def test_jobs_that_have_ended_are_kept_as_long_as_the_settings_say(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator(JOBS_KEEP_ENDED="3s")
    site.apply_run("r", [call("one")])
    (pod,) = jobs.wait_for_pods()
    assert jobs.note_end(pod, jobs.run_pod(pod)) == 0
    assert site.wait_ended("r")["phase"] == "Succeeded"
    site.until(lambda: not jobs.jobs())
    site.until(lambda: not site.find_all("pods"))


def test_an_operator_that_dies_leaves_a_job_that_the_next_one_finds(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    first = jobs.start_operator("first")
    site.apply_run("r", [call("one")])
    (pod,) = jobs.wait_for_pods()
    site.kill(first)
    process = jobs.run_pod(pod)
    jobs.start_operator("second")
    assert site.wait_ended("r", within=90)["phase"] == "Succeeded"
    assert jobs.note_end(pod, process) == 0
    assert (len(jobs.jobs()), site.effects_of("one"), site.nodes("r")["a"]["attempt"]) == (1, 1, 1)


def test_a_leader_that_was_fenced_makes_no_second_job(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    first = jobs.start_operator("first")
    site.until(lambda: "leading" in site.log("first"))
    jobs.start_operator("second")
    site.until(lambda: "standing_by" in site.log("second"))
    first.send_signal(signal.SIGSTOP)
    site.apply_run("r", [call("one")])
    (pod,) = jobs.wait_for_pods()
    first.send_signal(signal.SIGCONT)
    assert first.wait(30) == 1
    assert jobs.note_end(pod, jobs.run_pod(pod)) == 0
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert (len(jobs.jobs()), site.effects_of("one")) == (1, 1)


FAULTS = {
    **POD_FAULTS,
    "mount": (
        {"containerStatuses": [{"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
          "state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "keys" not found'}}}]},
        'secret "keys" not found',
    ),
}  # fmt: skip


@pytest.mark.parametrize("status, want", FAULTS.values(), ids=FAULTS)
def test_a_pod_that_cannot_start_is_what_the_node_shows(jobs: JobSite, status: dict[str, Any], want: str) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one")])
    (pod,) = jobs.wait_for_pods()
    jobs.set_status(pod, **status)
    site.until(lambda: want in wait_messages(site, "r"))
    site.until(lambda: want in site.nodes("r")["a"].get("message", ""))
    assert site.nodes("r")["a"]["waitingFor"] == "Job(act)"
    jobs.set_status(pod, conditions=[], containerStatuses=[])
    jobs.run_pod(pod)
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert site.nodes("r")["a"]["attempt"] == 1


def test_a_pod_that_was_evicted_before_it_had_its_order_is_followed_by_another(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one")])
    (pod,) = jobs.wait_for_pods()
    (first,) = jobs.jobs()
    jobs.set_status(pod, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    site.until(lambda: "Evicted: The node was low on resource" in wait_messages(site, "r"))
    # Kubernetes makes no other one by itself.
    site.until(lambda: any(job["metadata"]["uid"] != first["metadata"]["uid"] for job in jobs.jobs()))
    (second,) = jobs.wait_for_pods()
    assert second["metadata"]["uid"] != pod["metadata"]["uid"]
    jobs.run_pod(second)
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert (site.effects_of("one"), site.nodes("r")["a"]["attempt"]) == (1, 1)


QUOTAS = {"no Job": "count/jobs.batch", "no pod": "pods"}


@pytest.mark.parametrize("limited", QUOTAS.values(), ids=QUOTAS)
def test_a_quota_is_a_wait_that_is_shown_and_ends_by_itself(jobs: JobSite, limited: str) -> None:
    site = jobs.site
    site.kubectl("create", "quota", "narrow", f"--hard={limited}=0")
    site.until(lambda: bool(site.get("resourcequota", "narrow").get("status", {}).get("used")))
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one")])
    site.until(lambda: "exceeded quota: narrow" in wait_messages(site, "r"))
    site.kubectl("delete", "quota", "narrow")
    (pod,) = jobs.wait_for_pods()
    jobs.run_pod(pod)
    assert site.wait_ended("r", within=90)["phase"] == "Succeeded"
    assert site.nodes("r")["a"]["attempt"] == 1


def test_a_cancelled_run_leaves_no_job_that_waits_for_its_order(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one")])
    jobs.wait_for_pods()
    site.kubectl("patch", "agentrun", "r", "--type=merge", "-p", '{"spec": {"cancel": true}}')
    assert site.wait_ended("r")["phase"] == "Cancelled"
    site.until(lambda: not jobs.jobs())
    site.until(lambda: not site.find_all("pods"))
    assert site.effects_of("one") == 0


def test_a_call_whose_job_somebody_deletes_is_committed_all_the_same(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one", seconds=6)])
    (pod,) = jobs.wait_for_pods()
    process = jobs.run_pod(pod)
    site.until(lambda: site.effects_of("one") == 1)
    site.kubectl("delete", "job", "--all", "--wait=false")
    # What a kubelet does then.
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert (site.effects_of("one"), site.nodes("r")["a"]["attempt"]) == (1, 1)
    assert not jobs.jobs()


def test_what_a_deleted_run_had_at_work_goes_with_it_and_is_in_the_ledger(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one", seconds=6)], session="s")
    (pod,) = jobs.wait_for_pods()
    process = jobs.run_pod(pod)
    site.until(lambda: site.effects_of("one") == 1)
    site.kubectl("delete", "agentrun", "r")
    site.until(lambda: not jobs.jobs())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    # The same content goes on where it stopped: its call is not made again.
    site.apply_run("r", [call("one", seconds=6)], session="s")
    (again,) = jobs.wait_for_pods()
    jobs.run_pod(again)
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert site.effects_of("one") == 1


def test_a_pod_that_is_killed_in_mid_call_is_never_followed_by_a_second_call(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator()
    site.apply_run("r", [call("one", seconds=50)])
    (pod,) = jobs.wait_for_pods()
    process = jobs.run_pod(pod)
    site.until(lambda: site.effects_of("one") == 1)
    site.kill(process)
    jobs.say_ended(pod, 137)
    site.until(lambda: "pod_of_call_ended" in site.log("operator"))
    # Silence counts after half a minute; then another pod is to find out, and there is nothing that it could ask.
    site.until(lambda: len(jobs.jobs()) == 2)
    site.until(lambda: "exit code 137" in site.nodes("r")["a"].get("message", ""))
    (asking,) = jobs.wait_for_pods()
    assert jobs.note_end(asking, jobs.run_pod(asking)) == 0
    site.until(lambda: site.nodes("r")["a"].get("phase") == "Quarantined")
    assert site.nodes("r")["a"]["effect"] == "Unknown"
    assert site.effects_of("one") == 1


def test_somebody_elses_job_is_left_alone(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    operator = jobs.start_operator()
    site.apply_run("r", [call("one")])
    jobs.wait_for_pods()
    site.kill(operator)
    (made,) = jobs.jobs()
    name = made["metadata"]["name"]
    site.kubectl("delete", "job", name)
    site.kubectl("create", "job", name, "--image=theirs:1")
    jobs.start_operator("second")
    site.until(lambda: "exists and is somebody else's" in wait_messages(site, "r"))
    assert json.dumps(site.get("job", name)).count("theirs:1") >= 1


def test_an_account_that_nobody_allowed_is_said(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools('{"act": {"execution": {"mode": "Job", "serviceAccountName": "admin"}}}')
    jobs.start_operator()
    site.apply_run("r", [call("one")])
    site.until(lambda: "serviceAccountName admin is not allowed" in wait_messages(site, "r"))
    assert not jobs.jobs()


def test_without_jobs_the_pool_makes_the_calls(jobs: JobSite) -> None:
    site = jobs.site
    site.apply_tools(ACT)
    jobs.start_operator(JOBS_ENABLED="false")
    site.start_worker()
    site.apply_run("r", [call("one")])
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert not jobs.jobs()
