"""The command line's entry: ``agentrun``, and ``kubectl agentrun`` as a plugin."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of

from cyclopts import App, CycloptsError

from agentrun.cli import init, ledger_secret, local_run, operator_run, validate, version
from agentrun.cli.exit_codes import ExitCode
from agentrun.local.manifests import STDIN

_HELP = """Run agent work as execution trees, with every side effect behind a gate.

Begin with `agentrun init`, then `agentrun local run hello.yaml`.
"""
_WORKER_EXAMPLES = """Examples:

  agentrun worker run --pool shared --redis redis://127.0.0.1:6379/0
  agentrun worker run --pool reports --import-path ./tools --slots 8
"""


def build_app() -> App:
    """Return the command line with all its verbs."""
    app = App(name="agentrun", help=_HELP, version=version_of("agentrun-operator"), help_format="plaintext")
    local = App(name="local", help="Run manifests on this machine, without Kubernetes.", help_format="plaintext")
    local.command(local_run.run, name="run", help_epilogue=local_run.EXAMPLES)
    app.command(local)
    operator = App(name="operator", help="Run the operator of a cluster.", help_format="plaintext")
    operator.command(operator_run.run, name="run", help_epilogue=operator_run.EXAMPLES)
    operator.command(ledger_secret.make_ledger_secret, name="make-ledger-secret", help_epilogue=ledger_secret.EXAMPLES)
    app.command(operator)
    worker = App(name="worker", help="Run a worker beside an operator.", help_format="plaintext")
    # By name: the worker's packages load when it is asked for, and nothing here depends on them.
    worker.command("agentrun_worker.main:run", name="run", help_epilogue=_WORKER_EXAMPLES)
    app.command(worker)
    app.command(validate.validate, name="validate", help_epilogue=validate.EXAMPLES)
    app.command(init.init, name="init", help_epilogue=init.EXAMPLES)
    app.command(version.version, name="version", help_epilogue=version.EXAMPLES)
    return app


def main() -> None:
    """Run the command line and end with its exit code; wrong arguments end with 2, as everywhere."""
    try:
        # A lone dash is a file's name by every convention; the parser takes it for an option.
        tokens = [STDIN if token == "-" else token for token in sys.argv[1:]]
        code = build_app()(tokens, exit_on_error=False, result_action="return_value")
    except CycloptsError:
        sys.exit(ExitCode.USAGE)
    sys.exit(int(code) if isinstance(code, int) else ExitCode.OK)
