"""Every example validates, runs for real, and plays its script; the demo writes exactly one transfer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MANIFESTS = sorted(
    path for path in EXAMPLES.glob("*/*.yaml") if path.name not in ("script.yaml", "tools.yaml", "run.yaml")
)
PATTERNS = [path for path in MANIFESTS if path.parent.name != "own-worker-image"]


def agentrun(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from agentrun.cli.main import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def test_each_pattern_that_needs_no_model_has_its_example() -> None:
    assert {path.parent.name for path in PATTERNS} == {"chain", "fan-out-fan-in", "routing", "human-in-the-loop"}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_an_example_runs_for_real(manifest: Path) -> None:
    answer = agentrun("local", "run", manifest, "--output", "json")
    assert answer.returncode == 0, answer.stderr
    (run,) = json.loads(answer.stdout)["runs"]
    assert run["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("manifest", PATTERNS, ids=lambda path: path.parent.name)
def test_an_examples_script_comes_true_and_the_same_each_time(manifest: Path) -> None:
    script = manifest.with_name("script.yaml")
    answers = [agentrun("local", "run", manifest, "--script", script, "--output", "json") for _ in range(2)]
    assert answers[0].returncode == 0, answers[0].stderr
    assert answers[0].stdout == answers[1].stdout
    assert json.loads(answers[0].stdout)["misses"] == []


def test_an_approval_shows_the_value_its_message_refers_to() -> None:
    answer = agentrun("local", "run", EXAMPLES / "human-in-the-loop" / "refund.yaml", "--output", "json")
    asked = [approval["status"]["request"]["question"] for approval in json.loads(answer.stdout)["approvals"]]
    assert any("Close the case of A-2?" in question for question in asked)


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(EXAMPLES / "stock-transfer" / "demo.sh"), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=90,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        check=False,
    )


def test_the_demo_shows_every_nodes_end_and_writes_exactly_one_transfer() -> None:
    answer = run_demo()
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "The shop's database holds 1 transfer:" in answer.stdout
    assert "no terminal, so it answers itself" in answer.stdout
    table = answer.stdout.split("NODE", 1)[1]
    for column in ("PHASE", "ATTEMPTS", "DURATION", "COST"):
        assert column in table
    for node in ("stock-north", "stock-south", "compare", "route", "transfer", "nothing-to-do"):
        assert node in table


def test_a_refused_transfer_is_not_made() -> None:
    answer = run_demo("--approve", "no")
    assert answer.returncode == 1
    assert "The shop's database holds 0 transfers:" in answer.stdout
