"""What holds runs back on a real API server (quota, rights, pools, tools): `kubectl describe` says it, nothing else stops."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.cluster_site import ClusterSite

QUOTA = "count/agentnodes.agentrun.dev"
RULES: list[dict[str, list[str]]] = [
    {"apiGroups": ["agentrun.dev"], "resources": ["*"], "verbs": ["get", "list", "watch", "delete", "update", "patch"]},
    {"apiGroups": ["agentrun.dev"], "resources": ["agentapprovals", "agentruns"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]
NODES_RULE = {"apiGroups": ["agentrun.dev"], "resources": ["agentnodes"], "verbs": ["create"]}


def three(pool: str = "") -> list[dict[str, Any]]:
    return [{"name": name, "tool": f"act{pool}", "params": {"word": name}} for name in "abc"]


def set_quota(site: ClusterSite, nodes: int) -> None:
    """Allow so many nodes, and wait until the API server goes by it."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {QUOTA: str(nodes)}},
    }
    site.apply(json.dumps(quota))

    def counts() -> bool:
        status = site.get("resourcequota", "small").get("status", {})
        return bool(status.get("hard", {}).get(QUOTA) == str(nodes) and QUOTA in status.get("used", {}))

    site.until(counts, 90)


def waits(site: ClusterSite, run: str) -> dict[str, dict[str, Any]]:
    found = site.get("agentrun", run).get("status", {}).get("waits", [])
    return {wait["waitingFor"]: wait for wait in found}


def waits_for(site: ClusterSite, run: str, what: str) -> Callable[[], bool]:
    return lambda: what in waits(site, run)


def test_describe_says_why_nothing_happens_and_an_event_tells_of_it_after_a_minute(site: ClusterSite) -> None:
    site.apply_tools(
        '{"act": {}, "act-slow": {"execution": {"pool": "slow"}, "python": {"entryPoint": "cluster_tools:act"}}}'
    )
    set_quota(site, 4)
    site.start_operator()
    site.apply_run("pool", three("-slow"))
    site.until(waits_for(site, "pool", "Pool(slow)"))
    assert waits(site, "pool")["Pool(slow)"]["nodes"] == 3
    site.apply_run("quota", three())
    site.apply_run("tool", [{"name": "a", "tool": "missing", "params": {"word": "x"}}])
    site.until(waits_for(site, "quota", "Quota(small)"))
    site.until(waits_for(site, "tool", "ToolNotFound"))
    quota = waits(site, "quota")["Quota(small)"]
    assert quota["nodes"] == 3
    assert "exceeded quota: small" in quota["message"]
    assert "Quota(small)" in site.kubectl("get", "agentrun", "quota")

    def told(run: str) -> str:
        events = site.find_all("event")
        found = [one for one in events if one["involvedObject"]["name"] == run and one["reason"] == "Waiting"]
        return found[0]["message"] if found else ""

    site.until(lambda: all(told(run) for run in ("pool", "quota", "tool")), 90)
    assert told("quota").startswith(f"3 nodes wait for Quota(small) since {quota['since'][:19]}Z: ")
    described = site.kubectl("describe", "agentrun", "pool")
    assert f"no worker of pool slow is announced in namespace {site.namespace}" in described
    assert "exceeded quota: small" in site.kubectl("describe", "agentrun", "quota")
    assert "missing" in site.kubectl("describe", "agentrun", "tool")
    # What was waited for comes, and everything goes on by itself, with no attempt used up.
    set_quota(site, 20)
    site.apply_tools('{"missing": {"python": {"entryPoint": "cluster_tools:act"}}}')
    site.start_worker()
    site.start_worker("--pool", "slow", name="slow")
    for run in ("pool", "quota", "tool"):
        ended = site.wait_ended(run)
        assert (ended["phase"], ended.get("waits", [])) == ("Succeeded", [])
        assert {node["attempt"] for node in site.nodes(run).values()} == {1}


def test_a_run_over_quota_is_cancelled_deleted_and_ends_by_its_deadline(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    set_quota(site, 1)
    site.start_operator()
    site.start_worker()
    for name, spec in (("cancelled", {}), ("late", {"timeout": "15s"}), ("deleted", {"session": "s"})):
        site.apply_run(name, three(), **spec)
    for name in ("cancelled", "late", "deleted"):
        site.until(waits_for(site, name, "Quota(small)"))
    site.kubectl("patch", "agentrun", "cancelled", "--type=merge", "-p", '{"spec":{"cancel":true}}')
    site.kubectl("delete", "agentrun", "deleted", "--wait=false")
    assert site.wait_ended("cancelled")["phase"] == "Cancelled"
    assert site.wait_ended("late")["reason"] == "RunDeadlineExceeded"
    site.until(lambda: not site.get("agentrun", "deleted"))
    # The session of the deleted one is free again.
    set_quota(site, 20)
    site.apply_run("next", [{"name": "z", "tool": "act", "params": {"word": "z"}}], session="s")
    assert site.wait_ended("next")["phase"] == "Succeeded"
    assert [site.effects_of(word) for word in "abcz"] == [0, 0, 0, 1]


def test_a_missing_right_is_named_with_verb_and_resource_and_nothing_is_lost(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator(kubeconfig=restricted(site, RULES))
    site.start_worker()
    site.apply_run("r", three())
    site.until(waits_for(site, "r", "Rights(create agentnodes)"))
    message = waits(site, "r")["Rights(create agentnodes)"]["message"]
    assert f"the operator may not create agentnodes in namespace {site.namespace}: grant" in message
    grant(site, [*RULES, NODES_RULE])
    assert site.wait_ended("r")["phase"] == "Succeeded"


def test_a_namespace_that_is_being_deleted_is_not_taken_for_a_missing_right(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("long", [{"name": "a", "tool": "act", "params": {"word": "a", "seconds": 2}}, *three()[1:]])
    site.until(lambda: site.effects_of("a") == 1)
    site.kubectl("delete", "namespace", site.namespace, "--wait=false", inside=False)
    site.until(lambda: not site.get("agentrun", "long"), 90)
    assert site.running("operator")
    assert "turn_failed" not in site.log("operator")
    assert "may not create" not in site.log("operator")


def grant(site: ClusterSite, rules: list[dict[str, list[str]]]) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "op"}, "rules": rules}
    site.apply(json.dumps(role))


def restricted(site: ClusterSite, rules: list[dict[str, list[str]]]) -> Path:
    """Return a kubeconfig of an account that has these rights in the namespace."""
    grant(site, rules)
    site.kubectl("create", "serviceaccount", "op")
    site.kubectl("create", "rolebinding", "op", "--role=op", f"--serviceaccount={site.namespace}:op")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "op-token", "annotations": {"kubernetes.io/service-account.name": "op"}},
    }
    site.apply(json.dumps(secret))
    site.until(lambda: bool(site.get("secret", "op-token").get("data", {}).get("token")))
    token = base64.b64decode(site.get("secret", "op-token")["data"]["token"]).decode()
    view = json.loads(site.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    view["users"] = [{"name": user["name"], "user": {"token": token}} for user in view["users"]]
    path = site.folder / "op.kubeconfig"
    path.write_text(json.dumps(view))
    return path
