"""Measures one part of a bench: how fast the machine was just then, how long it took, and what went wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench_cluster.machine import time_fixed_loop
from bench_cluster.showing import show, store


async def measure_part(
    name: str, act: Callable[[], Awaitable[dict[str, Any]]], found: dict[str, Any], path: Path | None
) -> dict[str, Any]:
    """Put the part's figures into ``found``, show them, and keep everything in the file; return them."""
    began = time.monotonic()
    about = {"load_before": round(os.getloadavg()[0], 2), "fixed_loop_ms": time_fixed_loop()}
    try:
        figures = await act()
    except Exception as error:  # noqa: BLE001 - the other parts are measured all the same, and the exit code tells
        figures = {"error": f"{type(error).__name__}: {error}"}
    found["parts"][name] = figures | about | {"took_s": round(time.monotonic() - began, 1)}
    show(name, found["parts"][name])
    store(path, found)
    return figures
