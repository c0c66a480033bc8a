"""``agentrun local run``: executes manifests on this machine, with everything but Kubernetes being real."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.outcome_report import report_outcome
from agentrun.cli.overrides import OverrideRefusedError, build_override
from agentrun.cli.questions import Approve, FixedAnswers, TerminalAnswers
from agentrun.cli.scenario import run_scenario
from agentrun.cli.terminal import errors, is_terminal, output
from agentrun.cli.tree_printer import LinePrinter, LiveTree
from agentrun.engine.services import EpochLostError
from agentrun.ledger.ledger_url import check_ledger_url
from agentrun.ledger.port import LedgerFormatError, LedgerUnavailableError
from agentrun.local.embedded_ledger import NoLedgerServerError
from agentrun.local.ignored_execution import find_ignored_executions
from agentrun.local.local_run import Answer, LocalRun, LocalSetup
from agentrun.local.manifest_check import find_limits, find_problems
from agentrun.local.manifests import Manifests, read_manifests
from agentrun.local.state_folder import StateFolder, StateFolderError
from agentrun.schemas.validator import SchemaValidator
from agentrun.telemetry.log_setup import LogLevel, set_up_logs

EXAMPLES = """Examples:

  agentrun local run hello.yaml
  agentrun local run tools.yaml run.yaml --set inputs.day=monday --approve yes
  agentrun local run tools.yaml run.yaml --script happy-path.yaml
  agentrun local run examples/chain --output json
  agentrun local run hello.yaml --state .agentrun
"""


def run(
    files: Annotated[
        list[str], Parameter(help="Manifest files, folders of them (*script.yaml is left out), or - for stdin.")
    ],
    /,
    *,
    set_: Annotated[
        list[str] | None,
        Parameter(
            name="--set",
            negative="",
            help="Change a run's spec: path=value, such as inputs.day=monday. May be repeated.",
        ),
    ] = None,
    script: Annotated[
        Path | None,
        Parameter(help="Answer tools and people from this file, on virtual time: a scenario test."),
    ] = None,
    seed: Annotated[int | None, Parameter(help="With --script: another chance than the script's own seed.")] = None,
    approve: Annotated[
        Approve,
        Parameter(help="Who answers approvals: ask (without a terminal: yes, and it says so), yes or no."),
    ] = Approve.ASK,
    redis: Annotated[
        str | None, Parameter(help="Use this Redis or Valkey instead of one started for the run, such as redis://host.")
    ] = None,
    state: Annotated[
        Path | None,
        Parameter(
            help="Keep runs and ledger in this folder: the same command again goes on where a killed one stopped, and "
            "executes nothing that it has executed."
        ),
    ] = None,
    workers: Annotated[int, Parameter(help="Calls at once, for each worker pool.")] = 8,
    output: Annotated[
        Literal["tree", "json"], Parameter(name=["--output", "-o"], help="tree for people, json for scripts.")
    ] = "tree",
    log_level: Annotated[LogLevel, Parameter(help="What is logged to standard error.")] = LogLevel.ERROR,
) -> int:
    """Run manifests on this machine: the same decisions, ledger and worker as on a cluster, no Kubernetes.

    A tool's own Python file is found beside its manifest. Secrets are read from environment variables
    SECRET_<NAME>_<KEY>. Ctrl-C cancels the run and waits for its end; a second one stops at once.

    Exit codes: 0 Succeeded (with a script that expects something: it came true), 1 Failed or Dead, 2 manifests or
    arguments cannot be used, 3 Rejected, 4 waits for a human and nobody answers, 5 Cancelled, 6 no ledger server,
    130 interrupted.
    """
    set_up_logs(log_level)
    if workers < 1:
        errors().print(f"--workers {workers}: at least 1 is needed", markup=False)
        return ExitCode.USAGE
    try:
        if redis is not None:
            check_ledger_url(redis)
    except ValueError as error:
        errors().print(f"--redis: {error}", markup=False)
        return ExitCode.USAGE
    try:
        manifests = read_manifests(files, sys.stdin.buffer.read, build_override(set_ or []))
    except OverrideRefusedError as error:
        errors().print(str(error), markup=False)
        return ExitCode.USAGE
    if not _is_usable(manifests):
        return ExitCode.USAGE
    if script is not None and state is not None:
        errors().print("--state does not go with --script: a scenario is played from its beginning", markup=False)
        return ExitCode.USAGE
    if script is not None:
        return run_scenario(manifests, script, seed, as_json=output == "json")
    try:
        with StateFolder(state) if state is not None else nullcontext() as kept:
            return asyncio.run(_execute(manifests, approve, redis, kept, workers, as_json=output == "json"))
    except StateFolderError as error:
        errors().print(str(error), markup=False)
        return ExitCode.USAGE
    except (NoLedgerServerError, LedgerUnavailableError, LedgerFormatError) as error:
        errors().print(str(error), markup=False)
        return ExitCode.UNAVAILABLE
    except EpochLostError:
        said = (
            "another scheduler has taken this ledger over: give each its own server, or its own database (redis://…/1)"
        )
        errors().print(said, markup=False)
        return ExitCode.UNAVAILABLE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _is_usable(manifests: Manifests) -> bool:
    problems = sorted((*manifests.problems, *find_problems(manifests, SchemaValidator())))
    for line in (*problems, *find_limits(manifests), *find_ignored_executions(manifests.tools)):
        errors().print(str(line), markup=False)
    if not problems and not manifests.runs:
        errors().print("the files hold no AgentRun: name the file of the run as well", markup=False)
        return False
    return not problems


async def _execute(
    manifests: Manifests,
    approve: Approve,
    redis_url: str | None,
    state: StateFolder | None,
    slots: int,
    *,
    as_json: bool,
) -> ExitCode:
    live = is_terminal() and not as_json
    console = errors() if as_json else output()
    printer = LiveTree(console, lambda: datetime.now(UTC)) if live else LinePrinter(console)

    @contextmanager
    def quiet() -> Iterator[None]:
        printer.pause()
        try:
            yield
        finally:
            printer.resume()

    answer: Answer = FixedAnswers(
        console,
        agree=approve is not Approve.NO,
        why="answered by --approve" if approve is not Approve.ASK else "no terminal, so it answers itself",
    )
    if live and approve is Approve.ASK:
        answer = TerminalAnswers(console, quiet)
    local = LocalRun(
        LocalSetup(
            tools=manifests.tools,
            runs=manifests.runs,
            import_paths=[*manifests.folders, Path.cwd()],
            answer=answer,
            observe=printer.show,
            redis_url=redis_url,
            state=state,
            slots=slots,
        )
    )
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            errors().print("\ncancelling; press Ctrl-C again to stop at once")
            local.cancel()
        else:
            executing.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    with printer:
        executing = asyncio.ensure_future(local.execute())
        try:
            outcome = await executing
        except asyncio.CancelledError:
            return ExitCode.INTERRUPTED
    code = report_outcome(outcome, datetime.now(UTC), as_json=as_json)
    return ExitCode.INTERRUPTED if interrupts else code
