"""Pools on a cluster under test that runs no pods: stands in for the kubelet, with workers as processes of this machine."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

from support.cluster_site import ClusterSite

QUICK = {
    "AGENTRUN_OPERATOR_POOLS_ENABLED": "true",
    "AGENTRUN_OPERATOR_POOLS_IMAGE": "worker.example/agentrun:1",
    "AGENTRUN_OPERATOR_POOLS_SCALE_DOWN_AFTER": "2s",
    "AGENTRUN_OPERATOR_POOLS_DELETE_AFTER": "3s",
    "AGENTRUN_OPERATOR_POOLS_SETTLE": "500ms",
}
"""An operator's environment: pools on, its patience short."""


POD_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "image": (
        {"containerStatuses": [{"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
          "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]},
        "ImagePullBackOff: Back-off pulling image",
    ),
    "no node": (
        {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                         "message": "0/1 nodes are available"}]},
        "no node takes it: 0/1 nodes are available",
    ),
}  # fmt: skip
"""What a kubelet or the scheduler says of a pod that cannot start, and what waiting nodes say then."""


class PoolSite:
    """The pools of a site's namespace."""

    def __init__(self, site: ClusterSite) -> None:
        self.site = site

    def start_operator(self, name: str = "operator", **told: str) -> subprocess.Popen[bytes]:
        """Start an operator that keeps pools."""
        further = {f"AGENTRUN_OPERATOR_POOLS_{field}": value for field, value in told.items()}
        return self.site.start_operator(name=name, environment=QUICK | further)

    def deployments(self) -> list[dict[str, Any]]:
        """Return the pools' Deployments, by name."""
        found = self.site.find_all("deployments", "-l", "agentrun.dev/pool")
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    def wait_for_pool(self, replicas: int | None = None, queue: str = "shared", within: float = 30) -> dict[str, Any]:
        """Wait until a pool exists, with so many replicas if they are given, and return its Deployment."""
        self.site.until(
            lambda: any(replicas is None or one["spec"]["replicas"] == replicas for one in self._of(queue)),
            within,
            lambda: f"pool {queue} with {replicas} replicas: {self._of(queue)}",
        )
        return self._of(queue)[0]

    def pods(self, count: int, queue: str = "shared") -> list[dict[str, Any]]:
        """Wait until so many of a pool's pods exist, and return them."""

        def find() -> list[dict[str, Any]]:
            found = self.site.find_all("pods", "-l", f"agentrun.dev/pool={queue}")
            return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

        self.site.until(lambda: len(find()) == count, 30, lambda: f"{count} pods of {queue}: {find()}")
        return find()

    def set_status(self, pod: dict[str, Any], **status: Any) -> None:
        """Say of a pod what its kubelet or the scheduler would."""
        path = f"/api/v1/namespaces/{self.site.namespace}/pods/{pod['metadata']['name']}"
        fresh = json.loads(self.site.kubectl("get", "--raw", path, inside=False))
        fresh["status"] = {**fresh.get("status", {}), **status}
        self.site.kubectl("replace", "--raw", f"{path}/status", "-f", "-", stdin=json.dumps(fresh), inside=False)

    def run_pod(self, pod: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Be the kubelet: start the pod's worker as a process, with the environment that the pod says, and say so."""
        (container,) = pod["spec"]["containers"]
        environment = {one["name"]: self._value_of(one, pod) for one in container["env"]}
        for name in ("LISTEN", "SECRETS_DIRECTORY"):
            # Its address and its mounts are the pod's own.
            environment.pop(f"AGENTRUN_WORKER_{name}", None)
        name = str(pod["metadata"]["name"])
        process = self.site.start_process(
            name,
            ["-m", "agentrun_worker", *container["command"][1:], "--import-path", str(self.site.folder / "tools")],
            {key: value for key, value in environment.items() if key.startswith("AGENTRUN_")},
        )
        ready = [{"type": "Ready", "status": "True"}]
        self.set_status(pod, phase="Running", conditions=ready)
        return process

    def _value_of(self, variable: dict[str, Any], pod: dict[str, Any]) -> str:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable["value"])
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "metadata.name"
            return str(pod["metadata"]["name"])
        asked = source["secretKeyRef"]
        return base64.b64decode(self.site.get("secret", asked["name"])["data"][asked["key"]]).decode()

    def _of(self, queue: str) -> list[dict[str, Any]]:
        return [one for one in self.deployments() if one["metadata"]["labels"]["agentrun.dev/pool"] == queue]
