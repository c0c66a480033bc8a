"""Everything that one part is measured on: a control plane, a ledger, one operator and one worker process."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench_cluster.api import Api, collection, work_off
from bench_cluster.manifests import build_tool, build_tree
from bench_cluster.process_use import ProcessUse, find_children, read_use
from bench_cluster.server_metrics import WRITES, Counts, difference, read_counts, writes_by_kind
from support.control_plane import ControlPlane, install_custom_resources
from support.ledger_server import DURABLE, LedgerServer

REPOSITORY = Path(__file__).parents[2]
INSTALL = "bench"
TERMINAL = frozenset({"Succeeded", "Failed", "Cancelled", "Rejected", "Dead"})
_LOOK_SECONDS = 0.25
_SCRAPE_SECONDS = 2.0
_START_SECONDS = 120.0
_PARTS = ("kube-apiserver", "etcd", "kube-controller")
_STOP_SECONDS = 60.0
_SUBMITTERS = 32


class NotReachedError(Exception):
    """What a part waits for did not come within its time."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was used and counted up to one moment."""

    at: float
    use: Mapping[str, ProcessUse]
    requests: Counts
    operator_requests: Counts
    bench_writes: Counter[str] = field(default_factory=Counter)


class Site:
    """The processes of one part; made by :func:`open_site`."""

    def __init__(self, plane: ControlPlane, ledger: LedgerServer, api: Api, folder: Path) -> None:
        self.plane = plane
        self.ledger = ledger
        self.api = api
        self.folder = folder
        self.clock = folder / "clock.tsv"
        self.operator: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._started: list[subprocess.Popen[bytes]] = []

    # --- processes

    def start_operator(
        self, settings: Mapping[str, str] = MappingProxyType({}), module: str = "agentrun.cli", name: str = "operator"
    ) -> subprocess.Popen[bytes]:
        """Start an operator of all namespaces; the newest is the one whose metrics are read."""
        self._port = _find_free_port()
        serve = ["operator", "run", "--kubeconfig", str(self.plane.kubeconfig), "--install", INSTALL]
        listen = ["--listen", f"127.0.0.1:{self._port}", "--log-level", "warning"]
        own = {"AGENTRUN_OPERATOR_LEASE_NAMESPACE": "default", "AGENTRUN_OPERATOR_IDENTITY": secrets.token_hex(4)}
        arguments = ["-m", module, *serve, *listen, "--redis", self.ledger.url]
        self.operator = self._start(name, arguments, {**own, **settings})
        return self.operator

    def start_worker(self, namespaces: Iterable[str], slots: int) -> None:
        """Start the worker process: so many slots in each of these namespaces."""
        arguments = ["-m", "bench_cluster.worker_host", self.ledger.url, INSTALL, str(slots), *namespaces]
        self.worker = self._start("worker", arguments, {"BENCH_CLOCK": str(self.clock)})

    def stop(self, process: subprocess.Popen[bytes] | None) -> None:
        """End a process in order."""
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End everything that was started."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, name: str, arguments: list[str], settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")])
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, **settings},
                start_new_session=True,
            )
        self._started.append(process)
        return process

    # --- objects

    async def prepare(self, namespace: str, *tools: dict[str, Any], new: bool = True) -> None:
        """Create a namespace with tools in it; without any: the tool ``stamp``."""
        if new:
            await self.api.create_namespace(namespace)
        for tool in tools or (build_tool("stamp"),):
            await self.api.create(collection("agenttools", namespace), tool)

    async def submit(self, runs: Iterable[tuple[str, dict[str, Any]]]) -> float:
        """Create runs, each in its namespace, many at once, and return the moment before the first."""
        began = time.time()

        async def create(item: tuple[str, dict[str, Any]]) -> None:
            namespace, run = item
            await self.api.create(collection("agentruns", namespace), run)

        await work_off(runs, _SUBMITTERS, create)
        return began

    # --- looking

    async def look(self) -> Look:
        """Return what has been used and counted up to now."""
        pids = {name: pid for name, pid in find_children().items() if name.startswith(_PARTS)}
        own = {"operator": self.operator, "worker": self.worker}
        pids |= {name: process.pid for name, process in own.items() if process is not None}
        if self.ledger.pid is not None:
            pids["ledger"] = self.ledger.pid
        pids["bench"] = os.getpid()
        return Look(
            time.time(),
            {name: read_use(pid) for name, pid in pids.items()},
            read_counts(await self.api.metrics(), "apiserver_request_total"),
            read_counts(await self.operator_metrics(), "agentrun_api_requests_total"),
            Counter(self.api.writes),
        )

    async def ended_runs(self) -> int:
        """Return how many runs this operator has seen to their end."""
        return round(sum(read_counts(await self.operator_metrics(), "agentrun_runs_ended_total").values()))

    def read_clock(self) -> list[tuple[str, float]]:
        """Return the calls that tools were made to make: under which word, and when."""
        if not self.clock.exists():
            return []
        lines = (line.split("\t") for line in self.clock.read_text().splitlines())
        return [(word, float(at)) for word, at in lines]

    def count_calls(self) -> int:
        """Return how many calls there were."""
        return self.clock.read_bytes().count(b"\n") if self.clock.exists() else 0

    async def until(
        self, what: str, holds: Callable[[], Awaitable[bool]], within: float, pause: float = _LOOK_SECONDS
    ) -> None:
        """Wait until something holds. Raises :class:`NotReachedError` with the ends of the logs."""
        deadline = time.monotonic() + within
        while not await holds():
            fallen = [p.args for p in (self.operator, self.worker) if p is not None and p.poll() is not None]
            if time.monotonic() > deadline or fallen:
                logs = "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))
                why = "a process ended by itself" if fallen else f"not within {within:.0f} s"
                raise NotReachedError(f"{what}: {why}\n{logs}")
            await asyncio.sleep(pause)

    async def until_ended(self, runs: int, within: float, pause: float = _SCRAPE_SECONDS) -> None:
        """Wait until this operator has seen so many runs to their end.

        Asking costs the operator a tenth of a second when it serves many namespaces: not too often.
        """

        async def holds() -> bool:
            return await self.ended_runs() >= runs

        await self.until(f"{runs} runs have ended", holds, within, pause)

    async def until_called(self, calls: int, within: float) -> None:
        """Wait until tools have been called so often."""

        async def holds() -> bool:
            return self.count_calls() >= calls

        await self.until(f"{calls} calls", holds, within)

    async def warm_up(self, namespace: str) -> None:
        """Have one run go through everything, so that nothing is measured that happens once for each process."""

        await self.submit([(namespace, build_tree("warm-up", 10))])
        await self.until_ended(1, _START_SECONDS)

    async def operator_metrics(self) -> str:
        """Return what the newest operator gives out; empty while it does not listen."""

        def read() -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
                    return str(answer.read().decode())
            except OSError:
                return ""

        return await asyncio.to_thread(read) if self._port else ""


@asynccontextmanager
async def open_site(assets: Path) -> AsyncIterator[Site]:
    """Give a new control plane with the kinds on it and a ledger; operator and worker are the part's to start."""
    with (
        ControlPlane(assets) as plane,
        LedgerServer(DURABLE) as ledger,
        tempfile.TemporaryDirectory(prefix="agentrun-bench-") as folder,
    ):
        install_custom_resources(plane.kubeconfig)
        async with Api(plane.kubeconfig) as api:
            site = Site(plane, ledger, api, Path(folder))
            try:
                yield site
            finally:
                site.close()


def describe_between(before: Look, after: Look, nodes: int, seconds: float) -> dict[str, Any]:
    """Return what was used between two looks at whose end so many nodes had been done in so many seconds."""
    all_writes = Counter(writes_by_kind(difference(before.requests, after.requests)))
    bench = after.bench_writes - before.bench_writes
    named: Counter[str] = Counter()
    for labels, count in difference(before.operator_requests, after.operator_requests).items():
        said = dict(labels)
        if said["verb"] in WRITES:
            named[f"{said['verb']} {said['resource']}"] += round(count)
    rest = all_writes - bench
    operators = {kind: count for kind, count in rest.items() if _is_named(kind, named)}
    others = {kind: count for kind, count in rest.items() if kind not in operators}
    return {
        "api_writes": {
            "operator": dict(sorted(operators.items())),
            "bench": dict(sorted(bench.items())),
            "others": others,
            "operator_by_its_own_metric": dict(sorted(named.items())),
            "conflicts": _conflicts(before, after),
        },
        "operator_writes_per_node": round(sum(operators.values()) / nodes, 3),
        "operator_writes_per_node_by_kind": {kind: round(count / nodes, 3) for kind, count in operators.items()},
        "operator_writes_per_s": round(sum(operators.values()) / seconds, 1),
        "cpu_seconds": {
            name: round(use.cpu_seconds - before.use.get(name, ProcessUse()).cpu_seconds, 2)
            for name, use in after.use.items()
        },
        "peak_rss_mb": {name: round(use.peak_rss_bytes / 2**20) for name, use in after.use.items()},
    }


def _is_named(kind: str, named: Mapping[str, int]) -> bool:
    # The operator's own metric knows few resources by name: its Events are among the Others.
    return kind in named or (kind.endswith(" events") and any(name.endswith(" Other") for name in named))


def _conflicts(before: Look, after: Look) -> int:
    grown = difference(before.requests, after.requests)
    return round(sum(count for labels, count in grown.items() if ("code", "409") in labels))


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
