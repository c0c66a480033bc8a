"""How figures and aims are printed and kept; the same for every bench."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench_cluster.aims import Aim


def show(name: str, figures: dict[str, Any]) -> None:
    """Print the figures of one part, at once."""
    print(f"\n== {name}")
    for key, value in figures.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for inner, what in value.items():
                print(f"    {inner:34} {json.dumps(what) if isinstance(what, dict) else what}")
        else:
            print(f"{key:38} {value}")
    sys.stdout.flush()


def show_aims(aims: Iterable[Aim]) -> None:
    """Print which aims were met."""
    print("\n== aims")
    for aim in aims:
        print(f"{'met   ' if aim.is_met else 'MISSED'}  {aim.name}: {aim.got} (aim: {aim.want})")


def store(path: Path | None, found: dict[str, Any]) -> None:
    """Write everything that was found so far to a file, if one is wanted."""
    if path is not None:
        path.write_text(json.dumps(found, indent=2) + "\n")
