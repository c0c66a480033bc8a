"""What is rendered as a whole: the same twice, small enough, legal names, the right API versions, nobody's resources."""

import gzip
import json
import re
import tomllib
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.helm import CRD_CHART, OPERATOR_CHART, ROOT, Helm, Manifest, find_object, find_objects

CHARTS = {"operator": OPERATOR_CHART, "crds": CRD_CHART}
EVERYTHING: dict[str, Any] = {
    "metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}},
    "webhook": {"certificates": {"mode": "CertManager"}},
}
DEFINITIONS = sorted((ROOT / "crds").glob("*.yaml"))
NAMESPACED = {
    "Certificate", "ConfigMap", "Deployment", "Issuer", "NetworkPolicy", "PodDisruptionBudget", "PrometheusRule", "Role",
    "RoleBinding", "Service", "ServiceAccount", "ServiceMonitor", "StatefulSet",
}  # fmt: skip


@pytest.mark.parametrize("chart", CHARTS)
def test_two_renderings_are_the_same_to_the_byte(helm: Helm, chart: str) -> None:
    values = EVERYTHING if chart == "operator" else {}
    first = helm.render_text(values, chart=CHARTS[chart])
    assert helm.render_text(values, chart=CHARTS[chart], again=True) == first


@pytest.mark.parametrize("chart", CHARTS)
def test_helm_finds_nothing_to_complain_of(helm: Helm, chart: str) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHARTS[chart]), "--kube-version", "1.31.0")


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
def test_the_definitions_are_those_of_the_project(helm: Helm, chart: str, keep: bool) -> None:
    values = {"keep": keep} if chart == "crds" else {"crds": {"keep": keep}}
    rendered = find_objects(helm.render(values, chart=CHARTS[chart]), "CustomResourceDefinition")
    for definition in rendered:
        annotations = definition["metadata"].pop("annotations", {})
        assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else {})
    yaml = YAML(typ="safe", pure=True)
    want = [yaml.load(path.read_text(encoding="utf-8")) for path in DEFINITIONS]
    assert sorted(rendered, key=name_of) == sorted(want, key=name_of)
    assert len(want) == 4


def test_a_definition_is_smaller_than_an_annotation_may_be() -> None:
    # kubectl apply keeps a copy of what it applied in an annotation, of 256 KiB at most.
    assert max(path.stat().st_size for path in DEFINITIONS) < 200_000


@pytest.mark.parametrize("chart", CHARTS)
def test_a_release_is_smaller_than_a_secret_may_be(helm: Helm, chart: str) -> None:
    # Helm stores chart and manifests in one Secret, packed and in base64 twice; a Secret holds 1 MiB.
    files = {str(path): path.read_text() for path in CHARTS[chart].rglob("*") if path.is_file()}
    whole = json.dumps([files, helm.render_text(EVERYTHING if chart == "operator" else {}, chart=CHARTS[chart])])
    assert len(gzip.compress(whole.encode())) * 16 / 9 < 700_000


def test_there_is_no_hook_and_no_resource_of_ours(helm: Helm) -> None:
    text = helm.render_text(EVERYTHING)
    assert "helm.sh/hook" not in text
    assert not [found for found in helm.render(EVERYTHING) if found["apiVersion"].startswith("agentrun.dev/")]


@pytest.mark.parametrize("release, namespace", [("a", "b"), ("r" * 53, "n" * 63), ("9lives", "9"), ("a.b", "1e3")])
def test_names_are_legal_and_in_their_place(helm: Helm, release: str, namespace: str) -> None:
    for found in helm.render(EVERYTHING, release=release, namespace=namespace):
        name, kind = found["metadata"]["name"], found["kind"]
        assert len(name) <= (63 if kind in NAMESPACED and not kind.startswith("Role") else 253), name
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name), name
        # A Service's name begins with a letter; a StatefulSet's is a label's value, with eleven characters behind it.
        assert kind != "Service" or re.match("[a-z]", name), name
        assert kind != "StatefulSet" or len(name) <= 52, name
        assert found["metadata"].get("namespace", namespace) == namespace
        assert ("namespace" in found["metadata"]) == (kind in NAMESPACED), kind
        for value in found["metadata"].get("labels", {}).values():
            assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", value), value


def test_two_releases_share_no_object(helm: Helm) -> None:
    def names(release: str, namespace: str) -> set[tuple[str, str, str]]:
        return {
            (found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"])
            for found in helm.render(EVERYTHING, release=release, namespace=namespace)
            if found["kind"] != "CustomResourceDefinition"
        }

    assert not names("a", "one") & names("a", "two")
    assert not names("a", "one") & names("b", "one")
    assert not names("c", "a-b") & names("b-c", "a")
    assert not names("r" * 52 + "a", "one") & names("r" * 52 + "b", "one")


@pytest.mark.parametrize(
    "kube_version, api_versions, want",
    [
        pytest.param("1.20.2", (), set(), id="1.20"),
        pytest.param("1.29.0", (), set(), id="1.29"),
        pytest.param("1.30.0", (), {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, id="1.30"),
        pytest.param("1.36.1", (), {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, id="1.36"),
    ],
)
def test_what_a_server_does_not_know_is_left_out(
    helm: Helm, kube_version: str, api_versions: tuple[str, ...], want: set[str]
) -> None:
    found = helm.render(kube_version=kube_version, api_versions=api_versions)
    assert {one["kind"] for one in found if one["kind"].startswith("ValidatingAdmissionPolicy")} == want


def test_one_replica_has_no_disruption_budget(helm: Helm, standard: list[Manifest]) -> None:
    assert find_object(standard, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert find_objects(helm.render({"replicas": 1}), "PodDisruptionBudget") == []


def test_without_webhook_roles_and_definitions_nothing_is_the_clusters(helm: Helm) -> None:
    values = {
        "webhook": {"enabled": False},
        "roles": {"create": False},
        "rbac": {"clusterIdentity": False},
        "crds": {"enabled": False},
        "approvals": {"admissionPolicy": False},
    }
    assert [found["kind"] for found in helm.render(values) if "namespace" not in found["metadata"]] == []


def test_services_and_policies_select_the_pods_that_they_are_for(helm: Helm) -> None:
    manifests = helm.render(EVERYTHING)
    pods = {
        found["metadata"]["name"]: found["spec"]["template"]["metadata"]["labels"]
        for found in (*find_objects(manifests, "Deployment"), *find_objects(manifests, "StatefulSet"))
    }
    selectors = {
        f"{found['kind']}/{found['metadata']['name']}": found["spec"].get("podSelector", found["spec"].get("selector"))
        for kind in ("Service", "NetworkPolicy", "PodDisruptionBudget")
        for found in find_objects(manifests, kind)
    }
    operator, ledger = "agentrun-agentrun-operator", "agentrun-agentrun-operator-valkey"
    chosen = {
        name: [
            pod for pod, labels in pods.items() if (selector.get("matchLabels") or selector).items() <= labels.items()
        ]
        for name, selector in selectors.items()
    }
    assert chosen == {
        f"Service/{operator}-webhook": [operator],
        f"Service/{operator}-metrics": [operator],
        f"Service/{ledger}": [ledger],
        f"NetworkPolicy/{operator}": [operator],
        f"NetworkPolicy/{ledger}": [ledger],
        f"PodDisruptionBudget/{operator}": [operator],
    }


def test_the_charts_carry_the_projects_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for chart in CHARTS.values():
        found = YAML(typ="safe", pure=True).load((chart / "Chart.yaml").read_text())
        assert (found["version"], found["appVersion"]) == (project, project)


def name_of(found: Manifest) -> str:
    return str(found["metadata"]["name"])
