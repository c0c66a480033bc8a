"""``python -m agentrun.docgen``: writes the generated pages of docs/reference, or compares them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agentrun.crdgen.generated_files import find_drift, write_files
from agentrun.docgen.default_table import build_default_table
from agentrun.docgen.reason_table import build_reason_table
from agentrun.docgen.state_table import build_state_table


def build_files(root: Path) -> dict[Path, str]:
    """Return every generated page by path."""
    folder = root / "docs" / "reference"
    return {
        folder / "states.md": build_state_table(),
        folder / "reasons.md": build_reason_table(),
        folder / "defaults.md": build_default_table(),
    }


def main() -> None:
    """Write the pages, or fail when one is not what it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m agentrun.docgen",
        description="Write states.md, reasons.md and defaults.md in docs/reference from the rules.",
        epilog="Examples: python -m agentrun.docgen; python -m agentrun.docgen --check",
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is not as generated")
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    arguments = parser.parse_args()
    files = build_files(arguments.root)
    if arguments.check:
        drift = find_drift(files)
        if drift:
            print(drift)
            sys.exit("generated pages are not what the rules say: run `make generate` and commit")
        return
    for path in write_files(files):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
