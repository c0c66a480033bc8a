"""What a user installs holds both source roots, and nothing that hides the standard library."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    (wheel,) = target.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_every_module_and_lua_file_of_both_roots(wheel_names: set[str]) -> None:
    want = {
        path.relative_to(root).as_posix()
        for root in (ROOT / "operator", ROOT / "worker_image")
        for pattern in ("*.py", "*.lua", "py.typed")
        for path in root.rglob(pattern)
    }
    assert want <= wheel_names
    assert {"agentrun/py.typed", "agentrun_worker/py.typed"} <= want


def test_no_installed_package_is_named_like_the_stdlib(wheel_names: set[str]) -> None:
    top_levels = {name.split("/")[0] for name in wheel_names}
    assert {name for name in top_levels if not name.endswith(".dist-info")} == {"agentrun", "agentrun_worker"}


def test_the_lock_names_no_host() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text()
    assert "://" not in lock
    assert "--index-url" not in lock
    assert "--find-links" not in lock
