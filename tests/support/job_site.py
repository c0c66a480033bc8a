"""Jobs on a cluster under test that runs no pods: stands in for the kubelet, with workers as processes of this machine."""

from __future__ import annotations

import subprocess
from typing import Any

from support.pool_site import PoolSite

QUICK = {
    "AGENTRUN_OPERATOR_JOBS_ENABLED": "true",
    "AGENTRUN_OPERATOR_POOLS_IMAGE": "worker.example/agentrun:1",
}


class JobSite(PoolSite):
    """The Jobs of a site's namespace."""

    def start_operator(self, name: str = "operator", **told: str) -> subprocess.Popen[bytes]:
        """Start an operator that makes Jobs, and keeps no pools."""
        further = {f"AGENTRUN_OPERATOR_{field}": value for field, value in told.items()}
        return self.site.start_operator(name=name, environment=QUICK | further)

    def jobs(self) -> list[dict[str, Any]]:
        """Return the Jobs that are not being deleted, the oldest first."""
        found = [one for one in self.site.find_all("jobs") if "deletionTimestamp" not in one["metadata"]]
        return sorted(found, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))

    def wait_for_pods(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many pods of Jobs have not ended, and return them."""

        def find() -> list[dict[str, Any]]:
            found = self.site.find_all("pods", "-l", "agentrun.dev/job")
            return [
                pod
                for pod in found
                if "deletionTimestamp" not in pod["metadata"]
                and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            ]

        self.site.until(lambda: len(find()) == count, 40, lambda: f"{count} pods of Jobs: {find()}")
        return find()

    def note_end(self, pod: dict[str, Any], process: subprocess.Popen[bytes], within: float = 40) -> int:
        """Be the kubelet: wait until the pod's process has ended, and say how."""
        code = process.wait(within)
        self.say_ended(pod, code)
        return code

    def say_ended(self, pod: dict[str, Any], code: int, **more: Any) -> None:
        """Say that a pod's container has ended."""
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        container = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        self.set_status(
            pod,
            phase="Succeeded" if code == 0 else "Failed",
            conditions=[{"type": "Ready", "status": "False"}],
            containerStatuses=[{**container, "state": {"terminated": ended}}],
            **more,
        )
