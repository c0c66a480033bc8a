"""Local mode with --state: killed and started again, it goes on; nothing happens twice, whatever part is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentrun.local.state_folder import StateFolder

TOOLS = """
import time
from pathlib import Path


def act(word: str, seconds: float = 0) -> dict:
    with (Path(__file__).parent / "effects.log").open("a") as log:
        log.write(word + "\\n")
    time.sleep(float(seconds))
    return {"did": word}
"""
MANIFEST = """
apiVersion: agentrun.dev/v1alpha1
kind: AgentTool
metadata: {name: act}
spec: {type: python, python: {entryPoint: "state_tools:act"}, timeout: 20s}
---
apiVersion: agentrun.dev/v1alpha1
kind: AgentRun
metadata: {name: chain}
spec:
  intent: three steps
  nodes:
  - {name: a, tool: act, params: {word: a}}
  - {name: b, tool: act, dependsOn: [a], params: {word: b, seconds: 2}}
  - {name: c, tool: act, dependsOn: [b], params: {word: c}}
"""


class Place:
    """A folder with a tool, a run, and the state that is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        (folder / "state_tools.py").write_text(TOOLS)
        (folder / "run.yaml").write_text(MANIFEST)

    @property
    def effects(self) -> list[str]:
        log = self.folder / "effects.log"
        return log.read_text().split() if log.exists() else []

    def start(self) -> subprocess.Popen[str]:
        arguments = ["local", "run", "run.yaml", "--state", "state", "--output", "json", "--approve", "no"]
        return subprocess.Popen(
            [sys.executable, "-m", "agentrun.cli", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self) -> tuple[int, dict[str, Any]]:
        process = self.start()
        said, complained = process.communicate(timeout=100)
        assert said, complained
        return process.returncode, json.loads(said)

    def kill_when(self, effects: list[str]) -> None:
        process = self.start()
        until = time.monotonic() + 60
        while self.effects != effects:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def phases(report: dict[str, Any]) -> dict[str, str]:
    return {node["spec"]["path"]: node.get("status", {}).get("phase", "Pending") for node in report["nodes"]}


def test_the_same_command_again_executes_nothing(place: Place) -> None:
    code, first = place.run()
    assert code == 0
    code, second = place.run()
    assert code == 0
    assert place.effects == ["a", "b", "c"]
    assert phases(first) == phases(second) == dict.fromkeys("abc", "Succeeded")


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["nothing", "the ledger", "the end of the journal"])
def test_a_killed_run_goes_on_where_it_was_and_asks_about_the_call_in_flight(place: Place, lost: str) -> None:
    place.kill_when(["a", "b"])
    if lost == "the ledger":
        shutil.rmtree(place.state / "ledger")
    if lost == "the end of the journal":
        with (place.state / "objects.jsonl").open("a") as journal:
            journal.write('{"gone":false,"obj')
    code, report = place.run()
    # Nobody answers: whether b was executed is for a human to say, and it is never made again.
    assert code == 4
    assert phases(report) == {"a": "Succeeded", "b": "Quarantined", "c": "Pending"}
    assert place.effects == ["a", "b"]


def test_a_journal_that_is_damaged_in_its_middle_is_refused_with_its_line(place: Place) -> None:
    place.run()
    journal = place.state / "objects.jsonl"
    journal.write_text("{damaged\n" + journal.read_text())
    process = place.start()
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "objects.jsonl:1" in complained.replace("\n", "")


def test_a_folder_in_use_is_refused(place: Place) -> None:
    with StateFolder(place.state):
        process = place.start()
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "another process" in complained
    assert place.effects == []
