"""A control plane with one node beside it: scheduler, kube-proxy, containerd and kubelet as processes, pods for real.

Runs as root in a network, mount and process namespace of its own (tests/node/run makes them): its bridge, addresses,
iptables, mounts and containers are nobody else's, nothing reaches another machine, and all of it goes with the
namespace. Which images there are is the caller's matter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from own_node.name_server import NameServer
from support.control_plane import SERVICES, ControlPlane, ControlPlaneStartError

ADDRESS = "10.244.0.1"
"""The node's, on its bridge: the API server and the names of Services are found there."""
PAUSE_IMAGE = "registry.local/pause:1"
_NAME = "node1"
_BRIDGE = "agentrun0"
_PODS = "10.244.0.0/24"
_FIRST_POD = "10.244.0.10"
_READY_SECONDS = 90.0
_DISKS = 24


class Node(ControlPlane):
    """One cluster of one node; a context manager that leaves nothing behind."""

    def __init__(self, assets: Path) -> None:
        super().__init__(assets, ADDRESS)
        self._cgroup = f"agentrun-{self.folder.name.rpartition('-')[2]}"
        self._names: NameServer | None = None

    @property
    def socket(self) -> Path:
        """Return where containerd listens."""
        return self.folder / "containerd.sock"

    def start(self) -> None:
        """Start every part and return once the node is ready. Raises :class:`ControlPlaneStartError`."""
        _make_bridge()
        super().start()
        self._names = NameServer(ADDRESS, self.kubeconfig)
        self._names.start()
        self.start_part("kube-scheduler")
        self._write_node_files()
        self.start_part("containerd")
        self._until(lambda: self._ctr("version").returncode == 0, "containerd did not answer")

    def join(self) -> None:
        """Let the kubelet take pods, once the images are there, and return when the node is ready."""
        _make_cgroups(self._cgroup)
        self.start_part("kubelet")
        self._until(self._is_ready, "the node did not become ready")
        # It asks once for the node's address.
        self.start_part("kube-proxy")
        self._make_disks()

    def load_images(self, archives: Iterable[Path]) -> None:
        """Load images out of docker archives."""
        for archive in archives:
            done = self._ctr("images", "import", str(archive))
            if done.returncode:
                raise ControlPlaneStartError(f"{archive}: {done.stderr.decode()}")

    def stop(self) -> None:
        """End every part, pods first, and remove the data. Safe to call twice."""
        if "kubelet" in self._processes:
            self.kill_part("kubelet")
        if "containerd" in self._processes:
            self._end_containers()
        super().stop()
        if self._names is not None:
            self._names.stop()
            self._names = None
        _remove_cgroups(self._cgroup)

    def _end_containers(self) -> None:
        running = self._ctr("tasks", "ls", "--quiet").stdout.decode().split()
        for name in running:
            self._ctr("tasks", "kill", "--signal", "SIGKILL", name)
        deadline = time.monotonic() + 10
        while b"RUNNING" in self._ctr("tasks", "ls").stdout and time.monotonic() < deadline:
            time.sleep(0.1)
        # What the kubelet mounted outlives it, and keeps the folder from being removed.
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for target in sorted((path for path in mounted if path.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", target], capture_output=True, check=False)

    def _arguments(self, name: str) -> list[str]:
        match name:
            case "kube-apiserver":
                return [
                    *super()._arguments(name),
                    "--allow-privileged",
                    "--kubelet-preferred-address-types=InternalIP",
                ]
            case "kube-scheduler":
                return [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"]
            case "kube-proxy":
                return [
                    f"--kubeconfig={self.kubeconfig}",
                    "--proxy-mode=iptables",
                    f"--cluster-cidr={_PODS}",
                    f"--hostname-override={_NAME}",
                    # A pod that reaches its own bridge through a Service: the answer must come back this way.
                    "--masquerade-all",
                    # These are the machine's, not the namespace's.
                    "--conntrack-max-per-core=0",
                    "--conntrack-tcp-timeout-established=0",
                    "--conntrack-tcp-timeout-close-wait=0",
                ]
            case "containerd":
                return ["--config=containerd.toml"]
            case "kubelet":
                return [
                    "--config=kubelet.json",
                    f"--kubeconfig={self.kubeconfig}",
                    "--container-runtime=remote",
                    f"--container-runtime-endpoint=unix://{self.socket}",
                    f"--hostname-override={_NAME}",
                    f"--node-ip={ADDRESS}",
                    f"--root-dir={self.folder}/kubelet",
                    f"--cert-dir={self.folder}/kubelet-certificates",
                ]
            case _:
                return super()._arguments(name)

    def _write_node_files(self) -> None:
        network = {
            "cniVersion": "0.4.0",
            "name": "agentrun",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": _BRIDGE,
                    "isGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": f"{self.folder}/addresses",
                        "ranges": [[{"subnet": _PODS, "rangeStart": _FIRST_POD}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
        (self.folder / "network").mkdir()
        (self.folder / "network" / "10-bridge.conflist").write_text(json.dumps(network))
        # A root without CAP_SYS_RESOURCE may set no negative score.
        (self.folder / "containerd.toml").write_text(
            f"""
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.folder}/network"
"""
        )
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "failSwapOn": False,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": ADDRESS,
            "clusterDomain": "cluster.local",
            "clusterDNS": [ADDRESS],
            "resolvConf": "",
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "10s",
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
        }
        (self.folder / "kubelet.json").write_text(json.dumps(kubelet))

    def _make_disks(self) -> None:
        """Offer folders of this machine as volumes to whoever claims one: no provisioner runs here."""
        disks = []
        for at in range(_DISKS):
            folder = self.folder / "disks" / f"disk-{at}"
            folder.mkdir(parents=True)
            # The group of a pod is not given to folders of the machine.
            folder.chmod(0o777)
            disks.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"disk-{at}"},
                    "spec": {
                        "capacity": {"storage": "8Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "hostPath": {"path": str(folder), "type": "Directory"},
                    },
                }
            )
        self._kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": disks}))

    def _is_ready(self) -> bool:
        said = self._kubectl("get", "node", _NAME, "-o", "json", check=False)
        conditions = json.loads(said)["status"]["conditions"] if said else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise ControlPlaneStartError(done.stderr)
        return done.stdout

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, timeout=300, check=False)

    def _until(self, holds: object, complaint: str) -> None:
        assert callable(holds)
        deadline = time.monotonic() + _READY_SECONDS
        while not holds():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ControlPlaneStartError(f"{name} ended:\n{self._end_of_log(name)}")
            if time.monotonic() > deadline:
                logs = "\n".join(f"== {name}\n{self._end_of_log(name)}" for name in self._processes)
                raise ControlPlaneStartError(f"{complaint}:\n{logs}")
            time.sleep(0.5)


def _make_bridge() -> None:
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", _BRIDGE, "type", "bridge"],
        ["ip", "addr", "add", f"{ADDRESS}/24", "dev", _BRIDGE],
        ["ip", "link", "set", _BRIDGE, "up"],
        # Without a way there at all, what the machine itself sends to a Service ends before kube-proxy's rules.
        ["ip", "route", "add", SERVICES, "dev", _BRIDGE],
    ):
        subprocess.run(command, check=True, capture_output=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _hierarchies() -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").iterdir() if path.is_dir() and not path.is_symlink()]


def _make_cgroups(name: str) -> None:
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        # A new group of cpuset has neither processors nor memory until it is given some.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (group / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())


def _remove_cgroups(name: str) -> None:
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                # Something in it still ends; an empty group costs nothing.
                continue


def find_missing_programs() -> list[str]:
    """Return the programs that a node needs and this machine does not have."""
    return [name for name in ("ctr", "containerd", "runc", "iptables", "ip", "kubectl") if shutil.which(name) is None]
