"""A folder of wrong manifests, each with the messages that its author is to read."""

import os
from pathlib import Path

import pytest

from agentrun.local.manifest_check import find_limits, find_problems
from agentrun.local.manifests import read_manifests
from agentrun.schemas.validator import SchemaValidator

FOLDER = Path(__file__).parent / "wrong_manifests"
WRONG = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def test_the_folder_is_worth_its_name() -> None:
    assert len(WRONG) >= 30
    assert all((FOLDER / f"{name}.want").read_text().strip() for name in WRONG)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_manifest_is_explained_with_file_line_field_and_remedy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    file = f"{name}.yaml"
    loaded = read_manifests([file], lambda: b"")
    problems = sorted((*loaded.problems, *find_problems(loaded, SchemaValidator())))
    want = (FOLDER / f"{name}.want").read_text()
    assert "".join(f"{problem}{os.linesep}" for problem in problems) == want
    assert bool(find_limits(loaded)) == bool(loaded.unread)
    for problem in problems:
        assert problem.file == file
        assert problem.line > 0
