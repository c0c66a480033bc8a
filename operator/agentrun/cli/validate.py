"""``agentrun validate``: checks manifests offline, by the rules of admission and the gate."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import orjson
from cyclopts import Parameter

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.terminal import errors, output
from agentrun.local.manifest_check import find_limits, find_problems
from agentrun.local.manifests import ManifestProblem, Manifests, read_manifests
from agentrun.schemas.validator import SchemaValidator

EXAMPLES = """Examples:

  agentrun validate tools.yaml run.yaml
  agentrun validate examples/chain --output json
  kubectl get agentrun my-run -o yaml | agentrun validate tools.yaml -
"""


def validate(
    files: Annotated[
        list[str], Parameter(help="Manifest files, folders of them (*script.yaml is left out), or - for stdin.")
    ],
    /,
    *,
    output: Annotated[Literal["text", "json"], Parameter(name=["--output", "-o"], help="Form of the answer.")] = "text",
) -> int:
    """Check manifests without a cluster: every problem with file, line, field and remedy.

    What could not be read cannot be judged further: it is named after the problems, to be checked again.

    Exit codes: 0 all is well, 1 problems were found, 2 the command line is wrong.
    """
    loaded = read_manifests(files, sys.stdin.buffer.read)
    problems = sorted((*loaded.problems, *find_problems(loaded, SchemaValidator())))
    if output == "json":
        _print_json(loaded, problems)
    else:
        _print_text(loaded, problems)
    return ExitCode.FAILED if problems else ExitCode.OK


def _print_json(loaded: Manifests, problems: list[ManifestProblem]) -> None:
    answer = {
        "valid": not problems,
        "tools": [tool.metadata.name for tool in loaded.tools],
        "runs": [run.metadata.name for run in loaded.runs],
        "problems": [
            {
                "file": problem.file,
                "line": problem.line,
                "field": problem.field,
                "message": problem.message,
                "remedy": problem.remedy,
            }
            for problem in problems
        ],
        "notLookedAt": find_limits(loaded),
    }
    sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2) + b"\n")


def _print_text(loaded: Manifests, problems: list[ManifestProblem]) -> None:
    for problem in problems:
        errors().print(str(problem), markup=False)
    if problems:
        for limit in find_limits(loaded):
            errors().print(limit, markup=False)
        errors().print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} found", markup=False)
        return
    output().print(f"valid: {len(loaded.tools)} tools, {len(loaded.runs)} runs")
