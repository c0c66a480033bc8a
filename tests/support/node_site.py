"""The product on a cluster whose nodes run pods: a release of the chart, and namespaces with a business system in each.

The images are those of tests/node/build-images, which the nodes must have already. Everything here is asked of the API
server, so a cluster on this machine and one elsewhere are the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.helm import OPERATOR_CHART, Helm, merged
from support.kube_namespace import KubeNamespace

RELEASE = "agentrun"
FULL = "agentrun-agentrun-operator"
PULLED_AND_STARTED = 120.0
_RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
_SMALL = {"cpu": "20m", "memory": "64Mi"}


class NodeRelease(KubeNamespace):
    """One release of the operator's chart in a namespace of its own, with two operators and the bundled Valkey."""

    def __init__(self, kubeconfig: Path, helm: Helm) -> None:
        super().__init__(kubeconfig)
        self._helm = helm
        # Where the server knows it, a pod that is not hardened is refused.
        self.kubectl("label", "namespace", self.namespace, _RESTRICTED, inside=False)

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm in this namespace."""
        where = ["--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace]
        given = ["--values", "-"] if values is not None else []
        return self._helm.run(*arguments, *where, *given, stdin=json.dumps(values or {}))

    def values(self, *further: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tests' values: their images, little patience, little memory."""
        return merged(
            {
                "install": self.namespace,
                # By kubectl: what old servers do not know of them, helm would refuse.
                "crds": {"enabled": False},
                "pod": {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}},
                "valkey": {"image": {"repository": "node-ledger", "tag": "1"}, "memory": "128Mi", "cpu": "50m"},
                "pools": {
                    "image": {"repository": "node-tools", "tag": "1"},
                    "scaleDownAfter": "4s",
                    "deleteAfter": "10m",
                    "settle": "1s",
                    "graceMargin": "5s",
                    "resources": {"requests": {"cpu": "50m", "memory": "96Mi", "ephemeral-storage": "16Mi"}},
                },
                "scheduler": {"leaseDuration": "6s", "sweepEvery": "10s"},
                "webhook": {"look": "2s", "certificates": {"settle": "2s"}},
            },
            *further,
        )

    def install(self, *further: Mapping[str, Any]) -> None:
        """Install the chart and wait until every pod is ready."""
        self.helm("install", RELEASE, str(OPERATOR_CHART), values=self.values(*further))
        self.wait_ready()

    def upgrade(self, *further: Mapping[str, Any]) -> None:
        """Upgrade the release and wait until every pod is the new one and ready."""
        self.helm("upgrade", RELEASE, str(OPERATOR_CHART), values=self.values(*further))
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until operators and ledger are as the release says."""
        for name in (f"statefulset/{FULL}-valkey", f"deployment/{FULL}"):
            try:
                self.kubectl("rollout", "status", name, f"--timeout={PULLED_AND_STARTED:.0f}s")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.tell_all()}") from error
        # Behind it stands the authority that API servers trust: before that they refuse every approval.
        self.until(
            lambda: bool(self._hook().get("webhooks", [{}])[0].get("clientConfig", {}).get("caBundle")),
            say=lambda: "no caBundle was written",
        )

    def operators(self) -> list[dict[str, Any]]:
        """Return the operators' pods that are not told to end."""
        found = self.find_all("pods", "-l", "app.kubernetes.io/component=operator")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> str:
        """Return the identity of the leader: it begins with its pod's name."""
        return str(self.get("lease", f"{self.namespace}-operator").get("spec", {}).get("holderIdentity", ""))

    def tell_all(self) -> str:
        """Return what operators and ledger say, and what the cluster says of them."""
        logs = self.kubectl("logs", "-l", "app.kubernetes.io/component=operator", "--tail=40", "--prefix", check=False)
        return "\n".join([self.kubectl("describe", "pods", check=False)[-6000:], logs])

    def close(self) -> None:
        """Uninstall the release and remove the namespace."""
        self.helm("uninstall", RELEASE, "--ignore-not-found")
        self.remove()

    def _hook(self) -> dict[str, Any]:
        return self.get("validatingwebhookconfiguration", f"{self.namespace}.{FULL}")


class NodeSite(KubeNamespace):
    """One namespace that a release serves, with a provider: a business system that counts what it was asked to do."""

    def __init__(self, kubeconfig: Path, release: NodeRelease) -> None:
        super().__init__(kubeconfig)
        self.release = release
        self.kubectl("label", "namespace", self.namespace, _RESTRICTED, inside=False)

    # --- the provider

    def start_provider(self) -> None:
        """Start the business system and wait until it answers."""
        self.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [_PROVIDER_POD, _PROVIDER_SERVICE]}))
        self.kubectl("wait", "--for=condition=Ready", "pod/provider", f"--timeout={PULLED_AND_STARTED:.0f}s")

    def use_provider_of(self, other: NodeSite) -> None:
        """Have this namespace's tools find another's business system: under the same name, and kept when this one goes."""
        address = {"ip": other.get("pod", "provider")["status"]["podIP"]}
        endpoints = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "provider"},
            "subsets": [{"addresses": [address], "ports": [{"port": 8000}]}],
        }
        service = {**_PROVIDER_SERVICE, "spec": {"ports": [{"port": 8000}]}}
        self.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, endpoints]}))

    def ask(self, path: str) -> dict[str, Any]:
        """Ask the provider for something: ``counts``, ``release/<word>``."""
        where = f"/api/v1/namespaces/{self.namespace}/pods/provider:8000/proxy/{path}"
        return dict(json.loads(self.kubectl("get", "--raw", where, inside=False)))

    def did(self, word: str) -> int:
        """Return how often the provider did something under a word."""
        return int(self.ask("counts")["did"].get(word, 0))

    # --- tools and runs

    def apply_tool(self, name: str, function: str = "", **spec: Any) -> None:
        """Apply a Python tool that calls a function of node_tools, the one of its name unless another is given.

        With ``type`` among its fields it is whatever they say.
        """
        python = {"type": "python", "python": {"entryPoint": f"node_tools:{function or name}"}}
        call = {} if "type" in spec else python
        self.apply(
            json.dumps(
                {
                    "apiVersion": "agentrun.dev/v1alpha1",
                    "kind": "AgentTool",
                    "metadata": {"name": name},
                    "spec": {**call, **spec},
                }
            )
        )

    def wait_messages(self, run: str) -> str:
        """Return what a run says it waits for, and what would end that."""
        waits = self.get("agentrun", run).get("status", {}).get("waits", [])
        return "\n".join(f"{wait['waitingFor']}: {wait.get('message', '')}" for wait in waits)

    # --- workers

    def pool(self, queue: str = "shared") -> dict[str, Any]:
        """Return the Deployment of a pool; empty where there is none. A queue with a dot is found by what stands before it."""
        found = self.find_all("deployments", "-l", "agentrun.dev/pool")
        named = [one for one in found if one["metadata"]["labels"]["agentrun.dev/pool"].partition(".")[0] == queue]
        return named[0] if named else {}

    def replicas(self, queue: str = "shared") -> int:
        """Return how many workers a pool is to have; -1 where there is no pool."""
        return int(self.pool(queue).get("spec", {}).get("replicas", -1))

    def workers(self) -> list[dict[str, Any]]:
        """Return the workers' pods that are not told to end, by name."""
        found = self.find_all("pods", "-l", "agentrun.dev/pool")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def tell_all(self) -> str:
        """Return what runs, nodes and pods of this namespace say, and what the release says."""
        objects = self.kubectl("get", "agentruns,agentnodes,deployments,pods", "-o", "wide", check=False)
        nodes = json.dumps([node.get("status", {}) for node in self.find_all("agentnode")])[-6000:]
        pods = self.kubectl("describe", "pods", check=False)[-6000:]
        logs = self.kubectl("logs", "-l", "agentrun.dev/pool", "--tail=40", "--prefix", check=False)
        return "\n".join([objects, nodes, pods, logs, self.release.tell_all()])

    def close(self) -> None:
        """Remove the namespace."""
        self.remove()


_HARDENED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_PROVIDER_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "provider", "labels": {"app": "provider"}},
    "spec": {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "provider",
                "image": "node-tools:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["python", "/tools/node_provider.py"],
                "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
                "resources": {"requests": _SMALL, "limits": {"cpu": "500m", "memory": "128Mi"}},
                "securityContext": _HARDENED,
            }
        ],
    },
}
_PROVIDER_SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "provider"},
    "spec": {"selector": {"app": "provider"}, "ports": [{"port": 8000}]},
}
