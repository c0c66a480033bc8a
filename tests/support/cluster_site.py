"""What a test does on a real cluster: a namespace, operators and workers as processes, kubectl for everything else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from support.kube_namespace import KubeNamespace
from support.ledger_server import LedgerServer


class ClusterSite(KubeNamespace):
    """One namespace of the cluster under test and the processes that serve it."""

    def __init__(self, kubeconfig: Path, ledger: LedgerServer, folder: Path) -> None:
        super().__init__(kubeconfig)
        self.ledger = ledger
        self.folder = folder
        self.effects = folder / "effects.log"
        """One line for each call that a tool really made."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._named: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._write_tools()

    # --- processes

    def start_operator(
        self,
        *arguments: str,
        name: str = "operator",
        lease_namespace: str | None = None,
        lease: str = "4s",
        kubeconfig: Path | None = None,
        redis: str = "",
        install: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[bytes]:
        """Start an operator for this namespace; two of different names compete for the lead.

        It serves with the site's own kubeconfig, ledger and install unless others are named.
        """
        serve = ["operator", "run", "--kubeconfig", str(kubeconfig or self.kubeconfig), "--namespace", self.namespace]
        told = {
            "LEASE_NAMESPACE": lease_namespace or self.namespace,
            "LEASE_DURATION": lease,
            "IDENTITY": name,
            "SWEEP_EVERY": "5s",
        }
        return self._start(
            name,
            [
                *("-m", "agentrun.cli", *serve),
                *("--install", install or self.namespace, "--redis", redis or self.ledger.url, *arguments),
            ],
            {**{f"AGENTRUN_OPERATOR_{field}": value for field, value in told.items()}, **environment},
        )

    def start_told_operator(
        self, told: Mapping[str, str], kubeconfig: Path, name: str = "operator"
    ) -> subprocess.Popen[bytes]:
        """Start an operator that is told everything by its environment, but for the kubeconfig."""
        return self._start(name, ["-m", "agentrun.cli", "operator", "run", "--kubeconfig", str(kubeconfig)], told)

    def start_worker(self, *arguments: str, name: str = "worker") -> subprocess.Popen[bytes]:
        """Start a worker of the pool ``shared`` in this namespace; its tools are :meth:`_write_tools`'."""
        return self._start(
            name,
            [
                "-m",
                "agentrun_worker",
                "run",
                "--namespace",
                self.namespace,
                "--install",
                self.namespace,
                "--redis",
                self.ledger.url,
                "--import-path",
                str(self.folder / "tools"),
                *arguments,
            ],
        )

    def start_process(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a Python process that is told everything by its environment."""
        return self._start(name, arguments, environment)

    def running(self, name: str) -> list[subprocess.Popen[bytes]]:
        """Return the processes of this name that have not ended."""
        return [process for process in self._named.get(name, ()) if process.poll() is None]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process with SIGKILL."""
        process.kill()
        process.wait()

    def terminate(self, process: subprocess.Popen[bytes], within: float = 40) -> int:
        """Ask a process to end in order and return its exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(within)

    def log(self, name: str) -> str:
        """Return what a process has logged."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        """End everything that was started, and remove the namespace."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self.remove()

    # --- tools

    def apply_tools(self, text: str) -> None:
        """Apply Python tools, one ``name: {further spec}`` a line; each calls the function of its name."""
        for name, spec in json.loads(text).items():
            manifest = {
                "apiVersion": "agentrun.dev/v1alpha1",
                "kind": "AgentTool",
                "metadata": {"name": name},
                "spec": {"type": "python", "python": {"entryPoint": f"cluster_tools:{name}"}, **spec},
            }
            self.apply(json.dumps(manifest))

    def effects_of(self, call: str) -> int:
        """Return how often a tool really did something under this word."""
        lines = self.effects.read_text().splitlines() if self.effects.exists() else []
        return lines.count(call)

    def tell_all(self) -> str:
        """Return the end of every log."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))

    # --- inside

    def _start(
        self, name: str, arguments: list[str], environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "EFFECTS": str(self.effects), **environment},
                start_new_session=True,
            )
        self._processes.append(process)
        self._named.setdefault(name, []).append(process)
        return process

    def _write_tools(self) -> None:
        folder = self.folder / "tools"
        folder.mkdir()
        (folder / "cluster_tools.py").write_text(
            textwrap.dedent(
                '''
                """Tools of the cluster tests: each call that does something leaves a line."""

                import os
                import time


                def note(word):
                    with open(os.environ["EFFECTS"], "a") as file:
                        file.write(f"{word}\\n")


                def act(word: str, seconds: float = 0) -> dict:
                    note(word)
                    time.sleep(float(seconds))
                    return {"did": word}


                def read(word: str = "", seconds: float = 0) -> dict:
                    time.sleep(float(seconds))
                    return {"text": word}


                def fail(word: str = "") -> dict:
                    raise ValueError(word)
                '''
            )
        )
