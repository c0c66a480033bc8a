"""Pools of workers on a real API server: what is made, what is changed, and that nothing is written for nothing.

No kubelet runs here: pods are made by Kubernetes' own controllers and started by the test, as processes.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from support.cluster_site import ClusterSite
from support.pool_site import POD_FAULTS, PoolSite


@pytest.fixture
def pools(site: ClusterSite) -> PoolSite:
    return PoolSite(site)


BESIDE = ("networkpolicies", "poddisruptionbudgets")


def versions(site: ClusterSite) -> dict[str, str]:
    """Everything that an operator wrote for pools, by the version that it has."""
    found = [one for kind in ("deployments", *BESIDE) for one in site.find_all(kind, "-l", "agentrun.dev/pool")]
    found += site.find_all("secrets", "-l", "app.kubernetes.io/managed-by=agentrun-operator")
    # A Deployment's status is its controller's: what we write raises the generation.
    return {
        f"{one['kind']}/{one['metadata']['name']}": str(
            one["metadata"].get("generation") or one["metadata"]["resourceVersion"]
        )
        for one in found
    }


def wait_messages(site: ClusterSite, run: str) -> str:
    waits = site.get("agentrun", run).get("status", {}).get("waits", [])
    return "\n".join(f"{wait['waitingFor']}: {wait.get('message', '')}" for wait in waits)


def call(word: str, name: str = "a", seconds: float = 0) -> dict[str, Any]:
    return {"name": name, "tool": "act", "params": {"word": word, "seconds": seconds}}


def test_a_pool_starts_with_the_first_call_and_ends_when_it_is_idle(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {}}')
    pools.start_operator()
    made = pools.wait_for_pool(replicas=0)
    assert made["spec"]["selector"]["matchLabels"] == {
        "agentrun.dev/install": site.namespace, "agentrun.dev/pool": "shared"
    }  # fmt: skip
    for kind in BESIDE:
        assert [one["metadata"]["name"] for one in site.find_all(kind)] == [made["metadata"]["name"]]
    site.apply_run("first", [call("one")])
    pools.wait_for_pool(replicas=1)
    (pod,) = pools.pods(1)
    # Its host's name is its own only up to this length.
    assert len(pod["metadata"]["name"]) <= 63
    site.until(lambda: "the operator starts its workers" in wait_messages(site, "first"))
    pools.run_pod(pod)
    assert site.wait_ended("first")["phase"] == "Succeeded"
    assert site.effects_of("one") == 1
    assert pod["metadata"]["name"] == site.nodes("first")["a"]["worker"]
    pools.wait_for_pool(replicas=0)
    pools.pods(0)


def test_nothing_is_written_while_nothing_changes(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {"execution": {"scaling": {"min": 2}}}}')
    first = pools.start_operator("first")
    pools.wait_for_pool(replicas=2)
    pools.pods(2)
    # Only when another pool is there has everything before it been looked at once more.
    site.apply_tools('{"read": {"execution": {"pool": "readers"}}}')
    pools.wait_for_pool(queue="readers")
    before = versions(site)
    assert len(before) == 7, before
    site.terminate(first)
    pools.start_operator("second")
    site.apply_tools('{"fail": {"execution": {"pool": "failures"}}}')
    pools.wait_for_pool(queue="failures")
    site.until(lambda: len(versions(site)) == 10)
    after = versions(site)
    assert {name: after[name] for name in before} == before


def test_a_leader_that_was_fenced_makes_nothing_twice(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {}}')
    first = pools.start_operator("first")
    pools.wait_for_pool(replicas=0)
    pools.start_operator("second")
    site.until(lambda: "standing_by" in site.log("second"))
    first.send_signal(signal.SIGSTOP)
    site.apply_run("r", [call("one")])
    pools.wait_for_pool(replicas=1)
    first.send_signal(signal.SIGCONT)
    assert first.wait(30) == 1
    (pod,) = pools.pods(1)
    pools.run_pod(pod)
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert len(pools.deployments()) == 1


def test_more_work_has_more_workers_and_busy_ones_stay(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {"timeout": "60s"}}')
    pools.start_operator(SLOTS="2")
    nodes = [call(f"w{at}", f"n{at}", 0 if at else 30) for at in range(5)]
    site.apply_run("many", nodes, timeout="5m")
    pools.wait_for_pool(replicas=3)
    for pod in pools.pods(3):
        pools.run_pod(pod)
    site.until(lambda: all(site.effects_of(f"w{at}") == 1 for at in range(5)))
    # On this server nobody can say which pod ends: while one is busy all stay.
    site.until(lambda: sum(node.get("phase") == "Running" for node in site.nodes("many").values()) == 1)
    assert pools.deployments()[0]["spec"]["replicas"] == 3
    assert site.wait_ended("many")["phase"] == "Succeeded"
    assert pools.wait_for_pool(replicas=0)["metadata"]["generation"] <= 4
    assert all(site.effects_of(f"w{at}") == 1 for at in range(5))


def test_a_changed_tool_replaces_pods_once_and_keeps_their_number(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {"execution": {"scaling": {"min": 2}}}}')
    pools.start_operator()
    made = pools.wait_for_pool(replicas=2)
    changed = {"execution": {"scaling": {"min": 2}, "secrets": ["mail"], "resources": {"limits": {"memory": "1Gi"}}}}
    site.apply_tools(json.dumps({"act": changed}))
    site.until(lambda: pools.deployments()[0]["metadata"]["generation"] > made["metadata"]["generation"])
    found = pools.deployments()[0]
    assert found["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert found["spec"]["replicas"] == 2
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert "/run/agentrun/secrets/mail" in [mount["mountPath"] for mount in container["volumeMounts"]]
    # What others have noted on it stays.
    site.kubectl("annotate", "deployment", found["metadata"]["name"], "example.com/note=mine")
    site.apply_tools('{"act": {"execution": {"scaling": {"min": 2}}}}')
    site.until(lambda: pools.deployments()[0]["metadata"]["generation"] > found["metadata"]["generation"])
    assert pools.deployments()[0]["metadata"]["annotations"]["example.com/note"] == "mine"


def test_a_pool_that_another_scales_keeps_anothers_number(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {"execution": {"scaling": {"mode": "External"}}}}')
    pools.start_operator()
    name = pools.wait_for_pool(replicas=1)["metadata"]["name"]
    site.kubectl("scale", "deployment", name, "--replicas=3")
    site.apply_run("r", [call("one")])
    site.until(lambda: "Pool(shared)" in wait_messages(site, "r"))
    # Its pods are replaced for a change, and are as many as before.
    site.apply_tools('{"act": {"execution": {"scaling": {"mode": "External"}, "secrets": ["mail"]}}}')
    site.until(lambda: "secret-0" in json.dumps(pools.deployments()[0]["spec"]["template"]))
    assert pools.deployments()[0]["spec"]["replicas"] == 3


def test_a_pool_that_no_tool_needs_goes_with_all_that_is_beside_it(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {}, "read": {"execution": {"pool": "readers", "scaling": {"min": 1}}}}')
    operator = pools.start_operator()
    pools.wait_for_pool(replicas=1, queue="readers")
    # Gone while nobody looked.
    site.terminate(operator)
    site.kubectl("delete", "agenttool", "read")
    pools.start_operator()
    site.until(lambda: len(pools.deployments()) == 1)
    for kind in BESIDE:
        site.until(lambda kind=kind: len(site.find_all(kind)) == 1)  # type: ignore[misc]
    assert pools.deployments()[0]["metadata"]["labels"]["agentrun.dev/pool"] == "shared"


@pytest.mark.parametrize("status, want", POD_FAULTS.values(), ids=POD_FAULTS)
def test_a_pod_that_cannot_start_is_what_waiting_nodes_show(pools: PoolSite, status: dict[str, Any], want: str) -> None:
    site = pools.site
    site.apply_tools('{"act": {}}')
    pools.start_operator()
    site.apply_run("r", [call("one")])
    (pod,) = pools.pods(1)
    pools.set_status(pod, **status)
    site.until(lambda: want in wait_messages(site, "r"))
    pools.set_status(pod, conditions=[], containerStatuses=[])
    pools.run_pod(pod)
    assert site.wait_ended("r")["phase"] == "Succeeded"


QUOTAS = {"no Deployment": "count/deployments.apps", "no pod": "pods"}


@pytest.mark.parametrize("limited", QUOTAS.values(), ids=QUOTAS)
def test_a_quota_is_a_wait_that_is_shown_and_ends_by_itself(pools: PoolSite, limited: str) -> None:
    site = pools.site
    site.kubectl("create", "quota", "narrow", f"--hard={limited}=0")
    site.until(lambda: bool(site.get("resourcequota", "narrow").get("status", {}).get("used")))
    site.apply_tools('{"act": {}}')
    pools.start_operator()
    site.apply_run("r", [call("one")])
    site.until(lambda: "exceeded quota: narrow" in wait_messages(site, "r"))
    site.kubectl("delete", "quota", "narrow")
    (pod,) = pools.pods(1)
    pools.run_pod(pod)
    assert site.wait_ended("r", within=90)["phase"] == "Succeeded"
    assert site.nodes("r")["a"]["attempt"] == 1


def test_somebody_elses_deployment_is_left_alone(pools: PoolSite) -> None:
    site = pools.site
    site.apply_tools('{"act": {}}')
    operator = pools.start_operator()
    made = pools.wait_for_pool()
    site.terminate(operator)
    name = made["metadata"]["name"]
    site.kubectl("delete", "deployment", name)
    site.kubectl("create", "deployment", name, "--image=theirs:1")
    pools.start_operator()
    site.apply_run("r", [call("one")])
    site.until(lambda: "exists and is somebody else's" in wait_messages(site, "r"))
    assert site.get("deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"] == "theirs:1"
