"""What the command lines of the benches have in common: their arguments, how they are told to end, how they end."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench_cluster.aims import Aim
from bench_cluster.showing import show_aims, store


def build_parser(prog: str, description: str, examples: str, parts: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of what every bench is told."""
    parser = argparse.ArgumentParser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=parts, help="measure this part; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes; default: 1")
    parser.add_argument("--json", type=Path, default=None, help="file that all figures are written to")
    return parser


def parse(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """Return what the command line says; ends the process where it cannot be used."""
    given = parser.parse_args(arguments)
    if not 0 < given.scale <= 100:
        parser.error("--scale must be above 0 and at most 100")
    return given


def end_when_told() -> None:
    """Have SIGTERM and SIGINT cancel the task that calls this: told to end, it must end what it started as well."""
    measuring = asyncio.current_task()
    if measuring is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, measuring.cancel)


def conclude(found: dict[str, Any], aims: Iterable[Aim], path: Path | None) -> int:
    """Keep and show which aims were met; return the exit code: 1 where a part failed or a promise was broken."""
    aims = list(aims)
    found["aims"] = [asdict(aim) for aim in aims]
    store(path, found)
    show_aims(aims)
    failed = any("error" in figures for figures in found["parts"].values())
    return 1 if failed or any(aim.is_promise and not aim.is_met for aim in aims) else 0
