"""``agentrun local run --script``: a run as a deterministic scenario test."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.outcome_report import report_outcome
from agentrun.cli.run_view import duration_text
from agentrun.cli.terminal import errors, output
from agentrun.cli.tree_printer import LinePrinter
from agentrun.local.local_run import LocalSetup
from agentrun.local.manifests import Manifests
from agentrun.local.script_file import ScriptRefusedError, load_script
from agentrun.local.script_run import run_script
from agentrun.local.virtual_time import START, NothingLeftToWaitForError


def run_scenario(manifests: Manifests, path: Path, seed: int | None, *, as_json: bool) -> ExitCode:
    """Run the manifests by a script and say what was not as expected."""
    try:
        script = load_script(path)
    except ScriptRefusedError as error:
        errors().print(str(error), markup=False)
        return ExitCode.USAGE
    printer = LinePrinter(errors() if as_json else output())
    setup = LocalSetup(tools=manifests.tools, runs=manifests.runs, observe=printer.show)
    try:
        scenario = run_script(setup, script, seed)
    except NothingLeftToWaitForError as error:
        errors().print(f"{path}: the run never ends: {error}", markup=False)
        return ExitCode.FAILED
    more = {
        "misses": list(scenario.misses),
        "calls": dict(scenario.counts.calls),
        "effects": dict(scenario.counts.effects),
    }
    code = report_outcome(scenario.outcome, START + scenario.took, as_json=as_json, more=more)
    for miss in scenario.misses:
        errors().print(miss, markup=False)
    if not as_json:
        output().print(Text(f"virtual time: {duration_text(scenario.took)}", style="dim"))
    if script.expect is None:
        return code
    return ExitCode.FAILED if scenario.misses else ExitCode.OK
