"""The admission webhook on a real API server: who decided, who may, and certificates that are renewed meanwhile."""

import base64
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster_site import ClusterSite

CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
ROLES = {
    "viewer": ["get", "list", "watch"],
    "editor": ["get", "list", "watch", "patch", "update"],
    "approver": ["get", "list", "watch", "patch", "update", "approve"],
    "chief": ["get", "list", "watch", "patch", "update", "approve", "release", "resolve", "redrive", "edit-params"],
}


class Guarded:
    """A site whose approvals are guarded by the webhook; each role has one user of its name."""

    def __init__(self, site: ClusterSite) -> None:
        self.site = site
        self.url = f"https://127.0.0.1:{_free_port()}"
        for role, verbs in ROLES.items():
            site.apply(json.dumps(_role(role, verbs)))
            site.apply(json.dumps(_binding(role)))
        # Kubernetes 1.21 and later does this by itself; the configurations select the namespace by it.
        label = f"kubernetes.io/metadata.name={site.namespace}"
        site.kubectl("label", "namespace", site.namespace, label, "--overwrite", inside=False)
        site.apply_tools('{"act": {"approval": {"required": "Always"}}}')

    def start_operator(self, name: str = "operator", listen: str = "") -> subprocess.Popen[bytes]:
        listen = listen or self.url.removeprefix("https://")
        return self.site.start_operator("--webhook-listen", listen, "--webhook-url", self.url, name=name)

    def wait_for_webhook(self) -> None:
        for kind in CONFIGURATIONS:
            self.site.until(lambda: self.bundle(kind) != "")  # noqa: B023

    def bundle(self, kind: str = CONFIGURATIONS[0]) -> str:
        found = self.site.get(kind, f"{self.site.namespace}-webhook")
        return str(found["webhooks"][0]["clientConfig"].get("caBundle", "")) if found else ""

    def question(self) -> dict[str, Any]:
        """Wait for the open question and return it."""
        found: list[dict[str, Any]] = []

        def asked() -> bool:
            found[:] = [one for one in self.site.find_all("agentapproval") if _state(one) == "Open"]
            return bool(found)

        self.site.until(asked)
        return found[0]

    def patch(self, name: str, user: str, decision: dict[str, Any], *more: str) -> None:
        patch = json.dumps({"spec": {"decision": decision}})
        identity = ("--as", user, "--as-group", "people") if user else ()
        self.site.kubectl("patch", "agentapproval", name, "--type=merge", "-p", patch, *identity, *more)


@pytest.fixture
def guarded(site: ClusterSite) -> Iterator[Guarded]:
    try:
        yield Guarded(site)
    finally:
        for kind in CONFIGURATIONS:
            site.kubectl("delete", kind, f"{site.namespace}-webhook", "--ignore-not-found", inside=False)


def test_who_may_decide_is_asked_and_who_did_is_known(guarded: Guarded) -> None:
    site = guarded.site
    guarded.start_operator()
    site.start_worker()
    guarded.wait_for_webhook()
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    name = guarded.question()["metadata"]["name"]
    refusals = [
        ("viewer", {"verdict": "Approve"}, "cannot patch"),
        ("editor", {"verdict": "Approve"}, 'user "editor" may not approve .* needs verb "approve"'),
        ("editor", {"verdict": "Reject"}, 'user "editor" may not reject .* needs verb "approve"'),
        ("approver", {"verdict": "Release"}, 'user "approver" may not release .* needs verb "release"'),
        ("approver", {"verdict": "Approve", "params": {"word": "y"}}, 'may not edit the params of .*"edit-params"'),
    ]
    for user, decision, said in refusals:
        with pytest.raises(AssertionError, match=said):
            guarded.patch(name, user, decision)
    label = json.dumps({"metadata": {"labels": {"agentrun.dev/run-uid": "other"}}})
    with pytest.raises(AssertionError, match=r"may not change metadata\.labels"):
        site.kubectl("patch", "agentapproval", name, "--type=merge", "-p", label, "--as", "chief")
    forged = {"verdict": "Approve", "decidedBy": "Ada", "decidedAt": "2020-01-01T00:00:00Z", "seal": "v1:00"}
    guarded.patch(name, "approver", forged)
    with pytest.raises(AssertionError, match="decided already"):
        guarded.patch(name, "chief", {"verdict": "Reject"})
    assert site.wait_ended("asked")["phase"] == "Succeeded"
    assert site.effects_of("x") == 1
    decided = site.get("agentapproval", name)
    assert decided["spec"]["decision"]["decidedBy"] == "approver"
    assert decided["spec"]["decision"]["decidedAt"] > "2021"
    assert (_state(decided), decided["status"]["verified"]) == ("Applied", True)
    timeline = site.nodes("asked")["a"]["timeline"]
    assert {"kind": "human", "name": "approver"} in [line.get("actor") for line in timeline]
    # The garbage collector may do its work: it takes the owner away.
    site.kubectl("delete", "agentrun", "asked", "--cascade=orphan", "--wait=false")
    site.until(lambda: site.get("agentrun", "asked") == {}, within=120)


def test_what_the_models_refuse_is_refused_at_once_and_stored_where_nobody_answers(guarded: Guarded) -> None:
    site = guarded.site
    operator = guarded.start_operator()
    guarded.wait_for_webhook()
    with pytest.raises(AssertionError, match=r"denied the request: .*condition"):
        site.apply_run("wrong", [{"name": "a", "type": "Condition"}])
    with pytest.raises(AssertionError, match=r"denied the request: .*python"):
        site.apply(json.dumps(_tool_without_spec("wrong")))
    site.apply_run("right", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    site.terminate(operator)
    site.apply_run("wrong", [{"name": "a", "type": "Condition"}])
    guarded.start_operator()
    assert site.wait_ended("wrong")["reason"] == "InvalidSpec"
    # What is stored already may be labelled all the same.
    site.kubectl("label", "agentrun", "wrong", "team=a")


def test_a_decision_on_other_params_is_not_verified_and_the_question_stays_open(guarded: Guarded) -> None:
    site = guarded.site
    guarded.start_operator()
    site.start_worker()
    guarded.wait_for_webhook()
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    name = guarded.question()["metadata"]["name"]
    shown = json.dumps({"status": {"request": {"paramsDigest": "sha256:0"}}})
    site.kubectl("patch", "agentapproval", name, "--subresource=status", "--type=merge", "-p", shown)
    guarded.patch(name, "chief", {"verdict": "Approve"})
    site.until(lambda: _state(site.get("agentapproval", name)) == "Refused")
    refused = site.get("agentapproval", name)["status"]
    assert refused["verified"] is False
    assert "not verified" in refused["message"]
    assert site.effects_of("x") == 0
    guarded.patch(guarded.question()["metadata"]["name"], "chief", {"verdict": "Approve", "params": {"word": "z"}})
    assert site.wait_ended("asked")["phase"] == "Succeeded"
    assert (site.effects_of("x"), site.effects_of("z")) == (0, 1)


def test_certificates_are_renewed_without_a_failed_admission(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    site = guarded.site
    times = {"CERTIFICATE_LIFE": "24s", "SETTLE": "2s", "LOOK": "500ms"}
    for field, value in times.items():
        monkeypatch.setenv(f"AGENTRUN_OPERATOR_WEBHOOK_{field}", value)
    guarded.start_operator("first")
    guarded.start_operator("second", f"127.0.0.1:{_free_port()}")
    site.start_worker()
    guarded.wait_for_webhook()
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    name = guarded.question()["metadata"]["name"]
    authorities, bundles, ends = set(), set(), time.monotonic() + 60
    while len(authorities) < 3 and time.monotonic() < ends:
        guarded.patch(name, "approver", {"verdict": "Approve"}, "--dry-run=server")
        secret = site.get("secret", f"{site.namespace}-webhook-tls")
        authorities.add(secret["data"]["ca.crt"])
        bundles.add(base64.b64decode(guarded.bundle()).count(b"BEGIN CERTIFICATE"))
    assert len(authorities) == 3
    assert 2 in bundles
    # A chart that is applied again takes the bundle away for a moment; so does a hand.
    for kind in CONFIGURATIONS:
        gone = json.dumps([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}])
        site.kubectl("patch", kind, f"{site.namespace}-webhook", "--type=json", "-p", gone, inside=False)
    guarded.wait_for_webhook()
    guarded.patch(name, "approver", {"verdict": "Approve"})
    assert site.wait_ended("asked")["phase"] == "Succeeded"


@pytest.mark.parametrize("required", [False, True], ids=["not required", "required"])
def test_a_decision_without_the_webhook_is_unverified_and_counts_unless_that_is_required(
    site: ClusterSite, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    if required:
        monkeypatch.setenv("AGENTRUN_OPERATOR_APPROVALS_REQUIRE_VERIFIED", "true")
    site.apply_tools('{"act": {"approval": {"required": "Always"}}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    site.until(lambda: any(_state(found) == "Open" for found in site.find_all("agentapproval")))
    (question,) = site.find_all("agentapproval")
    name = question["metadata"]["name"]
    decision = {"spec": {"decision": {"verdict": "Approve", "decidedBy": "Ada", "seal": "v1:00"}}}
    site.kubectl("patch", "agentapproval", name, "--type=merge", "-p", json.dumps(decision))
    site.until(lambda: _state(site.get("agentapproval", name)) == ("Refused" if required else "Applied"))
    assert site.get("agentapproval", name)["status"]["verified"] is False
    assert site.effects_of("x") == 0 if required else site.wait_ended("asked")["phase"] == "Succeeded"
    assert ("decision-seal" in site.kubectl("get", "secrets", "-o", "name")) is required


def _tool_without_spec(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentTool",
        "metadata": {"name": name},
        "spec": {"type": "python"},
    }


def _state(approval: dict[str, Any]) -> str:
    status = approval.get("status", {})
    return str(status.get("state", "")) if status.get("request") else ""


def _role(name: str, verbs: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [{"apiGroups": ["agentrun.dev"], "resources": ["agentapprovals"], "verbs": verbs}],
    }


def _binding(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}],
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
