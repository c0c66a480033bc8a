"""Running the command line as a user does: in a process of its own, without a terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Run


@pytest.fixture
def agentrun(tmp_path: Path) -> Run:
    """Run ``agentrun`` with these arguments in an empty folder."""

    def run(
        *arguments: str, cwd: Path = tmp_path, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from agentrun.cli.main import main; main()", *arguments],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "COLUMNS": "200", **environment},
            check=False,
        )

    return run
