"""``agentrun version``: which program this is."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version as version_of
from typing import Annotated, Literal

import orjson
from cyclopts import Parameter

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.terminal import output
from agentrun.contract.ledger_keys import FORMAT_VERSION
from agentrun.contract.object_meta import API_VERSION
from agentrun.contract.orders import CONTRACT_VERSION

EXAMPLES = """Examples:

  agentrun version
  agentrun version --output json
"""


def version(
    *,
    output_form: Annotated[
        Literal["text", "json"], Parameter(name=["--output", "-o"], help="Form of the answer.")
    ] = "text",
) -> int:
    """Show the program's version, and those of what it speaks."""
    found = {
        "version": version_of("agentrun-operator"),
        "api": API_VERSION,
        "contract": CONTRACT_VERSION,
        "ledgerFormat": FORMAT_VERSION,
        "python": platform.python_version(),
    }
    if output_form == "json":
        sys.stdout.buffer.write(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        output().print(f"agentrun {found['version']} ({API_VERSION}, contract {CONTRACT_VERSION})")
    return ExitCode.OK
