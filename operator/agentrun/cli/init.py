"""``agentrun init``: writes a first tool, one Python file and one manifest, that runs at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.terminal import errors, output

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")

_PYTHON = '''"""The tool `{name}`: one function. Its arguments are the call's params, its return value is the result."""

from __future__ import annotations


def greet(name: str, times: int = 1) -> dict[str, object]:
    """Greet somebody; raise an exception to fail."""
    return {{"greeting": " ".join([f"Hello, {{name}}!"] * times), "length": len(name)}}
'''

_MANIFEST = """# A tool and a run that uses it twice. Try it:  agentrun local run {name}.yaml
apiVersion: agentrun.dev/v1alpha1
kind: AgentTool
metadata:
  name: {name}
spec:
  description: Greet somebody
  type: python
  python:
    entryPoint: {module}:greet
  sideEffect: None          # None | Idempotent | Once: what a repetition would do outside
  timeout: 15s
  params:
    schema:
      type: object
      required: [name]
      properties:
        name: {{type: string, minLength: 1}}
        times: {{type: integer, minimum: 1, maximum: 10}}
      additionalProperties: false
  result:
    schema:
      type: object
      required: [greeting, length]
      properties:
        greeting: {{type: string}}
        length: {{type: integer}}
---
apiVersion: agentrun.dev/v1alpha1
kind: AgentRun
metadata:
  name: {name}-first-run
spec:
  intent: Greet somebody, then greet them as often as their name has letters
  inputs:
    who: Ada
  nodes:
  - name: once
    tool: {name}
    params: {{name: "${{inputs.who}}"}}
  - name: again
    tool: {name}
    dependsOn: [once]
    params: {{name: "${{inputs.who}}", times: "${{nodes.once.result.length}}"}}
"""

EXAMPLES = """Examples:

  agentrun init
  agentrun init my-tools --name check-stock
"""


def init(
    folder: Annotated[Path, Parameter(help="Where to write; made if it is not there.")] = Path(),
    /,
    *,
    name: Annotated[str, Parameter(help="Name of the tool: lower-case letters, digits and dashes.")] = "hello",
) -> int:
    """Write a first tool: a Python file and a manifest. Nothing is ever overwritten.

    Exit codes: 0 written, 2 a file is there already, or the name or folder cannot be used.
    """
    if not _NAME.fullmatch(name):
        errors().print(f"--name {name}: use lower-case letters, digits and dashes, at most 40", markup=False)
        return ExitCode.USAGE
    module = f"{name.replace('-', '_')}_tool"
    files = {
        folder / f"{module}.py": _PYTHON.format(name=name),
        folder / f"{name}.yaml": _MANIFEST.format(name=name, module=module),
    }
    for path in files:
        if path.exists():
            errors().print(f"{path} is there already: choose another --name or folder", markup=False)
            return ExitCode.USAGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            output().print(f"wrote {path}", markup=False)
    except OSError as error:
        said = f"{error.filename or folder}: {error.strerror or error}; name a folder that can be written in"
        errors().print(said, markup=False)
        return ExitCode.USAGE
    output().print(f"try it: agentrun local run {folder / f'{name}.yaml'}", markup=False)
    return ExitCode.OK
