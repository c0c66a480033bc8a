"""The processes of a round and what may befall them: each is started again, by its strike or, when it ended, by itself."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from redis.asyncio import Redis

from chaos.history import History
from chaos.plans import Blow, RoundPlan, Strike, Target
from support.control_plane import ControlPlane
from support.ledger_server import DURABLE, LedgerServer

_RESTART_SECONDS = 0.5
_LOOK_SECONDS = 0.1
_API_SERVER = "kube-apiserver"


class Daemon:
    """One operator or worker, kept alive as a kubelet would."""

    def __init__(self, name: str, start: Callable[[], subprocess.Popen[bytes]], history: History) -> None:
        self.name = name
        self._start = start
        self._history = history
        self._process: subprocess.Popen[bytes] | None = None
        self._struck = False

    async def run(self) -> None:
        """Keep the process alive until cancelled; then it is killed."""
        self._process = self._start()
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                code = self._process.poll()
                if code is not None and not self._struck:
                    self._history.note(f"{self.name} ended by itself with {code}")
                    await asyncio.sleep(_RESTART_SECONDS)
                    self._process = self._start()
        finally:
            self._kill()

    async def kill(self, seconds: float) -> None:
        """End it with SIGKILL and start it again."""
        self._struck = True
        self._kill()
        await asyncio.sleep(seconds)
        self._process = self._start()
        self._struck = False

    async def stop(self, seconds: float) -> None:
        """Have it stand still."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._struck = True
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        self._struck = False

    @property
    def is_struck(self) -> bool:
        """Whether a strike is under way."""
        return self._struck

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Site:
    """Everything that serves one round's namespace."""

    def __init__(self, plan: RoundPlan, control_plane: ControlPlane, folder: Path, history: History) -> None:
        self.namespace = f"chaos-{plan.seed}-{secrets.token_hex(3)}"
        self.folder = folder
        self.effects = folder / "effects"
        self.effects.mkdir()
        self.ledger = LedgerServer(DURABLE)
        self._plan = plan
        self._control_plane = control_plane
        self._history = history
        self._away: set[Target] = set()
        self._operators = [self._operator(f"operator-{at}") for at in range(plan.operators)]
        self._workers = [self._worker(f"worker-{at}") for at in range(plan.workers)]

    async def run(self) -> None:
        """Keep operators and workers alive until cancelled."""
        await asyncio.gather(*(daemon.run() for daemon in (*self._operators, *self._workers)))

    async def strike(self, strike: Strike) -> None:
        """Strike, and return when what was struck is alive again."""
        if not self._is_there(strike):
            self._history.note(f"{strike}: it is down already")
            return
        self._history.note(f"STRIKE {strike}")
        match strike.target:
            case Target.OPERATOR | Target.WORKER:
                daemon = (self._operators if strike.target is Target.OPERATOR else self._workers)[strike.index]
                await (daemon.stop if strike.blow is Blow.STOP else daemon.kill)(strike.seconds)
            case Target.LEDGER:
                await self._strike_ledger(strike)
            case Target.API_SERVER:
                await self._strike_api_server(strike)
        self._history.note(f"alive again: {strike.target}")

    def _is_there(self, strike: Strike) -> bool:
        if strike.target is Target.OPERATOR:
            return not self._operators[strike.index].is_struck
        if strike.target is Target.WORKER:
            return not self._workers[strike.index].is_struck
        return strike.target not in self._away

    async def _strike_ledger(self, strike: Strike) -> None:
        self._away.add(Target.LEDGER)
        if strike.blow is Blow.FLUSH:
            async with Redis.from_url(self.ledger.url) as client:
                await client.flushall()
        elif strike.blow is Blow.STOP:
            self.ledger.pause()
            await asyncio.sleep(strike.seconds)
            self.ledger.resume()
        else:
            self.ledger.crash()
            if strike.blow is Blow.EMPTY:
                for found in self.ledger.directory.glob("append*"):
                    shutil.rmtree(found)
            await asyncio.sleep(strike.seconds)
            await asyncio.to_thread(self.ledger.start)
        self._away.discard(Target.LEDGER)

    async def _strike_api_server(self, strike: Strike) -> None:
        self._away.add(Target.API_SERVER)
        plane = self._control_plane
        if strike.blow is Blow.STOP:
            plane.signal_part(_API_SERVER, signal.SIGSTOP)
            await asyncio.sleep(strike.seconds)
            plane.signal_part(_API_SERVER, signal.SIGCONT)
        else:
            plane.kill_part(_API_SERVER)
            await asyncio.sleep(strike.seconds)
            plane.start_part(_API_SERVER)
        await asyncio.to_thread(plane.wait_until_ready)
        self._away.discard(Target.API_SERVER)

    def read_log(self, name: str, length: int = 4000) -> str:
        """Return the end of a process's log."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-length:] if path.exists() else ""

    @property
    def daemon_names(self) -> list[str]:
        """Return the names of operators and workers, as in their logs' names."""
        return [daemon.name for daemon in (*self._operators, *self._workers)]

    def _operator(self, name: str) -> Daemon:
        def start() -> subprocess.Popen[bytes]:
            arguments = ["run", "--kubeconfig", str(self._control_plane.kubeconfig), "--namespace", self.namespace]
            settings = {
                "AGENTRUN_OPERATOR_LEASE_NAMESPACE": self.namespace,
                "AGENTRUN_OPERATOR_LEASE_DURATION": "4s",
                "AGENTRUN_OPERATOR_SWEEP_EVERY": "6s",
                "AGENTRUN_OPERATOR_IDENTITY": self._name_of(name),
                # The people of a round answer every kind of question, and no webhook serves here.
                "AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED": "All",
            }
            return self._launch(name, ["operator", "operator", *arguments, *self._common], settings)

        return Daemon(name, start, self._history)

    def _worker(self, name: str) -> Daemon:
        def start() -> subprocess.Popen[bytes]:
            arguments = ["run", "--namespace", self.namespace, "--name", self._name_of(name)]
            tools = ["--import-path", str(Path(__file__).parent / "tools")]
            return self._launch(name, ["worker", *arguments, *tools, *self._common], {})

        return Daemon(name, start, self._history)

    @property
    def _common(self) -> list[str]:
        return ["--install", self.namespace, "--redis", self.ledger.url]

    def _name_of(self, name: str) -> str:
        return name if self._plan.stable_names else f"{name}-{secrets.token_hex(3)}"

    def _launch(self, name: str, arguments: list[str], settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "chaos.hasty", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "CHAOS_EFFECTS": str(self.effects), **settings},
                start_new_session=True,
            )
