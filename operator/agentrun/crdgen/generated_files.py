"""Writing generated files, or saying how they differ from what they should be."""

from __future__ import annotations

import argparse
import difflib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def render_yaml(value: Any, head: str) -> str:
    """Return a value as YAML below a comment line."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 120
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # declared as None, meant as a bool
    yaml.representer.ignore_aliases = lambda data: True  # CRDs have no anchors
    text = io.StringIO()
    yaml.dump(value, text)
    return f"{head}\n{text.getvalue()}"


def run_generator(
    module: str, written: str, build_files: Callable[[Path], Mapping[Path, str]], arguments: Sequence[str] | None = None
) -> None:
    """Be the command line of a generator: write what ``build_files`` builds below a root, or compare with ``--check``.

    Ends the process with a message when a file is not what it should be.
    """
    command = f"python -m {module}"
    parser = argparse.ArgumentParser(
        prog=command,
        description=f"Write {written}.",
        epilog=f"Examples: {command}; {command} --check",
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not as generated")
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    given = parser.parse_args(arguments)
    files = build_files(given.root)
    if not given.check:
        for path in write_files(files):
            print(f"wrote {path}")
        return
    drift = find_drift(files)
    if drift:
        print(drift)
        sys.exit("generated files are not what their source says: run `make generate` and commit")


def write_files(files: Mapping[Path, str]) -> list[Path]:
    """Write the files that differ; return them."""
    changed = [path for path, text in files.items() if _read(path) != text]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return changed


def find_drift(files: Mapping[Path, str]) -> str:
    """Return the differences between the files and what they should be; empty when there are none."""
    diffs = [
        "".join(
            difflib.unified_diff(
                _read(path).splitlines(keepends=True),
                text.splitlines(keepends=True),
                str(path),
                f"{path} (as generated)",
                n=1,
            )
        )
        for path, text in files.items()
    ]
    return "".join(diffs)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
