"""The admission webhook on a real API server: who decided, who may, and certificates that are renewed meanwhile."""

import base64
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentrun.controller.webhook.certificate_folder import CERTIFICATE, KEY
from agentrun.controller.webhook.certificates import make_certificates
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
        # The leader shows the bundle, and the address may be another replica's that still starts.
        self.site.until(self._listens)

    def _listens(self) -> bool:
        host, _, port = self.url.removeprefix("https://").partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def bundle(self, kind: str = CONFIGURATIONS[0]) -> str:
        found = self.site.get(kind, f"{self.site.namespace}-webhook")
        return str(found["webhooks"][0]["clientConfig"].get("caBundle", "")) if found else ""

    def trust(self, authorities: bytes) -> None:
        """Have the API server trust these, as whoever issues certificates does."""
        bundle = base64.b64encode(authorities).decode()
        for kind in CONFIGURATIONS:
            found = self.site.get(kind, f"{self.site.namespace}-webhook")
            for hook in found["webhooks"]:
                hook["clientConfig"]["caBundle"] = bundle
            self.site.kubectl("replace", "-f", "-", stdin=json.dumps(found), inside=False)

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
    with pytest.raises(AssertionError, match=r"denied the request: .*spec\.nodes\[0\]\.dependsOn\[0\]"):
        site.apply_run("wrong", [{"name": "a", "tool": "act", "dependsOn": ["nowhere"]}])
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


@pytest.mark.parametrize("refused", [False, True], ids=["by default", "where none counts"])
def test_an_approval_without_the_webhook_is_unverified_and_counts_unless_none_does(
    site: ClusterSite, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    if refused:
        monkeypatch.setenv("AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED", "Refuse")
    site.apply_tools('{"act": {"approval": {"required": "Always"}}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    site.until(lambda: any(_state(found) == "Open" for found in site.find_all("agentapproval")))
    (question,) = site.find_all("agentapproval")
    name = question["metadata"]["name"]
    decision = {"spec": {"decision": {"verdict": "Approve", "decidedBy": "Ada", "seal": "v1:00"}}}
    site.kubectl("patch", "agentapproval", name, "--type=merge", "-p", json.dumps(decision))
    site.until(lambda: _state(site.get("agentapproval", name)) == ("Refused" if refused else "Applied"))
    assert site.get("agentapproval", name)["status"]["verified"] is False
    assert site.effects_of("x") == 0 if refused else site.wait_ended("asked")["phase"] == "Succeeded"
    assert ("decision-seal" in site.kubectl("get", "secrets", "-o", "name")) is refused
    assert ("unverified_decisions='Refuse'" in site.log("operator")) is refused


def test_without_the_webhook_a_quarantined_node_is_given_up_and_nothing_else(
    site: ClusterSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"schema": {"type": "object", "required": ["word"], "properties": {"word": {"const": "right"}}}}
    site.apply_tools(json.dumps({"act": {"params": needs}}))
    operator = site.start_operator()
    site.start_worker()
    for name in ("asked", "again"):
        site.apply_run(name, [{"name": "a", "tool": "act", "params": {"word": "wrong"}}])
    asked = _ask_about(site, "asked")
    assert asked["status"]["request"]["allowed"] == ["Discard"]
    release = {"verdict": "Release", "params": {"word": "right"}, "decidedBy": "Ada"}
    _decide(site, asked, release)
    site.until(lambda: _state(site.get("agentapproval", asked["metadata"]["name"])) == "Refused")
    refused = site.get("agentapproval", asked["metadata"]["name"])["status"]
    assert "verdict Release is refused" in refused["message"]
    assert "AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED=All" in refused["message"]
    assert refused["verified"] is False
    _decide(site, _ask_about(site, "asked"), {"verdict": "Discard"})
    assert site.wait_ended("asked")["phase"] == "Failed"
    assert site.nodes("asked")["a"]["reason"] == "Discarded"
    # Where the rule is given up the question that is open shows it, and the same answer counts.
    site.terminate(operator)
    monkeypatch.setenv("AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED", "All")
    site.start_operator()
    site.until(lambda: "Release" in _ask_about(site, "again")["status"]["request"]["allowed"])
    _decide(site, _ask_about(site, "again"), release)
    assert site.wait_ended("again")["phase"] == "Succeeded"
    assert site.effects_of("right") == 1


def test_a_tool_may_do_no_more_than_its_author(guarded: Guarded) -> None:
    site = guarded.site
    operator = guarded.start_operator()
    guarded.wait_for_webhook()
    tools = {"apiGroups": ["agentrun.dev"], "resources": ["agenttools"], "verbs": ["get", "create", "patch"]}
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    secret = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"], "verbs": ["get"]}
    for user, rules in (("maker", [tools, pods, secret]), ("writer", [tools, secret])):
        site.apply(json.dumps({**_role(user, []), "rules": rules}))
        site.apply(json.dumps(_binding(user)))

    def apply(user: str, *secrets: str, label: str = "") -> None:
        manifest = _tool_with_secrets("shop", *secrets)
        manifest["metadata"]["labels"] = {"team": label}
        site.kubectl("apply", "-f", "-", "--as", user, stdin=json.dumps(manifest))

    field = r"spec\.http\.headersFrom\[1\]\.secretKeyRef\.name"
    with pytest.raises(AssertionError, match=field + r': user "maker" may not get Secret other .* have somebody'):
        apply("maker", "own", "other")
    with pytest.raises(AssertionError, match=r'user "writer" may not create pods .*verb "create" on pods'):
        apply("writer", "own")
    apply("maker", "own")
    with pytest.raises(AssertionError, match="may not get Secret other"):
        apply("maker", "own", "other")
    # Whatever the tool says already is not asked about again.
    apply("writer", "own", label="b")
    # Without an answer it is stored: the operator does not know who wrote it.
    site.terminate(operator)
    apply("maker", "own", "other")


def test_certificates_of_others_are_read_from_a_folder_and_nothing_is_written(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = guarded.site
    operator = guarded.start_operator()
    guarded.wait_for_webhook()
    site.terminate(operator)
    site.kubectl("delete", "secret", f"{site.namespace}-webhook-tls")
    folder = site.folder / "certificates"
    folder.mkdir()
    issued = _issue(folder)
    guarded.trust(issued)
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_CERTIFICATE_FOLDER", str(folder))
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_LOOK", "500ms")
    listen = guarded.url.removeprefix("https://")
    site.start_operator("--webhook-listen", listen)
    site.start_worker()
    site.until(lambda: "webhook_listening" in site.log("operator").rpartition("stopped")[2])
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    name = guarded.question()["metadata"]["name"]
    guarded.patch(name, "approver", {"verdict": "Approve"}, "--dry-run=server")
    # Renewed under another authority: who renews has the API server trust both until it is served.
    renewed = _issue(folder)
    guarded.trust(issued + renewed)
    site.until(lambda: site.log("operator").count("webhook_certificates_read") == 2)
    guarded.trust(renewed)
    guarded.patch(name, "approver", {"verdict": "Approve"})
    assert site.wait_ended("asked")["phase"] == "Succeeded"
    assert base64.b64decode(guarded.bundle()) == renewed
    assert "webhook-tls" not in site.kubectl("get", "secrets", "-o", "name")


def _ask_about(site: ClusterSite, run: str) -> dict[str, Any]:
    """Wait for the open question about a run and return it."""
    found: list[dict[str, Any]] = []

    def asked() -> bool:
        questions = [one for one in site.find_all("agentapproval") if _state(one) == "Open"]
        found[:] = [one for one in questions if one["status"]["request"]["run"]["name"] == run]
        return bool(found)

    site.until(asked)
    return found[0]


def _decide(site: ClusterSite, question: dict[str, Any], decision: dict[str, Any]) -> None:
    patch = json.dumps({"spec": {"decision": decision}})
    site.kubectl("patch", "agentapproval", question["metadata"]["name"], "--type=merge", "-p", patch)


def _issue(folder: Path) -> bytes:
    """Put a new certificate for the loopback address into a folder and return its authority."""
    made = make_certificates(frozenset({"127.0.0.1"}), datetime.now(UTC), timedelta(hours=1))
    (folder / CERTIFICATE).write_bytes(made.serving.certificate)
    (folder / KEY).write_bytes(made.serving.key)
    return made.bundle


def _tool_with_secrets(name: str, *secrets: str) -> dict[str, Any]:
    headers = [{"name": f"X-{at}", "secretKeyRef": {"name": secret, "key": "k"}} for at, secret in enumerate(secrets)]
    tool = _tool_without_spec(name)
    tool["spec"] = {"type": "http", "http": {"url": "https://shop.example/", "headersFrom": headers}}
    return tool


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
