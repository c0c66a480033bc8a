"""The README and the docs are kept true: their manifests validate, their commands run, their links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from agentrun.local.manifest_check import find_problems
from agentrun.local.manifests import load_manifests
from agentrun.schemas.validator import SchemaValidator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(mark: str) -> str:
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert found, f"the README has no block marked {mark}"
    return found[1]


def test_the_manifest_in_the_readme_is_valid() -> None:
    loaded = load_manifests(["-"], lambda: block("manifest: valid").encode())
    assert [tool.metadata.name for tool in loaded.tools] == ["refund-order"]
    assert find_problems(loaded, SchemaValidator()) == ()


def test_the_first_tools_commands_run_as_they_stand(tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "agentrun"
    launcher.parent.mkdir()
    launcher.write_text(f"#!{sys.executable}\nfrom agentrun.cli.main import main\nmain()\n")
    launcher.chmod(0o755)
    for line in block("commands: run").splitlines():
        answer = subprocess.run(
            shlex.split(line),
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{launcher.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert answer.returncode == 0, f"{line}\n{answer.stdout}{answer.stderr}"


def test_the_commands_named_first_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile


def test_the_run_that_the_cluster_page_waits_for_is_the_one_that_init_writes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operator.md").read_text()
    found = re.search(r"<!-- commands: hello -->\n```\n(.*?)```", page, re.DOTALL)
    assert found
    init, apply, wait = found[1].splitlines()[:3]
    arguments = shlex.split(init)[1:]
    code = "from agentrun.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, check=True, timeout=60)
    (run,) = load_manifests([str(tmp_path / shlex.split(apply)[-1])], bytes).runs
    assert f"agentrun/{run.metadata.name}" in shlex.split(wait)
    assert page.count(f"agentrun {run.metadata.name} --type=merge") == 2
