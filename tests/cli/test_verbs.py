"""Every verb as a process: output, exit code, help, JSON, no terminal, no stack trace."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.command_line import Run

VERBS = [("validate",), ("init",), ("local", "run"), ("version",)]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help_with_examples(agentrun: Run, verb: tuple[str, ...]) -> None:
    answer = agentrun(*verb, "--help")
    assert answer.returncode == 0
    assert "Examples:" in answer.stdout
    assert f"agentrun {' '.join(verb)}" in answer.stdout


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("validate",), ("local", "run"), ("version", "--output", "xml"), ("init", "--name", "Bad Name")],
    ids=" ".join,
)
def test_wrong_arguments_end_with_2_and_a_message(agentrun: Run, arguments: tuple[str, ...]) -> None:
    answer = agentrun(*arguments)
    assert answer.returncode == 2
    assert answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


def test_init_writes_a_pair_that_validates_and_runs(agentrun: Run, tmp_path: Path) -> None:
    assert agentrun("init").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hello.yaml", "hello_tool.py"]
    assert agentrun("validate", "hello.yaml").returncode == 0
    ran = agentrun("local", "run", "hello.yaml", "--set", "inputs.who=Bob")
    assert ran.returncode == 0, ran.stderr
    assert "once" in ran.stdout
    assert "Succeeded" in ran.stdout
    assert "\x1b[" not in ran.stdout, "plain text without a terminal"


def test_init_overwrites_nothing(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text("mine")
    answer = agentrun("init")
    assert answer.returncode == 2
    assert (tmp_path / "hello.yaml").read_text() == "mine"
    assert not (tmp_path / "hello_tool.py").exists()


def test_a_runs_json_is_one_object_with_everything(agentrun: Run) -> None:
    agentrun("init")
    answer = agentrun("local", "run", "hello.yaml", "--output", "json")
    found = json.loads(answer.stdout)
    assert [run["status"]["phase"] for run in found["runs"]] == ["Succeeded"]
    assert {node["spec"]["path"]: node["status"]["phase"] for node in found["nodes"]} == {
        "once": "Succeeded",
        "again": "Succeeded",
    }
    assert answer.returncode == 0


def test_a_failed_run_ends_with_1_and_says_why(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init")
    tool = tmp_path / "hello_tool.py"
    tool.write_text("def greet(name, times=1):\n    raise ValueError('no such name')\n")
    answer = agentrun("local", "run", "hello.yaml")
    assert answer.returncode == 1
    assert "no such name" in answer.stdout
    assert "Traceback" not in answer.stderr


def test_a_wrong_manifest_starts_nothing(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "apiVersion: agentrun.dev/v1alpha1\nkind: AgentRun\nmetadata: {name: r}\nspec: {}\n"
    )
    answer = agentrun("local", "run", "run.yaml")
    assert answer.returncode == 2
    assert "run.yaml:4: spec.intent: is missing" in answer.stderr


@pytest.mark.parametrize(
    "setting, want",
    [
        pytest.param("inputs", "write path=value", id="no value"),
        pytest.param("nodes.nobody.tool=x", "has no", id="no such node"),
        pytest.param("inputs..x=1", "no path", id="no path"),
        pytest.param("inputs.who=[", "no YAML", id="no YAML"),
    ],
)
def test_a_setting_that_cannot_be_made_is_explained(agentrun: Run, setting: str, want: str) -> None:
    agentrun("init")
    answer = agentrun("local", "run", "hello.yaml", "--set", setting)
    assert answer.returncode == 2
    assert want in answer.stderr
    assert setting.split("=")[0] in answer.stderr


def test_manifests_are_read_from_standard_input(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init")
    text = (tmp_path / "hello.yaml").read_text()
    assert agentrun("validate", "-", stdin=text).returncode == 0
    assert agentrun("local", "run", "-", stdin=text).returncode == 0


def test_validate_answers_in_json(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("a: 1\n")
    answer = agentrun("validate", "run.yaml", "-o", "json")
    assert answer.returncode == 1
    found = json.loads(answer.stdout)
    assert not found["valid"]
    assert found["problems"][0]["line"] == 1


def test_a_missing_ledger_server_is_explained(agentrun: Run) -> None:
    agentrun("init")
    answer = agentrun("local", "run", "hello.yaml", "--redis", "redis://127.0.0.1:1/0")
    assert answer.returncode == 6
    assert "127.0.0.1:1" in answer.stderr or "Connect" in answer.stderr
    assert "Traceback" not in answer.stderr


SLOW = """
def greet(name, times=1):
    import time
    time.sleep(30)
"""


def test_ctrl_c_cancels_the_run_and_leaves_nothing_behind(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init")
    (tmp_path / "hello_tool.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, "-c", "from agentrun.cli.main import main; main()", "local", "run", "hello.yaml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    seen = ""
    while "Running (Claimed)" not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=40)
    assert process.returncode == 130
    assert "Cancelled" in rest
    assert not list(tmp_path.glob("agentrun-*")), "the embedded ledger's folder is gone"


def test_the_embedded_ledger_ends_with_its_killed_parent(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init")
    (tmp_path / "hello_tool.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, "-c", "from agentrun.cli.main import main; main()", "local", "run", "hello.yaml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    while "Running (Claimed)" not in process.stdout.readline():
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _servers_in(tmp_path):
        time.sleep(0.05)
    assert not _servers_in(tmp_path)


def _servers_in(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder) in (entry / "cmdline").read_bytes().decode(errors="replace"):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_validate_finds_what_it_can_and_says_what_it_could_not_look_at(agentrun: Run, tmp_path: Path) -> None:
    wrong = Path(__file__).parent / "wrong_manifests"
    text = (wrong / "several-at-once.yaml").read_text()
    (tmp_path / "all.yaml").write_text(text)
    answer = agentrun("validate", "all.yaml")
    assert answer.returncode == 1
    *problems, tool, run, count = answer.stderr.splitlines()
    assert count == f"{len(problems)} problems found"
    assert tool == "all.yaml:1: AgentTool work could not be read: its schemas, and calls of it, were not looked at"
    assert run == ("all.yaml:9: AgentRun Run could not be read: its references, tools and params were not looked at")
    found = json.loads(agentrun("validate", "all.yaml", "-o", "json").stdout)
    assert found["notLookedAt"] == [tool, run]
    assert len(found["problems"]) == len(problems) == 6
    assert agentrun("local", "run", "all.yaml").stderr.splitlines() == [*problems, tool, run]


def test_a_tool_is_not_called_missing_that_may_stand_in_what_could_not_be_read(agentrun: Run, tmp_path: Path) -> None:
    run = "kind: AgentRun\nmetadata: {name: r}\nspec: {intent: t, nodes: [{name: a, tool: work}]}\n"
    (tmp_path / "run.yaml").write_text(f"apiVersion: agentrun.dev/v1alpha1\n{run}")
    (tmp_path / "tools.yaml").write_text("kind: [\n")
    answer = agentrun("validate", "run.yaml", "tools.yaml")
    assert "does not exist" not in answer.stderr
    assert "tools.yaml:2: what stands from here on was not read; whether a tool" in answer.stderr


def test_a_list_as_kubectl_writes_it_is_read(agentrun: Run, tmp_path: Path) -> None:
    spec = "spec: {intent: t, nodes: [{name: a, tool: work}, {name: a, tool: work}]}"
    item = f"- apiVersion: agentrun.dev/v1alpha1\n  kind: AgentRun\n  metadata: {{name: r}}\n  {spec}\n"
    (tmp_path / "list.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{item}")
    answer = agentrun("validate", "list.yaml")
    assert "list.yaml:7: spec.nodes[1].name: " in answer.stderr
