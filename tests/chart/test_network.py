"""Who may talk to whom: what the operator and the bundled ledger let in, and what they may reach."""

from typing import Any

import pytest

from support.helm import Helm, Manifest, find_object, find_objects

FULL = "agentrun-agentrun-operator"
ANYBODY: list[Any] = []


def policy_of(manifests: list[Manifest], name: str = FULL) -> dict[str, Any]:
    spec: dict[str, Any] = find_object(manifests, "NetworkPolicy", name)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    return spec


def by_port(rules: list[dict[str, Any]], peers: str) -> dict[int, list[Any]]:
    """Who is named for each port."""
    return {entry["port"]: rule.get(peers, ANYBODY) for rule in rules for entry in rule["ports"]}


def test_every_api_server_reaches_the_webhook_and_named_peers_alone_the_metrics(helm: Helm) -> None:
    scraper = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    let_in = by_port(policy_of(helm.render({"networkPolicy": {"metricsFrom": scraper}}))["ingress"], "from")
    assert let_in == {8080: scraper, 8443: ANYBODY}
    assert by_port(policy_of(helm.render({"webhook": {"enabled": False}}))["ingress"], "from") == {8080: ANYBODY}


def test_the_operator_reaches_names_the_api_server_and_its_ledger_alone(helm: Helm, standard: list[Manifest]) -> None:
    reached = by_port(policy_of(standard)["egress"], "to")
    assert set(reached) == {53, 443, 6443, 6379}
    labels = find_object(standard, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    (ledger,) = reached[6379]
    assert ledger["podSelector"]["matchLabels"].items() <= labels.items()
    external = {"ledger": {"mode": "External", "url": "redis://a:7000"}, "networkPolicy": {"ledgerPorts": [7000]}}
    assert set(by_port(policy_of(helm.render(external))["egress"], "to")) == {53, 443, 6443, 7000}


@pytest.mark.parametrize(
    "scope, want",
    [
        pytest.param(
            {"namespaces": ["shop"]},
            {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"]}]},
            id="served namespaces",
        ),
        pytest.param({"mode": "Cluster"}, {}, id="all"),
    ],
)
def test_the_ledger_takes_operators_and_workers_of_served_namespaces_and_reaches_nobody(
    helm: Helm, scope: dict[str, Any], want: dict[str, Any]
) -> None:
    manifests = helm.render({"scope": scope})
    policy = policy_of(manifests, f"{FULL}-valkey")
    operators, *workers = by_port(policy["ingress"], "from")[6379]
    assert "namespaceSelector" not in operators, "its own namespace alone"
    labels = find_object(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert operators["podSelector"]["matchLabels"].items() <= labels.items()
    assert [peer["namespaceSelector"] for peer in workers] == [want, want]
    assert [peer["podSelector"]["matchExpressions"] for peer in workers] == [
        [{"key": key, "operator": "Exists"}] for key in ("agentrun.dev/pool", "agentrun.dev/job")
    ]
    assert policy["egress"] == []


def test_an_external_ledger_has_no_policy_of_ours(helm: Helm) -> None:
    manifests = helm.render({"ledger": {"mode": "External", "url": "redis://a"}})
    assert [found["metadata"]["name"] for found in find_objects(manifests, "NetworkPolicy")] == [FULL]
