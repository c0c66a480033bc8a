"""A Kubernetes control plane of the tests' own: etcd, API server and controller manager as processes on loopback.

Each part can be killed and started again. No kubelet: nothing here runs pods.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
SERVICES = "10.96.0.0/16"
"""The addresses of Services."""
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_MANAGER = "kube-controller-manager"


class ControlPlaneStartError(Exception):
    """A part did not start; the message holds the end of its log."""


class ControlPlane:
    """One control plane with its data in a temporary folder; a context manager that leaves nothing behind."""

    def __init__(self, assets: Path, address: str = "127.0.0.1") -> None:
        """``address``: where the API server listens."""
        self._assets = assets
        self._address = address
        self.folder = Path(tempfile.mkdtemp(prefix="agentrun-cluster-"))
        self._token = secrets.token_hex(16)
        self._ports = _free_ports(3)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubeconfig(self) -> Path:
        """Return the path of an administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def start(self) -> None:
        """Start every part and return once the API server is ready. Raises :class:`ControlPlaneStartError`."""
        self._write_files()
        self.start_part("etcd")
        self.start_part("kube-apiserver")
        self._wait_until_ready()
        if (self._assets / _MANAGER).exists():
            self.start_part(_MANAGER)

    def start_part(self, name: str) -> None:
        """Start one part, or start it again."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._binary(name), *self._arguments(name)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def kill_part(self, name: str) -> None:
        """End one part with SIGKILL, as a crash would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def copy_data(self, target: Path) -> None:
        """Copy all objects as they are now, as a backup would; etcd and API server are away meanwhile."""
        self._without_server(lambda: shutil.copytree(self.folder / "etcd", target))

    def restore_data(self, source: Path) -> None:
        """Put all objects back to what they were at a copy; etcd and API server are away meanwhile."""

        def restore() -> None:
            shutil.rmtree(self.folder / "etcd")
            shutil.copytree(source, self.folder / "etcd")

        self._without_server(restore)

    def _without_server(self, work: Callable[[], object]) -> None:
        for name in ("kube-apiserver", "etcd"):
            self.kill_part(name)
        work()
        for name in ("etcd", "kube-apiserver"):
            self.start_part(name)
        self._wait_until_ready()

    def signal_part(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one part: SIGSTOP has it stand still, as a long pause of its machine would."""
        self._processes[name].send_signal(number)

    def wait_until_ready(self) -> None:
        """Wait until the API server answers again. Raises :class:`ControlPlaneStartError`."""
        self._wait_until_ready()

    def stop(self) -> None:
        """End every part and remove the data. Safe to call twice."""
        # The last to start is the first to end: the store outlives all that write to it.
        for name in reversed(list(self._processes)):
            process = self._processes.pop(name)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _binary(self, name: str) -> str:
        own = self._assets / name
        found = str(own) if own.exists() else shutil.which(name)
        if found is None:
            raise ControlPlaneStartError(f"{name} is neither in {self._assets} nor on PATH")
        return found

    def _arguments(self, name: str) -> list[str]:
        etcd, peer, api = self._ports
        match name:
            case "etcd":
                return [
                    f"--data-dir={self.folder}/etcd",
                    f"--listen-client-urls=http://127.0.0.1:{etcd}",
                    f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                    f"--listen-peer-urls=http://127.0.0.1:{peer}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                    f"--initial-cluster=default=http://127.0.0.1:{peer}",
                    # The tests' data is thrown away: a flushed disk would only slow every write down.
                    "--unsafe-no-fsync",
                ]
            case "kube-apiserver":
                return [
                    f"--etcd-servers=http://127.0.0.1:{etcd}",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    "--service-account-key-file=service-accounts.pub",
                    "--service-account-signing-key-file=service-accounts.key",
                    "--token-auth-file=tokens.csv",
                    "--authorization-mode=RBAC",
                    "--cert-dir=certificates",
                    f"--secure-port={api}",
                    f"--bind-address={self._address}",
                    f"--advertise-address={self._address}",
                    f"--service-cluster-ip-range={SERVICES}",
                    "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                ]
            case _:
                # Old releases open a second, fixed port as well, unless they are told not to; new ones know no such flag.
                said = subprocess.run([self._binary(name), "--help"], capture_output=True, text=True, check=True).stdout
                return [
                    f"--kubeconfig={self.kubeconfig}",
                    "--service-account-private-key-file=service-accounts.key",
                    "--use-service-account-credentials",
                    "--root-ca-file=certificates/apiserver.crt",
                    "--secure-port=0",
                    # There is one of it; one that gives up its lead while the API server is away would end.
                    "--leader-elect=false",
                    *(["--port=0"] if "--port int" in said else []),
                ]

    def _write_files(self) -> None:
        key = self.folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        subprocess.run(
            ["openssl", "rsa", "-in", key, "-pubout", "-out", key.with_suffix(".pub")], check=True, capture_output=True
        )
        (self.folder / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')
        self.kubeconfig.write_text(self.kubeconfig_for(self._token))

    def kubeconfig_for(self, token: str) -> str:
        """Return the text of a kubeconfig for the user whom the API server knows by this token."""
        server = f"https://{self._address}:{self._ports[2]}"
        return (
            "apiVersion: v1\nkind: Config\n"
            f'clusters: [{{name: local, cluster: {{server: "{server}", insecure-skip-tls-verify: true}}}}]\n'
            f"users: [{{name: user, user: {{token: {token}}}}}]\n"
            "contexts: [{name: local, context: {cluster: local, user: user}}]\n"
            "current-context: local\n"
        )

    def _wait_until_ready(self) -> None:
        context = ssl._create_unverified_context()
        request = urllib.request.Request(
            f"https://{self._address}:{self._ports[2]}/readyz", headers={"Authorization": f"Bearer {self._token}"}
        )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if name != _MANAGER and process.poll() is not None:
                    raise ControlPlaneStartError(f"{name} ended:\n{self._end_of_log(name)}")
            try:
                with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                    if answer.status == 200:
                        self._revive_manager()
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.2)
        raise ControlPlaneStartError(f"the API server did not become ready:\n{self._end_of_log('kube-apiserver')}")

    def _revive_manager(self) -> None:
        """Start the controller manager again, as a kubelet does, if it has ended because the API server was away."""
        manager = self._processes.get(_MANAGER)
        if manager is not None and manager.poll() is not None:
            self.start_part(_MANAGER)

    def _end_of_log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]


def find_assets() -> Path | None:
    """Return the folder of the control plane's binaries on this machine, or None."""
    named = os.environ.get(ASSETS_VARIABLE)
    caches = [Path("/var/cache"), Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")]
    folders = [Path(named)] if named else [cache / "agentrun" / "kubernetes-1.20.2" for cache in caches]
    return next((folder for folder in folders if (folder / "kube-apiserver").exists()), None)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def install_custom_resources(kubeconfig: Path) -> None:
    """Apply the product's definitions and wait until they are served."""
    kubectl = ["kubectl", "--kubeconfig", str(kubeconfig)]
    folder = Path(__file__).parents[2] / "crds"
    subprocess.run([*kubectl, "apply", "--validate=false", "-f", str(folder)], check=True, stdout=sys.stderr)
    wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]
    subprocess.run([*kubectl, *wait], check=True, stdout=sys.stderr)
