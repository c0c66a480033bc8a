"""The pod of one call of a tool of type ``container``: the author's image beside a worker that holds the order.

Pure; called by the Job's manifest. An init container copies a helper that needs nothing of the author's image; the
helper starts the program once the worker has passed the gate, which takes no order before the helper runs: what can
fail before the start has shown by then, and nothing is on record. The two share two folders. The ledger's credentials
are in the worker alone, the author's Secrets, files and variables in the tool's container alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.tool import ContainerCall
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.controller.pools.pool_sights import list_of
from agentrun.controller.pools.worker_pod import (
    SCRATCH_FOLDER,
    PodAdditions,
    build_own_environment,
    build_own_mounts,
    build_own_volumes,
    build_pod_spec,
    build_resources,
    build_security,
    plain_variables,
)
from agentrun.decisions.pools.pool_wishes import PoolKey, PoolWish
from agentrun.decisions.pools.resource_amounts import ContainerAmounts

TOOL_CONTAINER = "tool"
HELPER_CONTAINER = "helper"
_HELPER_FOLDER = "/run/agentrun/helper"
_CALL_FOLDER = "/run/agentrun/call"
_ANSWER_FOLDER = "/run/agentrun/answer"


def build_container_pod_spec(
    key: PoolKey,
    wish: PoolWish,
    call: ContainerCall,
    settings: PoolSettings,
    ledger_secret: str,
    order_patience: timedelta,
) -> JsonObject:
    """Return the spec of the pod that makes one call of this tool; ``wish`` says what the tool's container gets."""
    bare = replace(wish, image=None, env=(), volumes=(), secrets=(), amounts=ContainerAmounts())
    told = {"AGENTRUN_WORKER_CALL_DIRECTORY": _CALL_FOLDER, "AGENTRUN_WORKER_ANSWER_DIRECTORY": _ANSWER_FOLDER}
    sees: list[JsonValue] = [
        {"name": "call", "mountPath": _CALL_FOLDER},
        {"name": "answer", "mountPath": _ANSWER_FOLDER, "readOnly": True},
    ]
    companion = PodAdditions(plain_variables(told), sees)
    spec = build_pod_spec(key, bare, settings, ledger_secret, order_patience, companion)
    return {
        **spec,
        "initContainers": [_build_helper(settings)],
        "containers": [*list_of(spec, "containers"), _build_tool(wish, call, settings)],
        "volumes": [
            *list_of(spec, "volumes"),
            _folder("helper", "8Mi"),
            _folder("call", "4Mi"),
            _folder("answer", "16Mi"),
            _folder("tool-tmp", "64Mi"),
            # Not optional: a Secret that is missing is the pod's fault, and shows before anything is on record.
            *build_own_volumes(wish, optional_secrets=False),
        ],
    }


def _build_helper(settings: PoolSettings) -> JsonObject:
    return {
        "name": HELPER_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["agentrun-worker", "helper", _HELPER_FOLDER],
        "env": plain_variables({"HOME": SCRATCH_FOLDER}),
        "securityContext": build_security(),
        "resources": build_resources(ContainerAmounts(), settings),
        "volumeMounts": [
            {"name": "tmp", "mountPath": SCRATCH_FOLDER},
            {"name": "helper", "mountPath": _HELPER_FOLDER},
        ],
    }


def _build_tool(wish: PoolWish, call: ContainerCall, settings: PoolSettings) -> JsonObject:
    helper = f"{_HELPER_FOLDER}/busybox"
    return {
        "name": TOOL_CONTAINER,
        "image": call.image,
        "imagePullPolicy": settings.pull_policy,
        "command": [helper, "sh", f"{_HELPER_FOLDER}/container_helper.sh", helper, _CALL_FOLDER, _ANSWER_FOLDER],
        # As they are: Kubernetes would put variables in the place of $(NAME).
        "args": [word.replace("$", "$$") for word in call.command],
        "env": build_own_environment(wish),
        "securityContext": build_security(),
        "resources": build_resources(wish.amounts, settings),
        "volumeMounts": [
            {"name": "tool-tmp", "mountPath": SCRATCH_FOLDER},
            {"name": "helper", "mountPath": _HELPER_FOLDER, "readOnly": True},
            {"name": "call", "mountPath": _CALL_FOLDER, "readOnly": True},
            {"name": "answer", "mountPath": _ANSWER_FOLDER},
            *build_own_mounts(wish),
        ],
    }


def _folder(name: str, size: str) -> JsonObject:
    return {"name": name, "emptyDir": {"sizeLimit": size}}
