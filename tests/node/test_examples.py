"""The examples on real pods: installed with Helm, their pools started for the first call and ended when it is idle."""

from __future__ import annotations

import json

from support.helm import ROOT
from support.node_site import PULLED_AND_STARTED, NodeRelease, NodeSite

EXAMPLES = ROOT / "examples"


def test_what_was_installed_stands_and_is_hardened(release: NodeRelease) -> None:
    pods = release.find_all("pods")
    assert len(release.operators()) == 2
    assert len(pods) == 3, "and the ledger's"
    for pod in pods:
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]
    assert {one["metadata"]["name"] for one in release.find_all("networkpolicies")} == {
        "agentrun-agentrun-operator", "agentrun-agentrun-operator-valkey"
    }  # fmt: skip
    assert any(release.leader().startswith(pod["metadata"]["name"]) for pod in release.operators())


def test_every_example_succeeds_in_a_pool_that_comes_and_goes(site: NodeSite) -> None:
    for path in ("chain/chain.yaml", "fan-out-fan-in/fan-out.yaml", "routing/routing.yaml"):
        site.kubectl("apply", "-f", str(EXAMPLES / path))
    site.kubectl("apply", "-f", str(EXAMPLES / "human-in-the-loop" / "refund.yaml"))
    site.until(lambda: site.replicas() > 0)
    names = [one["metadata"]["name"] for one in site.find_all("agentrun")]
    assert len(names) == 4
    for name in names:
        if name != "refunds":
            assert site.wait_ended(name, within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    for at in range(2):
        approve_next(site, decided=at)
    assert site.wait_ended("refunds", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert {node["metadata"]["name"] for node in site.find_all("networkpolicies")} == {site.pool()["metadata"]["name"]}
    site.until(lambda: site.replicas() == 0 and not site.workers())


def test_a_tool_of_an_image_of_ones_own_runs_in_that_image(site: NodeSite) -> None:
    site.kubectl("apply", "-f", str(EXAMPLES / "own-worker-image" / "greeting.yaml"))
    assert site.wait_ended("greeting", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert site.nodes("greeting")["greet"]["result"] == {"text": "Hello World!"}
    (container,) = site.pool("greetings")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "greeting-worker:1"


def approve_next(site: NodeSite, decided: int) -> None:
    """Agree to what is asked, once so many questions have been answered."""

    def find_open() -> list[str]:
        asked = [one for one in site.find_all("agentapproval") if one.get("status", {}).get("request")]
        return [one["metadata"]["name"] for one in asked if not one["spec"].get("decision")]

    site.until(lambda: len(find_open()) == 1, say=lambda: f"question {decided + 1}: {site.find_all('agentapproval')}")
    patch = json.dumps({"spec": {"decision": {"verdict": "Approve"}}})
    site.kubectl("patch", "agentapproval", find_open()[0], "--type=merge", "-p", patch)
