"""The chart on a real API server without nodes: installed, upgraded, rolled back, uninstalled; its rights suffice.

The server of these tests may be older than those that are supported in full. What it does not know (CEL rules) it would
refuse in a server-side apply, so the definitions are installed with kubectl, as docs/install.md says for such servers.
"""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster_site import ClusterSite
from support.control_plane import ControlPlane
from support.helm import CRD_CHART, OPERATOR_CHART, Helm, HelmRefusedError, merged
from support.ledger_server import DURABLE, LedgerServer

RELEASE = "agentrun"
FULL = "agentrun-agentrun-operator"
WITHOUT_DEFINITIONS = {"crds": {"enabled": False}}
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


class Installation:
    """One release of the chart in a namespace of its own."""

    def __init__(self, helm: Helm, site: ClusterSite) -> None:
        self._helm = helm
        self.site = site

    def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        where = ["--kubeconfig", str(self.site.kubeconfig), "--namespace", self.site.namespace]
        given = ["--values", "-"] if values is not None else []
        return self._helm.run(*arguments, *where, *given, stdin=json.dumps(values or {}))

    def install(self, values: dict[str, Any] | None = None, *arguments: str) -> str:
        given = merged(WITHOUT_DEFINITIONS, values or {})
        return self.helm("install", RELEASE, str(OPERATOR_CHART), *arguments, values=given)

    def upgrade(self, values: dict[str, Any] | None = None, *arguments: str) -> str:
        given = merged(WITHOUT_DEFINITIONS, values or {})
        return self.helm("upgrade", RELEASE, str(OPERATOR_CHART), *arguments, values=given)

    def told(self) -> dict[str, str]:
        """The environment of the operator's container, as the API server has it."""
        (container,) = self.site.get("deployment", FULL)["spec"]["template"]["spec"]["containers"]
        # The server leaves an empty value out.
        return {entry["name"]: entry.get("value", "") for entry in container["env"] if "valueFrom" not in entry}

    def kubeconfig_of_account(self, control_plane: ControlPlane) -> Path:
        """A kubeconfig for the operator's service account."""
        token = self.site.kubectl("create", "token", FULL).strip()
        path = self.site.folder / "account"
        path.write_text(control_plane.kubeconfig_for(token))
        return path


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ClusterSite]:
    with LedgerServer(DURABLE) as ledger:
        made = ClusterSite(control_plane.kubeconfig, ledger, tmp_path)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def installation(helm: Helm, site: ClusterSite) -> Iterator[Installation]:
    made = Installation(helm, site)
    try:
        yield made
    finally:
        # What is the cluster's outlives the namespace.
        made.helm("uninstall", RELEASE, "--ignore-not-found")


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="standard"),
        pytest.param({"scope": {"mode": "Cluster"}}, id="cluster"),
        pytest.param(
            {
                "ledger": {"mode": "External", "existingSecret": {"name": "l"}, "tls": {"secretName": "t"}},
                "webhook": {"certificates": {"mode": "Secret", "secretName": "s"}},
                "networkPolicy": {"metricsFrom": [{"podSelector": {}}], "extraEgress": [{"ports": [{"port": 9}]}]},
                "imagePullSecrets": [{"name": "r"}],
            },
            id="external",
        ),
    ],
)
def test_a_server_takes_every_manifest(installation: Installation, values: dict[str, Any]) -> None:
    said = installation.install(values, "--dry-run=server")
    assert f"name: {FULL}" in said
    assert installation.site.get("deployment", FULL) == {}, "a dry run stores nothing"
    installation.install(values)
    manifests = installation.helm("get", "manifest", RELEASE)
    # Strict: a field that the server does not know is refused.
    applied = installation.site.kubectl(
        "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-", stdin=manifests
    )
    assert len(applied.splitlines()) == manifests.count("\nkind: ")


def test_a_release_goes_forward_back_and_away(installation: Installation) -> None:
    site = installation.site
    installation.install()
    first = installation.told()
    installation.upgrade({"scheduler": {"globalLimit": 7}, "replicas": 3})
    assert installation.told()["AGENTRUN_OPERATOR_GLOBAL_LIMIT"] == "7"
    assert site.get("deployment", FULL)["spec"]["replicas"] == 3
    installation.upgrade({"scope": {"mode": "Cluster"}, "webhook": {"enabled": False}, "valkey": {"memory": "1Gi"}})
    assert installation.told()["AGENTRUN_OPERATOR_NAMESPACES"] == ""
    installation.helm("rollback", RELEASE, "1")
    assert installation.told() == first
    stored = [one for one in site.find_all("secret") if one["type"] == "helm.sh/release.v1"]
    assert len(stored) == 4
    assert max(len(json.dumps(one)) for one in stored) < 700_000
    installation.helm("uninstall", RELEASE)
    left = site.kubectl("get", "all,role,rolebinding,networkpolicy,configmap,serviceaccount,pdb", "-o", "name").split()
    assert [name for name in left if "agentrun" in name] == []
    everywhere = site.kubectl("get", "clusterrole,clusterrolebinding,crd", "-o", "name", inside=False)
    assert site.namespace not in everywhere
    assert everywhere.count(".agentrun.dev") == 4, "definitions stay, and with them every run"
    for kind in CONFIGURATIONS:
        assert site.namespace not in site.kubectl("get", kind, "-o", "name", inside=False)


SHAPES: dict[str, dict[str, Any]] = {
    "standard": {},
    "URL": {"ledger": {"mode": "External", "url": "redis://a:1"}},
    "Secret": {"ledger": {"mode": "External", "existingSecret": {"name": "l"}, "tls": {"secretName": "t"}}},
    "certificates": {"webhook": {"certificates": {"mode": "Secret", "secretName": "s"}}},
    "no webhook": {"webhook": {"enabled": False}, "approvals": {"unverified": "All"}},
    "OpenShift": {"pod": {"runAsUser": None, "fsGroup": None}, "valkey": {"runAsUser": None}},
    "one": {"replicas": 1, "pod": {"preStopSeconds": 0, "nodeSelector": {"a": "b"}}},
}


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "standard"])
def test_each_shape_can_be_upgraded_to_and_back(installation: Installation, shape: str) -> None:
    # A server-side apply may leave an empty part behind where one is taken away, and the server refuse the whole.
    installation.install()
    first = installation.site.get("deployment", FULL)["spec"]
    installation.upgrade(SHAPES[shape])
    assert installation.site.get("deployment", FULL)["spec"] != first or shape == "OpenShift"
    installation.upgrade()
    back = installation.site.get("deployment", FULL)["spec"]
    assert arrange(back["template"]["spec"]) == arrange(first["template"]["spec"])
    names = [entry["name"] for entry in back["template"]["spec"]["containers"][0]["env"]]
    assert names.index("LEDGER_URL") < names.index("AGENTRUN_OPERATOR_REDIS"), "what is named must stand before"


def arrange(spec: Any) -> Any:
    """A pod's spec with its named parts in the order of their names: whoever applies adds what is new at the end."""
    if isinstance(spec, dict):
        return {name: arrange(value) for name, value in spec.items()}
    if isinstance(spec, list):
        return sorted(
            (arrange(value) for value in spec),
            key=lambda part: str(part.get("name", part)) if isinstance(part, dict) else str(part),
        )
    return spec


def test_notes_tell_whom_to_let_in(installation: Installation) -> None:
    notes = installation.install().partition("NOTES:")[2]
    assert f"--clusterrole={installation.site.namespace}.{FULL}-approver" in notes
    assert f"Serves: {installation.site.namespace}\n" in notes


def test_two_releases_live_side_by_side(installation: Installation, helm: Helm, control_plane: ControlPlane) -> None:
    installation.install()
    with pytest.raises(HelmRefusedError, match="still in use"):
        installation.install()
    with LedgerServer(DURABLE) as ledger:
        folder = installation.site.folder / "other"
        folder.mkdir()
        other = Installation(helm, ClusterSite(control_plane.kubeconfig, ledger, folder))
        try:
            other.install()
            assert other.site.get("deployment", FULL)["metadata"]["namespace"] == other.site.namespace
        finally:
            other.helm("uninstall", RELEASE)
            other.site.close()


def test_the_chart_of_definitions_is_installed_by_itself(helm: Helm, control_plane: ControlPlane) -> None:
    where = ["--kubeconfig", str(control_plane.kubeconfig), "--namespace", "default"]
    # Those that the tests installed are adopted: who moves from kubectl to the chart does the same.
    names = [f"{name}.agentrun.dev" for name in ("agentruns", "agenttools", "agentnodes", "agentapprovals")]
    kubectl = ["kubectl", "--kubeconfig", str(control_plane.kubeconfig)]
    owner = {"meta.helm.sh/release-name": "definitions", "meta.helm.sh/release-namespace": "default"}
    for what, entries in (("annotate", owner), ("label", {"app.kubernetes.io/managed-by": "Helm"})):
        pairs = [f"{key}={value}" for key, value in entries.items()]
        subprocess.run([*kubectl, what, "--overwrite", "crd", *names, *pairs], check=True, capture_output=True)
    flags = ["--disable-openapi-validation"]
    if "server-side" in helm.run("install", "--help"):
        flags.append("--server-side=false")
    helm.run("install", "definitions", str(CRD_CHART), *flags, *where)
    helm.run("upgrade", "definitions", str(CRD_CHART), *flags[:1], *where)
    helm.run("uninstall", "definitions", *where)
    left = subprocess.run([*kubectl, "get", "crd", "-o", "name"], check=True, capture_output=True, text=True).stdout
    assert all(name in left for name in names)


@pytest.mark.parametrize("mode", ["Namespaces", "Cluster"])
def test_the_operators_rights_suffice_for_a_whole_run(
    installation: Installation, control_plane: ControlPlane, mode: str
) -> None:
    site = installation.site
    if mode == "Cluster":
        # It would serve namespaces of earlier tests as well, and nothing can be made in one that is being deleted.
        site.until(lambda: "Terminating" not in site.kubectl("get", "namespaces", inside=False))
    installation.install(
        {
            "install": site.namespace,
            "scope": {"mode": mode},
            "ledger": {"mode": "External", "url": site.ledger.url},
            # No pod serves the webhook here, and the server knows no policy: whoever may patch decides.
            "approvals": {"unverified": "All"},
            "scheduler": {"sweepEvery": "3s"},
        }
    )
    site.kubectl("delete", *(f"{kind}/{site.namespace}.{FULL}" for kind in CONFIGURATIONS[1:]), inside=False)
    probes = find_free_port()
    told = {
        **installation.told(),
        "AGENTRUN_OPERATOR_LISTEN": f"127.0.0.1:{probes}",
        "AGENTRUN_OPERATOR_WEBHOOK_LISTEN": f"127.0.0.1:{find_free_port()}",
        "AGENTRUN_OPERATOR_LOG_JSON": "false",
    }
    operator = site.start_told_operator(told, installation.kubeconfig_of_account(control_plane))
    site.start_worker()
    # The leader shows the authority of its certificate where the chart wrote none, and shows it again.
    hook = f"{site.namespace}.{FULL}"
    site.until(lambda: bundle_of(site, hook) != "")
    shown = bundle_of(site, hook)
    site.kubectl("delete", CONFIGURATIONS[0], hook, inside=False)
    site.apply_tools('{"act": {}}')
    site.apply_run(
        "whole",
        [
            {"name": "ask", "type": "Approval", "approval": {"message": "?"}},
            {"name": "a", "tool": "act", "params": {"word": "x"}, "dependsOn": ["ask"]},
        ],
        session="s",
        ttlAfterFinished="1s",
    )
    decide(site, "Approve")
    site.until(lambda: site.effects_of("x") == 1)
    # Its end, its Lease's, and its deletion after its time.
    site.until(lambda: site.get("agentrun", "whole") == {})
    assert re.findall(r"(?i).*(?:forbidden|cannot).*", site.log("operator")) == []
    scraped = urllib.request.urlopen(f"http://127.0.0.1:{probes}/metrics", timeout=10).read().decode()
    refused = {
        label for line in scraped.splitlines() if 'status="403"' in line for label in re.findall(r'e="(\w+)"', line)
    }
    # It looks once whether its namespaces exist, and does not need the right to.
    assert refused <= {"namespaces"}
    assert 'resource="leases",status="201"' in scraped
    assert shown
    assert site.terminate(operator) == 0


def test_an_upgrade_leaves_the_authority_where_the_operator_wrote_it(
    installation: Installation, control_plane: ControlPlane
) -> None:
    site = installation.site
    values = {"install": site.namespace, "ledger": {"mode": "External", "url": site.ledger.url}}
    installation.install(values)
    told = {
        **installation.told(),
        "AGENTRUN_OPERATOR_LISTEN": "",
        "AGENTRUN_OPERATOR_WEBHOOK_LISTEN": f"127.0.0.1:{find_free_port()}",
    }
    site.start_told_operator(told, installation.kubeconfig_of_account(control_plane))
    hook = f"{site.namespace}.{FULL}"
    site.until(lambda: all(bundle_of(site, hook, kind) for kind in CONFIGURATIONS))
    before = [bundle_of(site, hook, kind) for kind in CONFIGURATIONS]
    site.kill(*site.running("operator"))
    installation.upgrade({**values, "webhook": {"annotations": {"note": "x"}}})
    assert site.get(CONFIGURATIONS[0], hook)["metadata"]["annotations"]["note"] == "x"
    assert [bundle_of(site, hook, kind) for kind in CONFIGURATIONS] == before


def test_whoever_comes_first_makes_the_ledgers_secret(installation: Installation, control_plane: ControlPlane) -> None:
    site = installation.site
    installation.install()
    (init,) = site.get("deployment", FULL)["spec"]["template"]["spec"]["initContainers"]
    account = installation.kubeconfig_of_account(control_plane)
    # The account's namespace is the pod's; a kubeconfig says it in its context.
    account.write_text(account.read_text().replace("user: user}}", f"user: user, namespace: {site.namespace}}}}}"))
    program, *verbs = init["command"]
    assert program == "agentrun"
    told = [sys.executable, "-m", "agentrun.cli", *verbs, *init["args"], "--kubeconfig", str(account)]
    racing = [subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in racing]
    assert [process.returncode for process in racing] == [0, 0], said
    secret = site.get("secret", f"{FULL}-ledger")
    subprocess.run(told, check=True, timeout=60)
    assert site.get("secret", f"{FULL}-ledger") == secret, "what stands is not changed"
    statefulset = site.get("statefulset", f"{FULL}-valkey")["spec"]["template"]["spec"]["containers"][0]
    (source,) = [entry["valueFrom"]["secretKeyRef"] for entry in statefulset["env"]]
    assert source["name"] == secret["metadata"]["name"]
    assert source["key"] in secret["data"]
    site.kubectl("patch", "secret", f"{FULL}-ledger", "--type=json", "-p", '[{"op": "remove", "path": "/data/url"}]')
    broken = subprocess.run(told, capture_output=True, text=True, timeout=60)
    assert broken.returncode == 1
    assert "has no url: add it, or delete the Secret" in broken.stderr


def bundle_of(site: ClusterSite, name: str, kind: str = CONFIGURATIONS[0]) -> str:
    found = site.get(kind, name)
    return str(found["webhooks"][0]["clientConfig"].get("caBundle", "")) if found else ""


def decide(site: ClusterSite, verdict: str) -> None:
    site.until(lambda: any(one.get("status", {}).get("request") for one in site.find_all("agentapproval")))
    (approval,) = site.find_all("agentapproval")
    patch = json.dumps({"spec": {"decision": {"verdict": verdict}}})
    site.kubectl("patch", "agentapproval", approval["metadata"]["name"], "--type=merge", "-p", patch)
