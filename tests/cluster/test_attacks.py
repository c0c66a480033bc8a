"""What an operator meets in the wild: a second install, forged objects, a ledger that only reads, clocks that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import redis

from support.busy_api import BusyApi
from support.cluster_site import ClusterSite


def one(seconds: float = 0, word: str = "w") -> list[dict[str, Any]]:
    return [{"name": "a", "tool": "act", "params": {"word": word, "seconds": seconds}}]


def test_a_second_install_on_the_same_namespace_and_ledger_stops_with_a_message(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("r", one())
    assert site.wait_ended("r")["phase"] == "Succeeded"
    second = site.start_operator(name="second", install="other")
    assert second.wait(60) == 2
    said = " ".join(site.log("second").split())
    assert f"install {site.namespace} serves namespace {site.namespace} of this cluster" in said
    assert "HDEL agentrun-installs" in said
    assert "Traceback" not in said
    # The first one is not disturbed; once it is gone for good its place can be freed.
    site.apply_run("after", one(word="v"))
    assert site.wait_ended("after")["phase"] == "Succeeded"
    for operator in site.running("operator"):
        assert site.terminate(operator) == 0
    with redis.Redis.from_url(site.ledger.url) as client:
        client.delete("agentrun-installs")
    site.start_operator(name="third", install="other")
    site.until(lambda: "event='started'" in site.log("third"))
    site.until(lambda: bool(_bound(site)))
    assert _bound(site) == ["other"]


def _bound(site: ClusterSite) -> list[str]:
    with redis.Redis.from_url(site.ledger.url, decode_responses=True) as client:
        found: list[str] = client.hvals("agentrun-installs")  # type: ignore[assignment]
        return found


def test_a_ledger_that_became_a_read_only_replica_is_named_and_the_run_ends_when_it_writes_again(
    site: ClusterSite,
) -> None:
    site.apply_tools('{"act": {"timeout": "20s"}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("r", one(seconds=2))
    site.until(lambda: site.effects_of("w") == 1)
    with redis.Redis.from_url(site.ledger.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        site.until(lambda: "it is a read-only replica" in site.log("operator"))
        client.execute_command("REPLICAOF", "NO", "ONE")
    ended = site.wait_ended("r", within=60)
    assert (ended["phase"], site.effects_of("w")) == ("Succeeded", 1)
    site.until(lambda: "event='ledger_back'" in site.log("operator"))
    assert site.log("operator").count("event='ledger_unavailable'") < 5


def test_a_run_status_that_somebody_forges_in_mid_run_is_put_right(site: ClusterSite) -> None:
    site.apply_tools('{"act": {"timeout": "20s"}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("r", one(seconds=6))
    site.until(lambda: site.effects_of("w") == 1)

    def forge() -> bool:
        # The operator may write it meanwhile: tried until it is the latest that is replaced.
        found = site.get("agentrun", "r")
        found["status"] |= {"phase": "Failed", "reason": "Forged", "message": "by hand"}
        path = f"/apis/agentrun.dev/v1alpha1/namespaces/{site.namespace}/agentruns/r/status"
        stored = site.kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(found), inside=False, check=False)
        return "Forged" in stored

    site.until(forge)
    site.until(lambda: site.get("agentrun", "r")["status"]["reason"] != "Forged", 5)
    ended = site.wait_ended("r")
    assert (ended["phase"], site.effects_of("w")) == ("Succeeded", 1)


def test_an_approval_that_somebody_made_before_the_question_answers_nothing(site: ClusterSite) -> None:
    site.apply_tools('{"act": {"approval": {"required": "Always"}}}')
    operator = site.start_operator()
    site.start_worker()
    site.apply_run("r", one())
    site.until(lambda: len(site.find_all("agentapproval")) == 1)
    name = site.find_all("agentapproval")[0]["metadata"]["name"]
    # The name is deterministic: whoever was quick, or has seen the like, can be there first.
    site.kill(operator)
    site.kubectl("delete", "agentapproval", name)
    made = {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentApproval",
        "metadata": {"name": name},
        "spec": {"decision": {"verdict": "Approve", "decidedBy": "Mallory"}},
    }
    site.apply(json.dumps(made))
    early = site.get("agentapproval", name)["metadata"]["uid"]
    site.start_operator(name="next")
    site.until(lambda: site.get("agentapproval", name).get("metadata", {}).get("uid", early) != early)
    site.until(lambda: site.get("agentapproval", name).get("status", {}).get("state") == "Open")
    assert site.effects_of("w") == 0
    patch = {"spec": {"decision": {"verdict": "Approve", "decidedBy": "Ada"}}}
    site.kubectl("patch", "agentapproval", name, "--type=merge", "-p", json.dumps(patch))
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert site.effects_of("w") == 1


def test_an_api_server_that_asks_for_patience_gets_it_and_nothing_happens_twice(
    site: ClusterSite, tmp_path: Path
) -> None:
    with BusyApi(site.kubeconfig, tmp_path, refuse_each=4) as busy:
        site.apply_tools('{"act": {}}')
        # A Lease as long as an installed operator's: with a short one two refusals of its renewal cost the lead.
        operator = site.start_operator(kubeconfig=busy.kubeconfig, lease="15s")
        site.start_worker()
        chain = [
            {
                "name": f"n{at}",
                "tool": "act",
                "params": {"word": f"w{at}"},
                **({"dependsOn": [f"n{at - 1}"]} if at else {}),
            }
            for at in range(4)
        ]
        site.apply_run("r", chain)
        assert site.wait_ended("r", within=60)["phase"] == "Succeeded"
        assert [site.effects_of(f"w{at}") for at in range(4)] == [1] * 4
        assert busy.refused > 3
        assert operator.poll() is None
        assert "Traceback" not in site.log("operator")
        assert site.terminate(operator) == 0
