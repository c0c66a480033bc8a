"""What a Job is made of on a cluster, and the NetworkPolicy for the pods of all Jobs of a namespace.

Pure; called by the job keeper. The pod is the pools' own, with the duty to carry one order out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.ledger_keys import short_hash
from agentrun.contract.names import RUN_UID_LABEL
from agentrun.contract.object_meta import API_VERSION, OwnerReference
from agentrun.controller.jobs.tool_container import build_container_pod_spec
from agentrun.controller.pools.pool_manifests import BELONGS, INSTALL_LABEL, LedgerAccess, build_policy
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.controller.pools.worker_pod import build_pod_spec, find_grace
from agentrun.decisions.jobs.job_step import JobRules
from agentrun.decisions.jobs.job_wishes import JobWish, build_job_pod, find_container
from agentrun.decisions.pools.pool_wishes import PoolKey

JOB_LABEL = "agentrun.dev/job"
"""Name of the Job, on it and on its pods."""
NODE_LABEL = "agentrun.dev/node-uid"
SEQ_LABEL = "agentrun.dev/seq"
TOOL_ANNOTATION = "agentrun.dev/tool"
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What the operator's settings say about Jobs; their pods are like those of pools."""

    pods: PoolSettings
    rules: JobRules = field(default_factory=JobRules)


def job_selector(install: str) -> str:
    """Return the label selector that finds everything of an install's Jobs."""
    return f"{INSTALL_LABEL}={install},{JOB_LABEL}"


def build_job(wish: JobWish, settings: JobSettings, access: LedgerAccess) -> JsonObject:
    """Return the Job that carries one order of one node out."""
    pod = build_job_pod(wish)
    key, call = PoolKey(wish.key.namespace, wish.queue), find_container(wish)
    if call is None:
        spec = build_pod_spec(key, pod, settings.pods, access.secret, order_patience=wish.patience)
    else:
        spec = build_container_pod_spec(key, pod, call, settings.pods, access.secret, wish.patience)
    labels: JsonObject = {
        **BELONGS,
        INSTALL_LABEL: settings.pods.install,
        JOB_LABEL: wish.key.name,
        NODE_LABEL: wish.node_uid,
        RUN_UID_LABEL: wish.run_uid,
        SEQ_LABEL: str(wish.seq),
    }
    notes: JsonObject = {TOOL_ANNOTATION: wish.tool}
    # Beyond everything that its worker waits for and does by itself.
    lasts = wish.patience + 2 * find_grace(pod, settings.pods)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": wish.key.name,
            "namespace": wish.key.namespace,
            "labels": labels,
            "annotations": notes,
            "ownerReferences": [
                OwnerReference(api_version=API_VERSION, kind="AgentNode", name=wish.node, uid=wish.node_uid).to_wire()
            ],
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            # Attempts are counted by us. A pod that failed is followed by none, and one that is leaving (1.28 and
            # newer) by none before it has ended.
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": -(-lasts // _SECOND),
            # Should the operator be away; else it is quicker.
            "ttlSecondsAfterFinished": -(-settings.rules.keep_ended // _SECOND),
            "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": spec},
        },
    }


def build_job_policy(namespace: str, install: str) -> JsonObject:
    """Return the NetworkPolicy for the pods of all Jobs of a namespace: nobody talks to them."""
    selector: JsonObject = {
        "matchLabels": {INSTALL_LABEL: install},
        "matchExpressions": [{"key": JOB_LABEL, "operator": "Exists"}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"agentrun-jobs-{short_hash(install)[:10]}",
            "namespace": namespace,
            "labels": {**BELONGS, INSTALL_LABEL: install},
        },
        "spec": build_policy(selector, listens=False),
    }
