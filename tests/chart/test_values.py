"""Every value of the charts: described, refused when it is wrong, and used."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from ruamel.yaml import YAML

from agentrun.docgen.chart_values import list_values, read_schema
from support.helm import CRD_CHART, OPERATOR_CHART, Helm, HelmRefusedError, merged, nested

CHARTS = {"operator": OPERATOR_CHART, "crds": CRD_CHART}
EXTERNAL = {"ledger": {"mode": "External", "existingSecret": {"name": "ledger"}}}
MONITOR = {"metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}}}
MANAGED = {"webhook": {"certificates": {"mode": "CertManager"}}}
OWN = {"webhook": {"certificates": {"mode": "Secret", "secretName": "mine"}}}
NOBODY: dict[str, Any] = {}

CHANGED: dict[str, tuple[Any, dict[str, Any]]] = {
    "nameOverride": ("other", NOBODY),
    "fullnameOverride": ("other", NOBODY),
    "commonLabels": ({"team": "shop"}, NOBODY),
    "install": ("other", NOBODY),
    "image.repository": ("registry.example/operator", NOBODY),
    "image.tag": ("v9", NOBODY),
    "image.digest": ("sha256:" + "0" * 64, NOBODY),
    "image.pullPolicy": ("Always", NOBODY),
    "imagePullSecrets": ([{"name": "registry"}], NOBODY),
    "replicas": (3, NOBODY),
    "scope.mode": ("Cluster", NOBODY),
    "scope.namespaces": (["shop", "billing"], NOBODY),
    "ledger.mode": ("External", NOBODY),
    "ledger.url": ("rediss://other.example:6380/1", {"ledger": {"mode": "External", "url": "redis://one:6379"}}),
    "ledger.existingSecret.name": ("other", EXTERNAL),
    "ledger.existingSecret.key": ("other", EXTERNAL),
    "ledger.tls.secretName": ("ledger-tls", EXTERNAL),
    "ledger.tls.caKey": ("root.pem", merged(EXTERNAL, nested("ledger.tls.secretName", "tls"))),
    "ledger.durability": ("Accept", NOBODY),
    "valkey.image.repository": ("registry.example/valkey", NOBODY),
    "valkey.image.tag": ("9.0", NOBODY),
    "valkey.image.digest": ("sha256:" + "1" * 64, NOBODY),
    "valkey.image.pullPolicy": ("Always", NOBODY),
    "valkey.existingSecret": ("other", NOBODY),
    "valkey.memory": ("2Gi", NOBODY),
    "valkey.cpu": ("2", NOBODY),
    "valkey.storage.size": ("1Ti", NOBODY),
    "valkey.storage.className": ("fast", NOBODY),
    "valkey.runAsUser": (1234, NOBODY),
    "scheduler.leaseDuration": ("30s", NOBODY),
    "scheduler.sessionLease": ("1h", NOBODY),
    "scheduler.sweepEvery": ("1m", NOBODY),
    "scheduler.retentionNodes": ("1h", NOBODY),
    "scheduler.retentionMaxFinishedRuns": (1_000_000, NOBODY),
    "scheduler.globalLimit": (100_000, NOBODY),
    "scheduler.reservedSlots": ({"P1": 4, "P0": 2}, NOBODY),
    "scheduler.namespaceLimit": (50, NOBODY),
    "scheduler.namespacePolicies": ({"shop": {"share": 2}}, NOBODY),
    "pools.enabled": (False, NOBODY),
    "jobs.enabled": (False, NOBODY),
    "jobs.starting": (3, NOBODY),
    "jobs.keepEnded": ("10m", NOBODY),
    "pools.image.repository": ("registry.example/worker", NOBODY),
    "pools.image.tag": ("v9", NOBODY),
    "pools.image.digest": ("sha256:" + "2" * 64, NOBODY),
    "pools.image.pullPolicy": ("Always", NOBODY),
    "pools.imagePullSecrets": ([{"name": "registry"}], NOBODY),
    "pools.isolation": ("None", NOBODY),
    "pools.ledgerUrl": ("rediss://near.example:6380/1", NOBODY),
    "pools.credentialsLife": ("24h", NOBODY),
    "pools.serviceAccounts": (["robot"], NOBODY),
    "pools.slots": (8, NOBODY),
    "pools.scaleDownAfter": ("5m", NOBODY),
    "pools.deleteAfter": ("1h", NOBODY),
    "pools.settle": ("30s", NOBODY),
    "pools.graceMargin": ("1m", NOBODY),
    "pools.resources.requests": ({"cpu": "2"}, NOBODY),
    "pools.resources.limits": ({"memory": "1Gi"}, NOBODY),
    "pools.runAsUser": (1000, NOBODY),
    "pools.runAsGroup": (1000, NOBODY),
    "pools.fsGroup": (1000, NOBODY),
    "pools.nodeSelector": ({"disk": "fast"}, NOBODY),
    "pools.priorityClassName": ("urgent", NOBODY),
    "pools.networkPolicy": (False, NOBODY),
    "logs.level": ("debug", NOBODY),
    "logs.json": (False, NOBODY),
    "approvals.unverified": ("All", NOBODY),
    "approvals.admissionPolicy": (False, NOBODY),
    "webhook.enabled": (False, NOBODY),
    "webhook.port": (9443, NOBODY),
    "webhook.annotations": ({"note": "x"}, NOBODY),
    "webhook.look": ("5s", NOBODY),
    "webhook.certificates.mode": ("CertManager", NOBODY),
    "webhook.certificates.life": ("240h", NOBODY),
    "webhook.certificates.settle": ("2m", NOBODY),
    "webhook.certificates.secretName": ("other", OWN),
    "webhook.certificates.issuer.name": ("corporate", MANAGED),
    "webhook.certificates.issuer.kind": ("ClusterIssuer", MANAGED),
    "roles.create": (False, NOBODY),
    "roles.aggregate": (False, NOBODY),
    "roles.approverVerbs": (["approve"], NOBODY),
    "rbac.create": (False, NOBODY),
    "rbac.clusterIdentity": (False, NOBODY),
    "serviceAccount.create": (False, NOBODY),
    "serviceAccount.name": ("other", NOBODY),
    "serviceAccount.annotations": ({"note": "x"}, NOBODY),
    "crds.enabled": (False, NOBODY),
    "crds.keep": (False, NOBODY),
    "metrics.port": (9090, NOBODY),
    "metrics.serviceMonitor.enabled": (True, NOBODY),
    "metrics.serviceMonitor.interval": ("10s", MONITOR),
    "metrics.serviceMonitor.labels": ({"prometheus": "main"}, MONITOR),
    "metrics.rules.enabled": (True, NOBODY),
    "metrics.rules.labels": ({"prometheus": "main"}, MONITOR),
    "networkPolicy.enabled": (False, NOBODY),
    "networkPolicy.apiServerPorts": ([8443], NOBODY),
    "networkPolicy.ledgerPorts": ([16379], EXTERNAL),
    "networkPolicy.metricsFrom": ([{"podSelector": {}}], NOBODY),
    "networkPolicy.workersFrom": ([{"podSelector": {}}], NOBODY),
    "networkPolicy.extraEgress": ([{"ports": [{"port": 8080}]}], NOBODY),
    "podDisruptionBudget.enabled": (False, NOBODY),
    "pod.runAsUser": (1000, NOBODY),
    "pod.runAsGroup": (1000, NOBODY),
    "pod.fsGroup": (1000, NOBODY),
    "pod.labels": ({"team": "shop"}, NOBODY),
    "pod.annotations": ({"note": "x"}, NOBODY),
    "pod.resources": ({"limits": {"memory": "1Gi"}}, NOBODY),
    "pod.nodeSelector": ({"disk": "fast"}, NOBODY),
    "pod.tolerations": ([{"operator": "Exists"}], NOBODY),
    "pod.affinity": ({"nodeAffinity": {}}, NOBODY),
    "pod.topologySpreadConstraints": ([{"maxSkew": 1}], NOBODY),
    "pod.priorityClassName": ("urgent", NOBODY),
    "pod.terminationGracePeriodSeconds": (90, NOBODY),
    "pod.preStopSeconds": (0, NOBODY),
    "pod.extraEnv": ([{"name": "A", "value": "b"}], NOBODY),
}
"""For each value another one, and the values among which it counts."""
COMES_WITH = {"ledger.mode": EXTERNAL}
"""What cannot be set alone."""


def read_values(chart: str) -> dict[str, Any]:
    """A chart's own values."""
    found: dict[str, Any] = YAML(typ="safe", pure=True).load((CHARTS[chart] / "values.yaml").read_text())
    return found


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from walk(schema["items"], f"{path}[]")


def test_the_table_of_changed_values_names_every_value() -> None:
    assert set(CHANGED) == {value.path for value in list_values(read_schema(OPERATOR_CHART))}


@pytest.mark.parametrize("path", CHANGED)
def test_a_changed_value_changes_what_is_rendered(helm: Helm, path: str) -> None:
    value, among = CHANGED[path]
    changed = merged(among, COMES_WITH.get(path, {}), nested(path, value))
    assert helm.render_text(changed) != helm.render_text(among)


def test_the_chart_of_definitions_uses_its_value(helm: Helm) -> None:
    assert [value.path for value in list_values(read_schema(CRD_CHART))] == ["keep"]
    assert helm.render_text({"keep": False}, chart=CRD_CHART) != helm.render_text(chart=CRD_CHART)


@pytest.mark.parametrize("chart", CHARTS)
def test_every_value_is_described_and_its_default_is_legal(chart: str) -> None:
    schema = read_schema(CHARTS[chart])
    for value in list_values(schema):
        assert value.text.endswith((".", "…", ")")), value.path
        assert value.kinds, value.path
    jsonschema_rs.Draft7Validator(schema).validate(read_values(chart))


@pytest.mark.parametrize("chart", CHARTS)
def test_no_object_of_the_schema_takes_a_name_that_it_does_not_know(chart: str) -> None:
    free = {path for path, schema in walk(read_schema(CHARTS[chart])) if is_open(schema)}
    # Kubernetes' own types, handed on as they are; the API server checks them.
    handed_on = {
        ".global", ".networkPolicy.metricsFrom[]", ".networkPolicy.workersFrom[]", ".networkPolicy.extraEgress[]",
        ".pod.tolerations[]", ".pod.affinity", ".pod.topologySpreadConstraints[]", ".pod.extraEnv[].valueFrom",
    }  # fmt: skip
    assert free == (handed_on if chart == "operator" else {".global"})


def is_open(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    return (kinds == "object" or "object" in (kinds or ())) and schema.get("additionalProperties", True) is True


@pytest.mark.parametrize(
    "path, value",
    [
        pytest.param("replica", 2, id="misspelt"),
        pytest.param("ledger.URL", "redis://a", id="misspelt below"),
        pytest.param("replicas", 0, id="no replica"),
        pytest.param("replicas", "2", id="a number as a text"),
        pytest.param("install", "Shop", id="capital letters in the id"),
        pytest.param("install", "", id="no id"),
        pytest.param("image.digest", "sha256:12", id="half a digest"),
        pytest.param("image.pullPolicy", "always", id="pull policy in small letters"),
        pytest.param("scope.mode", "All", id="unknown scope"),
        pytest.param("scope.namespaces", ["Shop"], id="no namespace's name"),
        pytest.param("scope.namespaces", ["shop", "shop"], id="a namespace twice"),
        pytest.param("ledger.url", "localhost:6379", id="no scheme"),
        pytest.param("ledger.url", "redis://:secret@host:6379", id="a password in the values"),
        pytest.param("valkey.memory", "512", id="memory without a unit"),
        pytest.param("valkey.memory", "512M", id="memory in another unit"),
        pytest.param("scheduler.leaseDuration", "15", id="duration without a unit"),
        pytest.param("scheduler.leaseDuration", 15, id="duration as a number"),
        pytest.param("scheduler.globalLimit", 0, id="no call at all"),
        pytest.param("scheduler.reservedSlots", {"P9": 1}, id="unknown priority"),
        pytest.param("scheduler.reservedSlots", {"P0": -1}, id="fewer than no slots"),
        pytest.param("scheduler.namespaceLimit", 0, id="no call at all in a namespace"),
        pytest.param("scheduler.namespacePolicies", {"Shop": {}}, id="a policy for no namespace's name"),
        pytest.param("scheduler.namespacePolicies", {"shop": {"budget": 50}}, id="money as a number"),
        pytest.param("scheduler.namespacePolicies", {"shop": {"priority": "P1"}}, id="unknown bound"),
        pytest.param("logs.level", "trace", id="unknown level"),
        pytest.param("approvals.unverified", "None", id="unknown rule"),
        pytest.param("webhook.port", 443, id="a privileged port"),
        pytest.param("webhook.certificates.mode", "Vault", id="unknown source of certificates"),
        pytest.param("roles.approverVerbs", ["admit"], id="unknown verb"),
        pytest.param("commonLabels", {"a": 1}, id="a label that is a number"),
        pytest.param("pod.runAsUser", 0, id="root"),
        pytest.param("pod.resources", {"limit": {}}, id="misspelt resources"),
        pytest.param("pod.extraEnv", [{"value": "x"}], id="a variable without a name"),
        pytest.param("pod.terminationGracePeriodSeconds", 5, id="no time to end"),
        pytest.param("crds", True, id="a value in the place of values"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, path: str, value: Any) -> None:
    with pytest.raises(HelmRefusedError, match="values don't meet the specifications of the schema") as refused:
        helm.render_text(nested(path, value))
    assert path.split(".")[-1] in str(refused.value)


@pytest.mark.parametrize(
    "values, want_said",
    [
        pytest.param({"ledger": {"mode": "External"}}, "needs ledger.url or ledger.existingSecret", id="no ledger"),
        pytest.param(merged(EXTERNAL, nested("ledger.url", "redis://a")), "not both", id="two ledgers"),
        pytest.param(nested("ledger.url", "redis://a"), "ledger.mode External", id="a URL beside the bundled one"),
        pytest.param({"scope": {"mode": "Cluster", "namespaces": ["a"]}}, "scope.namespaces", id="a part of all"),
        pytest.param(nested("webhook.certificates.mode", "Secret"), "secretName", id="no Secret named"),
        pytest.param({"webhook": {"port": 8080}}, "must differ", id="one port twice"),
        pytest.param(nested("pod.preStopSeconds", 30), "terminationGracePeriodSeconds", id="no time left"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_the_remedy(
    helm: Helm, values: dict[str, Any], want_said: str
) -> None:
    with pytest.raises(HelmRefusedError, match=want_said):
        helm.render_text(values)


@pytest.mark.parametrize(
    "values, want_said",
    [
        pytest.param(MONITOR, "install the Prometheus operator first", id="monitors"),
        pytest.param(MANAGED, "install cert-manager first", id="cert-manager"),
    ],
)
def test_what_needs_another_api_says_so_where_that_is_missing(
    helm: Helm, values: dict[str, Any], want_said: str
) -> None:
    with pytest.raises(HelmRefusedError, match=want_said):
        helm.render_text(values, api_versions=())


def test_null_takes_a_user_away(helm: Helm) -> None:
    values = {"pod": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}, "valkey": {"runAsUser": None}}
    text = helm.render_text(values)
    assert "runAsUser:" not in text
    assert "fsGroup:" not in text
    assert text.count("runAsNonRoot: true") == helm.render_text().count("runAsNonRoot: true")


def test_the_values_of_a_parent_chart_do_no_harm(helm: Helm) -> None:
    assert helm.render_text({"global": {"anything": json.loads("[1]")}}) == helm.render_text()
