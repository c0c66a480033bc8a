"""One namespace of a cluster, by kubectl: what a test applies there, finds there and waits for."""

from __future__ import annotations

import json
import secrets
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TERMINAL = {"Succeeded", "Failed", "Cancelled", "Rejected", "Dead"}
PATIENCE = 60.0


class KubeNamespace:
    """A namespace that is made for one test."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = f"t-{secrets.token_hex(4)}"
        self.kubectl("create", "namespace", self.namespace, inside=False)

    def remove(self) -> None:
        """Have the namespace deleted; does not wait for it."""
        self.kubectl("delete", "namespace", self.namespace, "--wait=false", inside=False, check=False)

    def kubectl(self, *arguments: str, stdin: str = "", inside: bool = True, check: bool = True) -> str:
        """Run kubectl and return its output; raises AssertionError with its message."""
        where = ["--namespace", self.namespace] if inside else []
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *where, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def apply(self, text: str) -> None:
        """Apply manifests."""
        self.kubectl("apply", "-f", "-", stdin=textwrap.dedent(text))

    def apply_run(self, name: str, nodes: list[dict[str, Any]], **spec: Any) -> None:
        """Apply a run."""
        self.apply(self.manifest(name, nodes, **spec))

    @staticmethod
    def manifest(name: str, nodes: list[dict[str, Any]], **spec: Any) -> str:
        """Return a run's manifest."""
        return json.dumps(
            {
                "apiVersion": "agentrun.dev/v1alpha1",
                "kind": "AgentRun",
                "metadata": {"name": name},
                "spec": {"intent": "test", "nodes": nodes, **spec},
            }
        )

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object; empty when there is none."""
        found = self.kubectl("get", kind, name, "-o", "json", check=False)
        return json.loads(found) if found else {}

    def find_all(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Return all objects of a kind."""
        return list(json.loads(self.kubectl("get", kind, "-o", "json", *arguments))["items"])

    def nodes(self, run: str) -> dict[str, dict[str, Any]]:
        """Return the statuses of a run's nodes by path."""
        uid = self.get("agentrun", run)["metadata"]["uid"]
        found = self.find_all("agentnode", "-l", f"agentrun.dev/run-uid={uid}")
        return {node["spec"]["path"]: node.get("status", {}) for node in found}

    def phase(self, run: str) -> str:
        """Return a run's phase."""
        return str(self.get("agentrun", run).get("status", {}).get("phase", ""))

    def wait_ended(self, run: str, within: float = PATIENCE) -> dict[str, Any]:
        """Wait until a run has ended and return its status."""
        self.until(lambda: self.phase(run) in TERMINAL, within, lambda: f"run {run}: {self.get('agentrun', run)}")
        return dict(self.get("agentrun", run)["status"])

    def until(self, holds: Callable[[], bool], within: float = PATIENCE, say: Callable[[], str] = lambda: "") -> None:
        """Wait until something can be seen; raises AssertionError with the logs."""
        deadline = time.monotonic() + within
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within} s: {say()}\n{self.tell_all()}")
            time.sleep(0.1)

    def tell_all(self) -> str:
        """Return what whoever looks for the cause of a failed wait wants to see."""
        return ""
