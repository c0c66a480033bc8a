"""What a pool is made of: hardened pods, names that fit, and a digest that follows what is written and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agentrun.contract.execution import EnvironmentVariable, ScalingMode, Volume, VolumeKind
from agentrun.controller.pools.pool_manifests import LedgerAccess, PoolManifests, build_pool, pool_object_name
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.decisions.pools.pool_wishes import PoolKey, PoolWish
from agentrun.decisions.pools.resource_amounts import ContainerAmounts

USUAL = ContainerAmounts({"cpu": "100m", "memory": "128Mi"}, {"cpu": "1", "memory": "512Mi"})
SETTINGS = PoolSettings("agentrun", "worker:1", usual_amounts=USUAL)
ACCESS = LedgerAccess("agentrun-agentrun-worker-ledger", "v1")
KEY = PoolKey("shop", "shared")
WISH = PoolWish("shared", longest_call=timedelta(seconds=20))
FULL = replace(
    WISH,
    image="mine:2",
    account="robot",
    env=(EnvironmentVariable(name="PYTHONPATH", value="/more"),),
    volumes=(
        Volume(name="data", kind=VolumeKind.CLAIM, source="disk", mount_path="/data", read_only=False),
        Volume(name="conf", kind=VolumeKind.CONFIG_MAP, source="conf", mount_path="/conf"),
        Volume(name="keys", kind=VolumeKind.SECRET, source="keys", mount_path="/keys", optional=True),
    ),
    secrets=("mail", "pay"),
)


def build(wish: PoolWish = WISH, settings: PoolSettings = SETTINGS, access: LedgerAccess = ACCESS) -> PoolManifests:
    return build_pool(KEY, wish, settings, access, "v1")


def pod_of(wish: PoolWish = WISH, settings: PoolSettings = SETTINGS) -> dict[str, Any]:
    deployment: dict[str, Any] = build(wish, settings).deployment
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("wish", [WISH, FULL], ids=["plain", "full"])
def test_a_pod_is_what_the_restricted_standard_asks_for(wish: PoolWish) -> None:
    pod = pod_of(wish)
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"emptyDir", "secret", "configMap", "persistentVolumeClaim"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert set(container["resources"]["requests"]) == set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_a_token_is_mounted_for_a_named_account_alone() -> None:
    assert pod_of()["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod_of()
    assert (pod_of(FULL)["automountServiceAccountToken"], pod_of(FULL)["serviceAccountName"]) == (True, "robot")


def test_what_is_under_way_may_come_to_its_end() -> None:
    pod = pod_of(replace(WISH, longest_call=timedelta(minutes=3)))
    (container,) = pod["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert told["AGENTRUN_WORKER_DRAIN_GRACE"] == "3m"
    assert pod["terminationGracePeriodSeconds"] == 180 + 5 + 15


def test_no_secret_value_stands_in_a_manifest() -> None:
    (container,) = pod_of(FULL)["containers"]
    (source,) = [one["valueFrom"] for one in container["env"] if one["name"] == "AGENTRUN_WORKER_REDIS"]
    assert source == {"secretKeyRef": {"name": ACCESS.secret, "key": "url"}}
    paths = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/run/agentrun/secrets/mail", "/run/agentrun/secrets/pay", "/keys"} <= paths


def test_a_cluster_that_assigns_users_is_named_none() -> None:
    security = pod_of(settings=replace(SETTINGS, user=None, group=None, volume_group=None))["securityContext"]
    assert set(security) == {"runAsNonRoot", "seccompProfile"}


@pytest.mark.parametrize("pool", ["shared", "a" * 40, "a23456789-123456789-b"])
def test_a_pods_name_is_its_hosts_name(pool: str) -> None:
    name = pool_object_name("agentrun", PoolKey("shop", f"{pool}.{'0' * 16}"), pool)
    # A Deployment's pods add a hash of ten and one of five to it; a host's name is cut at 63.
    assert len(name) + len("-0123456789-01234") <= 63
    assert "--" not in name


def test_pools_and_installs_have_names_of_their_own() -> None:
    names = {
        pool_object_name(install, PoolKey("shop", queue), "shared")
        for install in ("a", "b")
        for queue in ("shared", "shared.0123456789abcdef")
    }
    assert len(names) == 4


CHANGES = {
    "image": (replace(WISH, image="x"), SETTINGS, ACCESS),
    "Secret": (replace(WISH, secrets=("s",)), SETTINGS, ACCESS),
    "memory": (replace(WISH, amounts=ContainerAmounts({}, {"memory": "1Gi"})), SETTINGS, ACCESS),
    "longest call": (replace(WISH, longest_call=timedelta(minutes=1)), SETTINGS, ACCESS),
    "who scales": (replace(WISH, scaling=ScalingMode.EXTERNAL), SETTINGS, ACCESS),
    "credentials": (WISH, SETTINGS, replace(ACCESS, version="v2")),
    "the operator's image": (WISH, replace(SETTINGS, image="worker:2"), ACCESS),
    "no NetworkPolicy": (WISH, replace(SETTINGS, network_policy=False), ACCESS),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_what_changes_what_is_written_changes_the_digest(
    changed: tuple[PoolWish, PoolSettings, LedgerAccess],
) -> None:
    assert build(*changed).digest != build().digest


@pytest.mark.parametrize(
    "wish",
    [replace(WISH, least=3, most=50), replace(WISH, concurrency={"t": 4})],
    ids=["how many workers", "a tool's own limit"],
)
def test_what_is_a_matter_of_numbers_replaces_no_pod(wish: PoolWish) -> None:
    assert build(wish).digest == build().digest


def test_a_policy_keeps_pods_from_the_metadata_addresses() -> None:
    policy: Any = build().policy
    assert policy["spec"]["podSelector"]["matchLabels"]["agentrun.dev/pool"] == "shared"
    (rule,) = policy["spec"]["egress"]
    left_out = {address for peer in rule["to"] for address in peer.get("ipBlock", {}).get("except", ())}
    assert "169.254.0.0/16" in left_out
