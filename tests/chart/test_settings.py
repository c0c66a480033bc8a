"""What the chart tells the operator: every setting is reached by a value, and no variable is told in vain."""

from typing import Any

import pytest

from agentrun.contract.run import Priority
from agentrun.controller.operator_settings import ENVIRONMENT_PREFIX, OperatorSettings
from agentrun.decisions.decision_authority import UnverifiedDecisions
from agentrun.decisions.namespace_policy import NamespacePolicy
from agentrun.telemetry.listen_address import ListenAddress
from support.helm import Helm, Manifest, find_object, find_objects

EXTERNAL = {"ledger": {"mode": "External", "url": "redis://ledger.example:6379/3"}}
WORKERS_ELSEWHERE = {
    "ledger": {"mode": "External", "url": "rediss://ledger.example:6379/3", "tls": {"secretName": "t"}},
    "pools": {"ledgerUrl": "rediss://near.example:6379/3"},
}
BOUNDED = {"scheduler": {"namespaceLimit": 5, "namespacePolicies": {"shop": {"share": 2}}}}
NOT_TOLD = {
    "kubeconfig": "a pod has its service account",
    "context": "a pod has its service account",
    "identity": "a pod's name with a random part serves best",
    "webhook_url": "within the cluster the chart writes the configurations, with a Service",
}


def environment(manifests: list[Manifest]) -> dict[str, str]:
    (container,) = find_object(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def read_settings(monkeypatch: pytest.MonkeyPatch, manifests: list[Manifest]) -> OperatorSettings:
    """The settings that an operator in the rendered pod has."""
    for name, value in environment(manifests).items():
        # As the kubelet does it with the variable from the Secret.
        monkeypatch.setenv(name, value.replace("$(LEDGER_URL)", "redis://127.0.0.1:6379/0"))
    return OperatorSettings()


def test_every_setting_is_told_by_some_value_or_has_a_reason_not_to_be(helm: Helm) -> None:
    folder = {"webhook": {"certificates": {"mode": "Secret", "secretName": "mine"}}}
    told = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower()
        for values in ({}, WORKERS_ELSEWHERE, {**folder, **BOUNDED, "approvals": {"unverified": "All"}})
        for name in environment(helm.render(values))
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    assert told | set(NOT_TOLD) == set(OperatorSettings.model_fields)
    assert not told & set(NOT_TOLD)


def test_nothing_said_means_what_the_operator_means_by_it(
    monkeypatch: pytest.MonkeyPatch, standard: list[Manifest]
) -> None:
    told, default = read_settings(monkeypatch, standard), OperatorSettings.model_construct()
    different = {name for name in OperatorSettings.model_fields if getattr(told, name) != getattr(default, name)}
    assert different == {
        "namespaces", "lease_namespace", "listen", "webhook_listen", "webhook_name", "webhook_service", "log_json",
        "pools_enabled", "pools_image", "jobs_enabled",
    }  # fmt: skip
    assert told.namespaces == ["agents"]
    assert told.listen == ListenAddress("0.0.0.0", 8080)
    assert told.unverified_decisions is UnverifiedDecisions.REFUSE


def test_values_arrive_in_the_settings(monkeypatch: pytest.MonkeyPatch, helm: Helm) -> None:
    values: dict[str, Any] = {
        **EXTERNAL,
        "install": "other",
        "scope": {"namespaces": ["shop", "billing"]},
        "scheduler": {
            "leaseDuration": "30s",
            "sessionLease": "1h",
            "sweepEvery": "1m30s",
            "retentionNodes": "48h",
            "retentionMaxFinishedRuns": 1_000_000,
            "globalLimit": 100_000,
            "reservedSlots": {"P0": 2, "P1": 4},
            "namespaceLimit": 50,
            "namespacePolicies": {"*": {"highestPriority": "P1", "budget": "50.00"}, "shop": {"share": 3}},
        },
        "approvals": {"unverified": "All"},
        "webhook": {"look": "5s", "certificates": {"life": "240h", "settle": "2m"}},
        "logs": {"level": "debug", "json": False},
        "jobs": {"starting": 3, "keepEnded": "10m"},
        "pools": {
            "image": {"repository": "r.example/worker", "tag": "2"},
            "imagePullSecrets": [{"name": "a"}, {"name": "b"}],
            "serviceAccounts": ["robot"],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": None, "memory": "1Gi"}},
            "runAsUser": None,
            "nodeSelector": {"example.com/disk": "fast", "zone": "a"},
            "scaleDownAfter": "1m30s",
            "isolation": "None",
        },
    }
    values["ledger"] = {**EXTERNAL["ledger"], "durability": "Accept"}
    told = read_settings(monkeypatch, helm.render(values))
    assert told.redis.get_secret_value() == "redis://ledger.example:6379/3"
    assert (told.install, told.namespaces) == ("other", ["shop", "billing"])
    assert (told.retention_max_finished_runs, told.global_limit) == (1_000_000, 100_000)
    assert {priority.value: count for priority, count in told.reserved_slots.items()} == {"P0": 2, "P1": 4}
    assert told.namespace_limit == 50
    assert told.policies.find("shop") == NamespacePolicy(share=3)
    assert told.policies.find("other") == NamespacePolicy(Priority.P1, 50_000_000)
    assert told.sweep_every.total_seconds() == 90
    assert (told.pools_image, told.pools_image_pull_secrets) == ("r.example/worker:2", ["a", "b"])
    assert (told.pools_service_accounts, told.pools_isolation.value) == (["robot"], "None")
    assert told.pools_requests == {"cpu": "2", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    assert told.pools_limits == {"memory": "1Gi", "ephemeral-storage": "256Mi"}
    assert (told.pools_run_as_user, told.pools_fs_group) == (0, 65532)
    assert told.pools_node_selector == {"example.com/disk": "fast", "zone": "a"}
    assert told.pools_scale_down_after.total_seconds() == 90
    assert (told.jobs_starting, told.jobs_keep_ended.total_seconds()) == (3, 600)
    assert told.webhook_certificate_life.days == 10
    assert (told.durability.value, told.log_level.value, told.log_json) == ("Accept", "debug", False)


def test_in_mode_cluster_all_namespaces_are_served(monkeypatch: pytest.MonkeyPatch, helm: Helm) -> None:
    assert read_settings(monkeypatch, helm.render({"scope": {"mode": "Cluster"}})).namespaces == []


def test_a_password_stands_in_no_manifest(helm: Helm, standard: list[Manifest]) -> None:
    external = helm.render({"ledger": {"mode": "External", "existingSecret": {"name": "mine", "key": "where"}}})
    for manifests, want in ((standard, ("agentrun-agentrun-operator-ledger", "url")), (external, ("mine", "where"))):
        (container,) = find_object(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
        (source,) = [entry["valueFrom"] for entry in container["env"] if entry["name"] == "LEDGER_URL"]
        assert environment(manifests)["AGENTRUN_OPERATOR_REDIS"] == "$(LEDGER_URL)"
        assert (source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]) == want
        assert find_objects(manifests, "Secret") == []
