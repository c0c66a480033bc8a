"""Every pod of the chart is what PodSecurity ``restricted`` lets in, and can be probed, scheduled and ended.

The rules are those of https://kubernetes.io/docs/concepts/security/pod-security-standards/ (restricted).
"""

import re
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from agentrun.controller.operator_process import OperatorProcess
from support.helm import OPERATOR_CHART, Helm, Manifest, find_object, merged

SHAPES: dict[str, dict[str, Any]] = {
    "standard": {},
    "cert-manager and TLS": {
        "webhook": {"certificates": {"mode": "CertManager"}},
        "ledger": {"mode": "External", "url": "rediss://a", "tls": {"secretName": "tls"}},
    },
    "OpenShift": {
        "pod": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "valkey": {"runAsUser": None},
        "scope": {"mode": "Cluster"},
    },
}
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def find_pods(manifests: list[Manifest]) -> dict[str, dict[str, Any]]:
    """The spec of every pod, by the name of what makes it."""
    found = {}
    for manifest in manifests:
        template = manifest.get("spec", {}).get("template") if manifest["kind"] != "CustomResourceDefinition" else None
        if template:
            found[f"{manifest['kind']}/{manifest['metadata']['name']}"] = template["spec"]
    return found


def find_breaches(pod: dict[str, Any]) -> Iterator[str]:
    """What ``restricted`` would refuse, and what it does not ask for and we do."""
    whole = pod.get("securityContext", {})
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    if whole.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "seccomp of the pod"
    if whole.get("runAsNonRoot") is not True or whole.get("runAsUser") == 0:
        yield "root"
    for volume in pod.get("volumes", ()):
        if set(volume) - {"name"} - _VOLUMES:
            yield f"volume {volume['name']}"
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield f"privileges of {container['name']}"
        if own.get("capabilities") != {"drop": ["ALL"]}:
            yield f"capabilities of {container['name']}"
        if own.get("runAsUser") == 0 or own.get("runAsNonRoot") is False:
            yield f"root in {container['name']}"
        if any("hostPort" in port for port in container.get("ports", ())):
            yield f"host port of {container['name']}"
        # Ours:
        if own.get("readOnlyRootFilesystem") is not True:
            yield f"files of {container['name']}"
        if own.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"seccomp of {container['name']}"
        resources = container.get("resources", {})
        if not resources.get("requests", {}).get("cpu") or not resources.get("limits", {}).get("memory"):
            yield f"resources of {container['name']}"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_pod_is_restricted(helm: Helm, shape: str) -> None:
    pods = find_pods(helm.render(SHAPES[shape]))
    assert pods
    assert {name: list(find_breaches(pod)) for name, pod in pods.items()} == {name: [] for name in pods}


@pytest.mark.parametrize(
    "place, value, want",
    [
        pytest.param(("hostNetwork",), True, "hostNetwork", id="host network"),
        pytest.param(("securityContext", "seccompProfile"), None, "seccomp of the pod", id="seccomp"),
        pytest.param(("securityContext", "runAsNonRoot"), False, "root", id="root"),
        pytest.param(("volumes", 0, "hostPath"), {"path": "/"}, "volume tmp", id="host path"),
        pytest.param(
            ("containers", 0, "securityContext", "capabilities"), {"drop": []}, "capabilities of operator", id="caps"
        ),
        pytest.param(
            ("containers", 0, "securityContext", "allowPrivilegeEscalation"), None, "privileges of operator", id="sudo"
        ),
        pytest.param(
            ("initContainers", 0, "securityContext", "readOnlyRootFilesystem"), False, "files of ledger-secret", id="rw"
        ),
        pytest.param(("containers", 0, "resources"), {}, "resources of operator", id="no resources"),
    ],
)
def test_the_check_finds_what_it_is_there_for(
    standard: list[Manifest], place: tuple[Any, ...], value: Any, want: str
) -> None:
    pod = deepcopy(find_pods(standard)["Deployment/agentrun-agentrun-operator"])
    inner = pod
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    assert want in list(find_breaches(pod))


def test_only_who_asks_the_api_server_has_a_token(standard: list[Manifest]) -> None:
    tokens = {name: pod["automountServiceAccountToken"] for name, pod in find_pods(standard).items()}
    assert tokens == {
        "Deployment/agentrun-agentrun-operator": True,
        "StatefulSet/agentrun-agentrun-operator-valkey": False,
    }
    assert find_object(standard, "ServiceAccount")["automountServiceAccountToken"] is False


def test_probes_ask_what_the_operator_serves(standard: list[Manifest]) -> None:
    (container,) = find_pods(standard)["Deployment/agentrun-agentrun-operator"]["containers"]
    asked = {
        kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    }  # the paths of telemetry/probe_server.py
    assert asked == {
        "startup": {"path": "/healthz", "port": "metrics"},
        "liveness": {"path": "/healthz", "port": "metrics"},
        "readiness": {"path": "/readyz", "port": "metrics"},
    }
    assert {port["name"] for port in container["ports"]} == {"metrics", "webhook"}


def test_the_grace_period_holds_the_pre_stop_and_the_operators_own_end(helm: Helm) -> None:
    pod = find_pods(helm.render())["Deployment/agentrun-agentrun-operator"]
    (container,) = pod["containers"]
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    # Ending takes the scheduler 20 s at most (operator_process), before the Lease is given back.
    assert OperatorProcess.__module__ == "agentrun.controller.operator_process"
    assert pod["terminationGracePeriodSeconds"] >= before + 20 + 10


def test_the_ledger_keeps_everything_on_disk_and_evicts_nothing(helm: Helm) -> None:
    for memory, want in (("512Mi", "384mb"), ("2Gi", "1536mb"), ("1Mi", "0mb")):
        manifests = helm.render({"valkey": {"memory": memory}})
        lines = find_object(manifests, "ConfigMap")["data"]["valkey.conf"].splitlines()
        assert {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction", f"maxmemory {want}"} <= set(
            lines
        )


def test_a_changed_configuration_of_the_ledger_restarts_it(helm: Helm) -> None:
    def digest(values: dict[str, Any]) -> str:
        found = find_object(helm.render(values), "StatefulSet")["spec"]["template"]["metadata"]["annotations"]
        return str(found["agentrun.dev/config-digest"])

    assert digest({"valkey": {"memory": "1Gi"}}) == digest({"valkey": {"memory": "1024Mi"}})
    assert digest({"valkey": {"memory": "2Gi"}}) != digest({})


def test_a_new_version_of_the_chart_does_not_restart_the_ledger(helm: Helm, tmp_path: Path) -> None:
    newer = tmp_path / "chart"
    shutil.copytree(OPERATOR_CHART, newer)
    about = newer / "Chart.yaml"
    about.write_text(re.sub(r"(?m)^((?:appV|v)ersion): .*$", r'\1: "9.9.9"', about.read_text()))
    changed, standard = helm.render(chart=newer), helm.render()
    assert find_object(changed, "StatefulSet")["spec"] == find_object(standard, "StatefulSet")["spec"]
    assert find_object(changed, "Deployment")["spec"] != find_object(standard, "Deployment")["spec"]


def test_a_digest_wins_over_a_tag(helm: Helm) -> None:
    digest = "sha256:" + "a" * 64
    image = {"repository": "registry.example/op", "tag": "v1", "digest": digest}
    pods = find_pods(helm.render(merged({"image": image})))
    containers = pods["Deployment/agentrun-agentrun-operator"]["containers"]
    assert [container["image"] for container in containers] == [f"registry.example/op@{digest}"]
