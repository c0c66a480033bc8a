"""The worker's command line and composition root: ``agentrun-worker run``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from enum import Enum, IntEnum
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any

import structlog
from cyclopts import App, CycloptsError, Parameter
from pydantic import ValidationError

from agentrun.contract.defaults import CLAIM_WITHIN
from agentrun.contract.durations import format_duration
from agentrun.contract.tool import ToolType
from agentrun.ledger.port import LedgerUnavailableError, WorkerIdentity
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.schemas.validator import SchemaValidator
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.metric_book import build_registry
from agentrun.telemetry.probe_server import CannotListenError, ProbeAnswer
from agentrun.telemetry.setting_faults import explain_settings
from agentrun.telemetry.vital_signs import show_vital_signs
from agentrun_worker.container_executor import ContainerExecutor, ContainerFolders, ContainerUnusableError
from agentrun_worker.container_helper import HelperMissingError, install_helper
from agentrun_worker.executor import Executor, SecretSource
from agentrun_worker.http_executor import HttpExecutor
from agentrun_worker.identity import build_identity, choose_name
from agentrun_worker.log_setup import set_up_logs
from agentrun_worker.python_executor import PythonExecutor
from agentrun_worker.secret_sources import EnvironmentSecrets, MountedSecrets
from agentrun_worker.settings import ENVIRONMENT_PREFIX, ProcessSettings
from agentrun_worker.worker import Worker
from agentrun_worker.worker_metrics import WorkerMetrics

_HELP = (
    """Execute the calls of AgentRun nodes: take orders from the ledger, pass the gate, call tools, commit outcomes."""
)
_EXAMPLES = """Examples:

  agentrun-worker run --pool shared --redis redis://127.0.0.1:6379/0
  agentrun-worker run --pool reports --import-path ./tools --slots 8
  agentrun-worker run --once --redis unix:///run/valkey.sock
  agentrun-worker run --one-order --pool shared.0f1e2d3c4b5a69788796a5b4c3d2e1f0
"""
_FAULTS_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_log = structlog.get_logger("agentrun.worker")


class Duty(Enum):
    """When a worker's work is done."""

    STAY = "stay"
    """When it is told to end."""
    UNTIL_IDLE = "until idle"
    """When nothing is left to take."""
    ONE_ORDER = "one order"
    """When one order is carried out."""


class ExitCode(IntEnum):
    """What the process's exit code means; the same numbers as the command line ``agentrun``."""

    OK = 0
    """Drained in order; with --once: nothing was left to do; with --one-order: it is done, whatever came of it."""
    INTERRUPTED_CALLS = 1
    """Drained, but calls had to be interrupted: their outcomes are unknown, and recovered from."""
    USAGE = 2
    """Arguments or environment variables cannot be used; nothing was started."""
    UNAVAILABLE = 6
    """With --once or --one-order: the ledger did not answer."""
    NO_ORDER = 7
    """With --one-order: none came."""
    UNUSABLE = 8
    """With --one-order and a tool's container beside this one: it cannot run its program. Nothing was taken."""
    KILLED = 130
    """Asked twice to stop: nothing was waited for."""


def run(
    *,
    pool: Annotated[str | None, Parameter(help="The pool whose orders are taken. Default: shared.")] = None,
    redis: Annotated[
        str | None, Parameter(help="Redis or Valkey that holds the ledger. Default: redis://127.0.0.1:6379/0.")
    ] = None,
    namespace: Annotated[str | None, Parameter(help="The namespace whose orders are taken. Default: default.")] = None,
    install: Annotated[str | None, Parameter(help="The installation's id in the ledger. Default: agentrun.")] = None,
    name: Annotated[
        str | None,
        Parameter(
            help="This worker's name, which no other live worker may have. Default: the pod's name; outside of pods "
            "the host's name and a random part."
        ),
    ] = None,
    slots: Annotated[int | None, Parameter(help="Calls at once. Default: 4.")] = None,
    import_path: Annotated[
        list[Path] | None,
        Parameter(help="Folder in which Python tools are looked for first. May be repeated.", negative=""),
    ] = None,
    secrets_directory: Annotated[
        Path | None,
        Parameter(help="Where Secrets are mounted (<name>/<key>). Default: environment variables SECRET_<NAME>_<KEY>."),
    ] = None,
    listen: Annotated[
        str | None,
        Parameter(help="HOST:PORT for /metrics, /healthz and /readyz, for example 127.0.0.1:8081. Default: none."),
    ] = None,
    once: Annotated[
        bool,
        Parameter(
            help="End when nothing is left to take and all calls have ended. What another worker took and died with is "
            "left until that one counts as dead.",
            negative="",
        ),
    ] = False,
    one_order: Annotated[
        bool,
        Parameter(
            help="Take one order, carry it out, and end: what the pod of a Job does. It is waited for as long as "
            "AGENTRUN_WORKER_ORDER_PATIENCE (30m).",
            negative="",
        ),
    ] = False,
) -> int:
    """Work for one pool until SIGTERM or SIGINT.

    Every option may be set as an environment variable as well, AGENTRUN_WORKER_<OPTION>. Further ones are DURABILITY
    (Require or Accept), HEARTBEAT, CANCEL_GRACE, DRAIN_GRACE, IDLE_PATIENCE, ORDER_PATIENCE, LOG_LEVEL, LOG_JSON;
    IMPORT_PATHS takes folders separated by colons.

    The first signal drains: nothing more is taken, what has not begun is handed back, calls under way may end within
    DRAIN_GRACE (25s). The second one ends the process at once.

    Exit codes: 0 drained in order, 1 calls had to be interrupted, 2 arguments or environment cannot be used, 6 the
    ledger did not answer (with --once or --one-order; else the worker waits for it), 7 no order came, 8 the tool's
    container cannot run its program (both with --one-order), 130 stopped at once.
    """
    given = {
        "pool": pool,
        "redis": redis,
        "namespace": namespace,
        "install": install,
        "name": name,
        "slots": slots,
        "import_paths": import_path,
        "secrets_directory": secrets_directory,
        "listen": listen,
    }
    try:
        settings = ProcessSettings(**_set_only(given))
    except ValidationError as error:
        options = {field: f"--{field.replace('_', '-')}" for field in given} | {"import_paths": "--import-path"}
        for line in explain_settings(error, ENVIRONMENT_PREFIX, options):
            print(line, file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    if once and one_order:
        print("--one-order: does not go with --once: it ends by itself", file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    if (settings.call_directory is None) != (settings.answer_directory is None):
        print("AGENTRUN_WORKER_CALL_DIRECTORY goes with AGENTRUN_WORKER_ANSWER_DIRECTORY", file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    if settings.call_directory is not None and not one_order:
        print("AGENTRUN_WORKER_CALL_DIRECTORY: goes with --one-order alone", file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    duty = Duty.ONE_ORDER if one_order else Duty.UNTIL_IDLE if once else Duty.STAY
    set_up_logs(settings.log_level, as_json=settings.log_json)
    try:
        return asyncio.run(_work(settings, duty))
    except CannotListenError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    except asyncio.CancelledError:
        return ExitCode.KILLED


def helper(folder: Path) -> int:
    """Copy into a folder what starts the program of a tool of type container, in an image that may hold no shell.

    What the init container of such a call's pod does. Exit codes: 0 copied, 2 the folder or the helper is missing.
    """
    try:
        install_helper(folder)
    except (HelperMissingError, OSError) as error:
        print(f"helper: {error}", file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    return ExitCode.OK


async def _work(settings: ProcessSettings, duty: Duty) -> ExitCode:
    ledger = RedisLedger.connect(
        settings.redis.get_secret_value(), LedgerSettings(install=settings.install, durability=settings.durability)
    )
    slots = 1 if duty is Duty.ONE_ORDER else settings.slots
    identity = build_identity(settings.namespace, settings.pool, choose_name(settings.name, os.environ), slots)
    secrets: SecretSource = (
        MountedSecrets(settings.secrets_directory) if settings.secrets_directory else EnvironmentSecrets()
    )
    executors: dict[ToolType, Executor] = {
        ToolType.HTTP: HttpExecutor(secrets),
        ToolType.PYTHON: PythonExecutor(settings.import_paths, secrets),
    }
    container = _find_container(settings)
    if container is not None:
        executors = {ToolType.CONTAINER: container}
    registry, liveness = build_registry(), Liveness()
    metrics = WorkerMetrics(registry, identity, liveness)
    pace = settings.pace()
    if duty is Duty.ONE_ORDER:
        # Handing the order back would cost another pod: it waits for the tool's rate as long as the order stands.
        pace = replace(pace, longest_rate_wait=CLAIM_WITHIN)
    worker = Worker(ledger, identity, executors, SchemaValidator(), pace, observer=metrics)
    try:
        async with show_vital_signs(settings.listen, registry, liveness, lambda: _readiness(worker)):
            has_worked = await _run(worker, _do_work(worker, duty, settings, container), ledger, liveness, identity)
    except LedgerUnavailableError as error:
        _log.error("ledger_unavailable", cause=str(error))
        return ExitCode.UNAVAILABLE
    except ContainerUnusableError as error:
        _log.error("container_unusable", cause=str(error))
        return ExitCode.UNUSABLE
    finally:
        if container is not None:
            await container.close()
        await ledger.close()
    _log.info(
        "ended",
        calls=worker.attempts_total,
        interrupted=worker.interrupted_total,
        uncalled=worker.uncalled_total,
    )
    if not has_worked:
        _log.warning("no_order_came", waited=format_duration(settings.order_patience))
        return ExitCode.NO_ORDER
    return ExitCode.INTERRUPTED_CALLS if worker.interrupted_total else ExitCode.OK


def _find_container(settings: ProcessSettings) -> ContainerExecutor | None:
    call, answer = settings.call_directory, settings.answer_directory
    return None if call is None or answer is None else ContainerExecutor(ContainerFolders(call, answer))


async def _do_work(worker: Worker, duty: Duty, settings: ProcessSettings, container: ContainerExecutor | None) -> bool:
    """Do what the worker is here for; return whether there was anything, unless it was told to end."""
    if duty is Duty.ONE_ORDER:
        loop = asyncio.get_running_loop()
        ends = loop.time() + settings.order_patience.total_seconds()
        # No order is sent before a worker waits for it: nothing is on record while an image is pulled.
        if container is not None and not await _await_container(worker, container, ends):
            return worker.state == "draining"
        came = await worker.run_one_order(within=timedelta(seconds=max(0.0, ends - loop.time())))
        return came or worker.state == "draining"
    await worker.run(until_idle=duty is Duty.UNTIL_IDLE)
    return True


async def _await_container(worker: Worker, container: ContainerExecutor, ends: float) -> bool:
    loop = asyncio.get_running_loop()
    starting = asyncio.create_task(container.await_start(), name="container start")
    try:
        while not starting.done() and worker.state != "draining" and loop.time() < ends:
            await asyncio.wait({starting}, timeout=_LOOK_SECONDS)
        if starting.done():
            starting.result()
            return worker.state != "draining"
        return False
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def _run(
    worker: Worker, work: Coroutine[Any, Any, bool], ledger: RedisLedger, liveness: Liveness, identity: WorkerIdentity
) -> bool:
    working = asyncio.create_task(work, name="worker")
    liveness.expect(working, ask=worker.find_fault)
    _listen_to_signals(worker, working)
    _log.info("started", pool=identity.pool, namespace=identity.namespace, worker=identity.name, slots=identity.slots)
    try:
        await _show_faults(ledger)
        return await working
    finally:
        liveness.expect()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def _readiness(worker: Worker) -> ProbeAnswer:
    return ProbeAnswer(good=worker.state == "working", text=worker.state)


def _listen_to_signals(worker: Worker, working: asyncio.Future[bool]) -> None:
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            worker.request_drain()
        else:
            working.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


async def _show_faults(ledger: RedisLedger) -> None:
    try:
        async with asyncio.timeout(_FAULTS_SECONDS):
            for fault in await ledger.find_faults():
                _log.warning("ledger_at_risk", fault=fault)
    except (LedgerUnavailableError, TimeoutError) as error:
        # A worker's user on the server need not have the right to ask.
        _log.info("ledger_not_examined", cause=str(error))


def _set_only(given: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in given.items() if value is not None}


def build_app() -> App:
    """Return the command line."""
    app = App(name="agentrun-worker", help=_HELP, version=version_of("agentrun-operator"), help_format="plaintext")
    app.command(run, name="run", help_epilogue=_EXAMPLES)
    app.command(helper, name="helper", help_epilogue="Example:\n\n  agentrun-worker helper /run/agentrun/helper\n")
    return app


def main() -> None:
    """Run the command line and end with its exit code; wrong arguments end with 2."""
    try:
        code = build_app()(exit_on_error=False, result_action="return_value")
    except CycloptsError:
        sys.exit(ExitCode.USAGE)
    sys.exit(int(code) if isinstance(code, int) else ExitCode.OK)
