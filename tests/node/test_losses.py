"""Pods that end while calls are under way: a worker's, an operator's; and releases that change."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

import pytest

from agentrun.controller.pools.pool_sights import DELETION_COST, KEPT_COST
from support.kube_namespace import KubeNamespace
from support.node_site import PULLED_AND_STARTED, RELEASE, NodeSite

LOOKUP = {
    "lookup": {"tool": "look", "params": {"word": "${params.word}"}},
    "outcome": {
        "completed": {"when": {"path": "result.state", "op": "eq", "value": "done"}, "result": "result"},
        "notExecuted": {"when": {"path": "result.state", "op": "eq", "value": "unknown"}},
    },
}
ROUNDS = int(os.environ.get("NODE_ROUNDS", "2"))
"""How often a loss is repeated that may go well by chance."""


def call(word: str, tool: str = "hold", name: str = "a") -> dict[str, Any]:
    return {"name": name, "tool": tool, "params": {"word": word}}


def wait_held(site: NodeSite, *words: str) -> None:
    """Wait until calls of these words are under way."""
    site.until(lambda: set(words) <= set(site.ask("counts")["did"]), within=PULLED_AND_STARTED)


def worker_of(site: NodeSite, run: str, node: str = "a") -> str:
    """Wait until a node shows which pod works on it."""
    site.until(lambda: bool(site.nodes(run)[node].get("worker")))
    return str(site.nodes(run)[node]["worker"])


@pytest.mark.parametrize("effect", ["Once", "None"])
def test_a_worker_that_is_killed_in_mid_call_is_found_out_about(site: NodeSite, effect: str) -> None:
    site.apply_tool("look", sideEffect="None")
    site.apply_tool("hold", sideEffect=effect, timeout="4m", **({"recovery": LOOKUP} if effect == "Once" else {}))
    site.apply_run("r", [call("w")])
    wait_held(site, "w")
    pod = worker_of(site, "r")
    site.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    # One that is killed is still given two seconds: what is released too early, it brings to an end.
    site.until(lambda: site.nodes("r")["a"].get("attempt") == 2 or site.phase("r") == "Succeeded", PULLED_AND_STARTED)
    site.ask("release/w")
    ended = site.wait_ended("r", within=PULLED_AND_STARTED)
    assert ended["phase"] == "Succeeded", site.tell_all()
    assert site.did("w") == (1 if effect == "Once" else 2)


def test_a_worker_that_is_told_to_end_brings_its_call_to_an_end(site: NodeSite) -> None:
    site.apply_tool("hold", timeout="2m")
    site.apply_run("r", [call("w")])
    wait_held(site, "w")
    pod = worker_of(site, "r")
    site.kubectl("delete", "pod", pod, "--wait=false")
    site.until(lambda: "deletionTimestamp" in site.get("pod", pod)["metadata"])
    # Another takes its place meanwhile, and no part of its work.
    site.until(
        lambda: [one["metadata"]["name"] for one in site.workers()] not in ([], [pod]), within=PULLED_AND_STARTED
    )
    site.ask("release/w")
    assert site.wait_ended("r")["phase"] == "Succeeded"
    found = site.nodes("r")["a"]
    assert (found["worker"], found["attempt"], site.did("w")) == (pod, 1, 1)


def test_the_leaders_pod_may_go_at_any_time(site: NodeSite) -> None:
    release = site.release
    site.apply_tool("hold", timeout="4m")
    site.apply_tool("act")
    site.apply_run("r", [call("w"), {**call("after", "act", "b"), "dependsOn": ["a"]}], timeout="10m")
    wait_held(site, "w")
    for _ in range(ROUNDS):
        before = release.leader()
        (pod,) = [one["metadata"]["name"] for one in release.operators() if before.startswith(one["metadata"]["name"])]
        release.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
        release.until(lambda before=before: release.leader() not in ("", before))  # type: ignore[misc]
    site.ask("release/w")
    assert site.wait_ended("r", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert (site.did("w"), site.did("after")) == (1, 1)
    assert site.nodes("r")["a"]["attempt"] == 1
    release.wait_ready()


# One round takes 15 to 30 seconds.
@pytest.mark.timeout(600 + 60 * ROUNDS)
def test_a_busy_worker_is_never_the_one_that_is_too_many(site: NodeSite) -> None:
    site.apply_tool("hold", timeout="4m", execution={"scaling": {"max": 3}})
    for at in range(ROUNDS):
        run, kept = f"r{at}", f"kept-{at}"
        words = [kept, *(f"w{at}-{number}" for number in range(8))]
        nodes = [call(word, name=f"n{place}") for place, word in enumerate(words)]
        site.apply_run(run, nodes, timeout="10m")
        wait_held(site, *words)
        assert site.replicas() == 3
        busy = site.get("pod", worker_of(site, run, "n0"))
        for word in words[1:]:
            site.ask(f"release/{word}")
        site.until(lambda run=run: sum(n.get("phase") == "Succeeded" for n in site.nodes(run).values()) == 8)  # type: ignore[misc]
        kept_pod = busy["metadata"]["name"]
        if ends_by_cost(site):
            site.until(lambda: site.replicas() == 1 and len(site.workers()) == 1)
            assert costs(site) == {kept_pod: KEPT_COST}
        else:
            # Nobody could say which would end: all stay while one is busy, well beyond scaleDownAfter.
            since = time.monotonic()
            site.until(lambda since=since: site.replicas() != 3 or time.monotonic() > since + 10)  # type: ignore[misc]
            assert site.replicas() == 3
        still = site.get("pod", kept_pod)
        assert still["metadata"]["uid"] == busy["metadata"]["uid"]
        assert "deletionTimestamp" not in still["metadata"]
        site.ask(f"release/{kept}")
        assert site.wait_ended(run)["phase"] == "Succeeded"
        assert [site.did(word) for word in words] == [1] * 9
        assert (site.nodes(run)["n0"]["worker"], site.nodes(run)["n0"]["attempt"]) == (kept_pod, 1)
        site.until(lambda: site.replicas() == 0 and not site.workers())


def test_an_upgrade_and_a_rollback_with_running_work_lose_nothing(site: NodeSite) -> None:
    release = site.release
    site.apply_tool("hold", timeout="8m")
    site.apply_tool("act")
    site.apply_run("r", [call("w"), {**call("after", "act", "b"), "dependsOn": ["a"]}], timeout="20m")
    wait_held(site, "w")
    pod = worker_of(site, "r")
    before = {one["metadata"]["uid"] for one in release.operators()}
    ledger = release.get("pod", "agentrun-agentrun-operator-valkey-0")["metadata"]["uid"]
    try:
        release.upgrade({"scope": {"mode": "Cluster"}, "image": {"tag": "next"}})
        assert before.isdisjoint({one["metadata"]["uid"] for one in release.operators()})
        site.apply_run("meanwhile", [call("meanwhile", "act")])
        assert site.wait_ended("meanwhile", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    finally:
        release.helm("rollback", RELEASE)
        release.wait_ready()
    assert release.get("pod", "agentrun-agentrun-operator-valkey-0")["metadata"]["uid"] == ledger
    assert "deletionTimestamp" not in site.get("pod", pod)["metadata"]
    site.ask("release/w")
    assert site.wait_ended("r", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert [site.did(word) for word in ("w", "after", "meanwhile")] == [1, 1, 1]
    assert (site.nodes("r")["a"]["worker"], site.nodes("r")["a"]["attempt"]) == (pod, 1)


def costs(site: NodeSite) -> dict[str, str]:
    """Return what ending each worker's pod costs; empty where nothing says it."""
    pods = [pod["metadata"] for pod in site.workers()]
    return {pod["name"]: pod.get("annotations", {}).get(DELETION_COST, "") for pod in pods}


def ends_by_cost(where: KubeNamespace) -> bool:
    """Tell whether the server ends the pod of the least cost first: 1.22 and newer."""
    version = json.loads(where.kubectl("get", "--raw", "/version", inside=False))["gitVersion"]
    major, minor = re.findall(r"\d+", version)[:2]
    return (int(major), int(minor)) >= (1, 22)
