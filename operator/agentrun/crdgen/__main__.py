"""``python -m agentrun.crdgen``: writes the CustomResourceDefinitions and the manifest reference, or compares them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agentrun.crdgen.field_reference import build_reference
from agentrun.crdgen.generated_files import find_drift, render_yaml, write_files
from agentrun.crdgen.resources import RESOURCES, build_definition

_FOLDERS = ("crds",)
"""Every folder that carries the definitions; a chart's folder of them is another entry."""
_HEAD = "# Generated from the models by `make generate`; do not edit."


def build_files(root: Path) -> dict[Path, str]:
    """Return every generated file's text by path."""
    files = {
        root / folder / resource.file_name: render_yaml(build_definition(resource), _HEAD)
        for folder in _FOLDERS
        for resource in RESOURCES
    }
    files[root / "docs" / "reference" / "manifests.md"] = build_reference()
    return files


def main() -> None:
    """Write the files, or fail when one is not what it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m agentrun.crdgen",
        description="Write crds/ and docs/reference/manifests.md from the models.",
        epilog="Examples: python -m agentrun.crdgen; python -m agentrun.crdgen --check",
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not as generated")
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    arguments = parser.parse_args()
    files = build_files(arguments.root)
    if arguments.check:
        drift = find_drift(files)
        if drift:
            print(drift)
            sys.exit("generated files are not what the models say: run `make generate` and commit")
        return
    for path in write_files(files):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
