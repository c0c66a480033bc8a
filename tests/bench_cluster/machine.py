"""What the figures were taken with: machine, versions, and how fast the machine is at this very moment."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentrun.local.embedded_ledger import find_server_binary


def describe_machine() -> dict[str, Any]:
    """Return date, machine and the versions of what is measured."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _find_processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "fixed_loop_ms": time_fixed_loop(),
        "python": platform.python_version(),
        "ledger": _say([str(find_server_binary()), "--version"]),
        "commit": _say(["git", "rev-parse", "--short", "HEAD"]),
    }


def describe_control_plane(assets: Path) -> dict[str, Any]:
    """Return the versions of the control plane's binaries; ``assets`` is their folder."""
    return {
        "kube_apiserver": _say([str(assets / "kube-apiserver"), "--version"]),
        "etcd": _say(["etcd", "--version"]),
    }


def time_fixed_loop() -> int:
    """Return the milliseconds that a fixed loop takes now: a shared machine's own speed varies by half and more."""
    began = time.perf_counter()
    total = 0
    for number in range(3_000_000):
        total += number
    return round((time.perf_counter() - began) * 1000)


def _find_processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _say(command: list[str]) -> str:
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.splitlines()[0].strip() if said else ""
