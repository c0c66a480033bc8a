"""What a process uses, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Processor time and memory of a process up to now; of one that is gone all is 0."""

    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    peak_rss_bytes: int = 0


def read_use(pid: int) -> ProcessUse:
    """Return what a process has used so far."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ProcessUse()
    # Field 14 and 15 of proc(5); a name in parentheses, which may hold spaces, stands before.
    user, system = (int(field) for field in stat.rpartition(")")[2].split()[11:13])
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM")))
    rss, peak = (int(sizes[name].split()[0]) * 1024 if name in sizes else 0 for name in ("VmRSS", "VmHWM"))
    return ProcessUse((user + system) / _TICKS_PER_SECOND, rss, peak)


def find_children() -> dict[str, int]:
    """Return the processes that this one started and that live, by name; of several of a name the last."""
    found = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            name, _, rest = (place / "stat").read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest.split()[1]) == os.getpid():
            found[name] = int(place.name)
    return found
