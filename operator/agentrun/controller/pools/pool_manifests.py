"""What a pool is made of on a cluster: a Deployment, a NetworkPolicy and a PodDisruptionBudget of one name.

Pure; called by the pool keeper. One digest over all of it says whether something is to be written: what the server adds
to a stored object is never compared. Every field stands here as the server would store it, so that others who compare
see no difference either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrun.contract.exact_json import JsonObject, JsonValue, json_digest
from agentrun.contract.execution import ScalingMode
from agentrun.contract.ledger_keys import short_hash
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.controller.pools.worker_pod import PORT, build_pod_spec
from agentrun.decisions.pools.pool_wishes import PoolKey, PoolWish

POOL_LABEL = "agentrun.dev/pool"
INSTALL_LABEL = "agentrun.dev/install"
DIGEST_ANNOTATION = "agentrun.dev/pool-digest"
SCALING_ANNOTATION = "agentrun.dev/pool-scaling"
CREDENTIALS_ANNOTATION = "agentrun.dev/ledger-credentials"
BELONGS = {
    "app.kubernetes.io/name": "agentrun-worker",
    "app.kubernetes.io/component": "worker",
    "app.kubernetes.io/managed-by": "agentrun-operator",
}
"""Labels of everything that the operator makes for workers."""
_NAME_SHOWN = 20
_METADATA_ADDRESSES = {"0.0.0.0/0": ["169.254.0.0/16"], "::/0": ["fe80::/10", "fd00:ec2::254/128"]}
"""Where clouds tell a machine its credentials, by the range that they are taken out of."""


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """How the workers of a namespace reach the ledger."""

    secret: str
    """The Secret with its URL."""
    version: str
    """Another one when the credentials are other ones: pods are replaced then."""


@dataclass(frozen=True, slots=True)
class PoolManifests:
    """Everything that is written for one pool."""

    name: str
    digest: str
    deployment: JsonObject
    """Without a number of replicas."""
    policy: JsonObject | None
    budget: JsonObject


def pool_selector(install: str) -> str:
    """Return the label selector that finds everything of an install's pools."""
    return f"{INSTALL_LABEL}={install},{POOL_LABEL}"


def pool_object_name(install: str, key: PoolKey, pool: str) -> str:
    """Return the name of a pool's objects: short enough for a pod's name to be its host's name as well (63)."""
    shown = pool[:_NAME_SHOWN].strip("-")
    return f"agentrun-{shown}-{short_hash(f'{install}/{key.queue}')[:10]}"


def build_pool(
    key: PoolKey, wish: PoolWish, settings: PoolSettings, access: LedgerAccess, budget_version: str
) -> PoolManifests:
    """Return what a pool is made of; ``budget_version``: of the API group policy that the server serves."""
    name = pool_object_name(settings.install, key, wish.pool)
    labels = _labels(settings.install, key)
    deployment = _build_deployment(key, wish, settings, access, labels)
    policy = build_policy({"matchLabels": labels}, listens=True) if settings.network_policy else None
    budget: JsonObject = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    digest = json_digest({"deployment": deployment, "policy": policy, "budget": budget, "scaling": wish.scaling.value})
    notes = {DIGEST_ANNOTATION: digest, SCALING_ANNOTATION: wish.scaling.value}

    def build(kind: str, version: str, spec: JsonObject, annotations: Mapping[str, str]) -> JsonObject:
        meta: JsonObject = {"name": name, "namespace": key.namespace, "labels": {**BELONGS, **labels}}
        if annotations:
            meta["annotations"] = dict(annotations)
        return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}

    return PoolManifests(
        name=name,
        digest=digest,
        deployment=build("Deployment", "apps/v1", deployment, notes),
        policy=build("NetworkPolicy", "networking.k8s.io/v1", policy, {}) if policy else None,
        budget=build("PodDisruptionBudget", f"policy/{budget_version}", budget, {}),
    )


def _labels(install: str, key: PoolKey) -> JsonObject:
    return {INSTALL_LABEL: install, POOL_LABEL: key.queue}


def _build_deployment(
    key: PoolKey, wish: PoolWish, settings: PoolSettings, access: LedgerAccess, labels: JsonObject
) -> JsonObject:
    pod = build_pod_spec(key, wish, settings, access.secret)
    spread: JsonObject = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    pod["affinity"] = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": spread}]
        }
    }
    return {
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "revisionHistoryLimit": 2,
        "template": {
            "metadata": {
                "labels": {**BELONGS, **labels},
                "annotations": {CREDENTIALS_ANNOTATION: access.version},
            },
            "spec": pod,
        },
    }


def build_policy(selector: JsonObject, *, listens: bool) -> JsonObject:
    """Return the spec of the NetworkPolicy for pods of workers; ``listens``: they answer probes and scrapes."""
    # Tools call hosts by name, which no NetworkPolicy knows: everything but the machine's own addresses is left open.
    # Pods are named apart, since not every network counts their addresses to the ranges.
    outside: list[JsonValue] = [
        {"ipBlock": {"cidr": cidr, "except": list(left_out)}} for cidr, left_out in _METADATA_ADDRESSES.items()
    ]
    return {
        "podSelector": selector,
        "policyTypes": ["Ingress", "Egress"],
        **({"ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}]} if listens else {}),
        "egress": [{"to": [{"namespaceSelector": {}}, *outside]}],
    }


def is_external(annotations: Mapping[str, object]) -> bool:
    """Tell whether somebody else writes a pool's number of workers."""
    return annotations.get(SCALING_ANNOTATION) == ScalingMode.EXTERNAL.value
