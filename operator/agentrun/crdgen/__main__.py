"""``python -m agentrun.crdgen``: writes the CustomResourceDefinitions and the manifest reference, or compares them."""

from __future__ import annotations

from pathlib import Path

from agentrun.crdgen.field_reference import build_reference
from agentrun.crdgen.generated_files import render_yaml, run_generator
from agentrun.crdgen.resources import RESOURCES, build_definition

_FOLDERS = ("crds", "charts/agentrun-operator/files/crds", "charts/agentrun-crds/files/crds")
"""Every folder that carries the definitions."""
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
    run_generator(
        "agentrun.crdgen", "crds/, their copies in charts/ and docs/reference/manifests.md from the models", build_files
    )


if __name__ == "__main__":
    main()
