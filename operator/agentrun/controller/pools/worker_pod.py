"""The pod of a worker: hardened, told by its environment which queue it serves, with the files that its tools need.

Pure: a wish and the settings in, a pod template out; equal ones give equal templates. Called for what is built of a
pool, and of a Job. Says nothing of how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from agentrun.contract.durations import format_duration
from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.execution import Volume, VolumeKind
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.decisions.pools.pool_wishes import PoolKey, PoolWish
from agentrun.decisions.pools.resource_amounts import ContainerAmounts, fit_amounts

CONTAINER = "worker"
PORT = 8081
"""Probes and metrics."""
SECRETS_FOLDER = "/run/agentrun/secrets"
SCRATCH_FOLDER = "/tmp"  # noqa: S108 - in the pod, where it is a volume of its own
URL_KEY = "url"
"""Field of the Secret that holds the ledger's URL for workers."""
LEDGER_FOLDER = "/run/agentrun/ledger"
AUTHORITY_KEY = "ca.crt"
"""Field with the certificate by which the ledger is trusted, where it is not one that everybody trusts."""
_SCRATCH_BYTES = "64Mi"
_CANCEL_GRACE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class PodAdditions:
    """What a worker's container gets beside what every one has."""

    env: Sequence[JsonValue] = ()
    mounts: Sequence[JsonValue] = ()


def build_pod_spec(
    key: PoolKey,
    wish: PoolWish,
    settings: PoolSettings,
    ledger_secret: str,
    order_patience: timedelta | None = None,
    more: PodAdditions | None = None,
) -> JsonObject:
    """Return the spec of a pod of this pool; ``ledger_secret`` names the Secret with the ledger's URL.

    With ``order_patience`` it is the pod of a Job: it waits so long for the one order of this queue, and ends with it.
    ``more`` is what its worker gets beside that.
    """
    grace = find_grace(wish, settings)
    spec: JsonObject = {
        "automountServiceAccountToken": wish.account is not None,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": -(-grace // timedelta(seconds=1)),
        "securityContext": _pod_security(settings),
        "containers": [_build_container(key, wish, settings, ledger_secret, order_patience, more or PodAdditions())],
        "volumes": _build_volumes(wish, ledger_secret),
    }
    if wish.account is not None:
        spec["serviceAccountName"] = wish.account
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if order_patience is not None:
        spec["restartPolicy"] = "Never"
    return spec


def find_grace(wish: PoolWish, settings: PoolSettings) -> timedelta:
    """Return how long a pod that is told to end may take: a call under way comes to its end in it."""
    return wish.longest_call + _CANCEL_GRACE + settings.grace_margin


def _pod_security(settings: PoolSettings) -> JsonObject:
    security: JsonObject = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if settings.user is not None:
        security["runAsUser"] = settings.user
    if settings.group is not None:
        security["runAsGroup"] = settings.group
    if settings.volume_group is not None:
        security |= {"fsGroup": settings.volume_group, "fsGroupChangePolicy": "OnRootMismatch"}
    return security


def _build_container(
    key: PoolKey,
    wish: PoolWish,
    settings: PoolSettings,
    ledger_secret: str,
    order_patience: timedelta | None,
    more: PodAdditions,
) -> JsonObject:
    return {
        "name": CONTAINER,
        "image": wish.image or settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["agentrun-worker", "run", *([] if order_patience is None else ["--one-order"])],
        "env": [*_build_environment(key, wish, settings, ledger_secret, order_patience), *more.env],
        # Nobody asks the worker of a single order how it is: it is never restarted, and its time is limited anyway.
        **(_answering() if order_patience is None else {}),
        "securityContext": build_security(),
        "resources": build_resources(wish.amounts, settings),
        "volumeMounts": [*_build_mounts(wish), *more.mounts],
    }


def build_resources(amounts: ContainerAmounts, settings: PoolSettings) -> JsonObject:
    """Return what a container gets: what its tools' author names, and the usual for the rest."""
    fitted = fit_amounts(amounts, settings.usual_amounts)
    return {"requests": dict(fitted.requests), "limits": dict(fitted.limits)}


def build_security() -> JsonObject:
    """Return what a container of ours may do: nothing beyond running."""
    return {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _answering() -> JsonObject:
    return {
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        # A ledger that is away fails neither of the first two: a restart would mend nothing.
        "startupProbe": _probe("/healthz", every=2, failures=60),
        "livenessProbe": _probe("/healthz", every=10, failures=6),
        "readinessProbe": _probe("/readyz", every=5, failures=2),
    }


def _build_environment(
    key: PoolKey, wish: PoolWish, settings: PoolSettings, ledger_secret: str, order_patience: timedelta | None
) -> list[JsonValue]:
    duty = (
        {"SLOTS": str(settings.rules.slots), "LISTEN": f"0.0.0.0:{PORT}"}
        if order_patience is None
        else {"ORDER_PATIENCE": format_duration(order_patience)}
    )
    told = {
        "INSTALL": settings.install,
        "NAMESPACE": key.namespace,
        "POOL": key.queue,
        **duty,
        "SECRETS_DIRECTORY": SECRETS_FOLDER,
        # Calls under way end by themselves: none of this pool's takes longer.
        "DRAIN_GRACE": format_duration(max(wish.longest_call, timedelta(seconds=1))),
        "CANCEL_GRACE": format_duration(_CANCEL_GRACE),
        "DURABILITY": settings.durability.value,
        "LOG_LEVEL": settings.log_level,
        "LOG_JSON": "true",
    }
    return [
        {
            "name": "AGENTRUN_WORKER_REDIS",
            "valueFrom": {"secretKeyRef": {"name": ledger_secret, "key": URL_KEY}},
        },
        # No other pod has it while this one lives, and it stays through restarts of the container.
        {"name": "AGENTRUN_WORKER_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        *plain_variables({f"AGENTRUN_WORKER_{name}": value for name, value in told.items()}),
        *build_own_environment(wish),
    ]


def build_own_environment(wish: PoolWish) -> list[JsonValue]:
    """Return the variables that the tools' author names."""
    # What is written goes where it may: the image's own files cannot be.
    return plain_variables({"HOME": SCRATCH_FOLDER} | {variable.name: variable.value for variable in wish.env})


def plain_variables(values: Mapping[str, str]) -> list[JsonValue]:
    """Return environment variables with fixed values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def _probe(path: str, *, every: int, failures: int) -> JsonObject:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _build_mounts(wish: PoolWish) -> list[JsonValue]:
    mounts: list[JsonValue] = [
        {"name": "tmp", "mountPath": SCRATCH_FOLDER},
        {"name": "ledger", "mountPath": LEDGER_FOLDER, "readOnly": True},
    ]
    if not wish.secrets:
        mounts.append({"name": "no-secrets", "mountPath": SECRETS_FOLDER, "readOnly": True})
    return mounts + build_own_mounts(wish)


def build_own_mounts(wish: PoolWish) -> list[JsonValue]:
    """Return the mounts of Secrets and volumes that the tools' author names."""
    mounts: list[JsonValue] = [
        {"name": f"secret-{at}", "mountPath": f"{SECRETS_FOLDER}/{name}", "readOnly": True}
        for at, name in enumerate(wish.secrets)
    ]
    mounts += [
        {"name": f"own-{volume.name}", "mountPath": volume.mount_path, "readOnly": volume.read_only}
        for volume in wish.volumes
    ]
    return mounts


def _build_volumes(wish: PoolWish, ledger_secret: str) -> list[JsonValue]:
    trusted: JsonObject = {
        "secretName": ledger_secret,
        "optional": True,
        "defaultMode": 0o440,
        "items": [{"key": AUTHORITY_KEY, "path": AUTHORITY_KEY}],
    }
    volumes: list[JsonValue] = [
        {"name": "tmp", "emptyDir": {"sizeLimit": _SCRATCH_BYTES}},
        {"name": "ledger", "secret": trusted},
    ]
    if not wish.secrets:
        # The worker looks for Secrets in this folder, and nowhere else.
        volumes.append({"name": "no-secrets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
    # Optional: a Secret that is missing fails the calls that need it, and keeps no other tool's worker from starting.
    return volumes + build_own_volumes(wish, optional_secrets=True)


def build_own_volumes(wish: PoolWish, *, optional_secrets: bool) -> list[JsonValue]:
    """Return the volumes of Secrets and files that the tools' author names."""
    return [
        {"name": f"secret-{at}", "secret": {"secretName": name, "optional": optional_secrets, "defaultMode": 0o440}}
        for at, name in enumerate(wish.secrets)
    ] + [{"name": f"own-{volume.name}", **_source(volume)} for volume in wish.volumes]


def _source(volume: Volume) -> JsonObject:
    match volume.kind:
        case VolumeKind.SECRET:
            return {"secret": {"secretName": volume.source, "optional": volume.optional, "defaultMode": 0o440}}
        case VolumeKind.CONFIG_MAP:
            return {"configMap": {"name": volume.source, "optional": volume.optional, "defaultMode": 0o440}}
        case VolumeKind.CLAIM:
            return {"persistentVolumeClaim": {"claimName": volume.source, "readOnly": volume.read_only}}
