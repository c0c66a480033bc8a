"""Where the measured tool notes its calls: one file for each process of the bench that makes calls.

The tool reads the file's place from the environment when it is first imported, so it is set once, before any run.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from bench_cluster.figures import count_repetitions

_VARIABLE = "BENCH_CLOCK"


class ClockLog:
    """Reads what was noted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_calls(self) -> dict[str, list[tuple[str, float]]]:
        """Return by run the calls that were made: under which word, and when."""
        made: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for line in self.path.read_text().splitlines():
            word, at = line.split("\t")
            made[word.partition("/")[0]].append((word, float(at)))
        return made

    def count_oddities(self, runs: Mapping[str, int]) -> dict[str, int]:
        """Return how many calls are missing and how many were made again, of runs that were to make so many each."""
        calls = self.read_calls()
        made = {run: [word for word, _ in calls.get(run, ())] for run in runs}
        return {
            "calls_missing": sum(max(0, wanted - len(set(made[run]))) for run, wanted in runs.items()),
            "calls_repeated": sum(count_repetitions(words) for words in made.values()),
        }


def open_clock_log() -> ClockLog:
    """Have the calls of this process and of its children noted, in one file for as long as this process lives."""
    known = os.environ.get(_VARIABLE)
    if known is not None:
        return ClockLog(Path(known))
    descriptor, name = tempfile.mkstemp(prefix="agentrun-bench-", suffix=".tsv")
    os.close(descriptor)
    os.environ[_VARIABLE] = name
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    return ClockLog(path)


def forget_clock_log() -> dict[str, str]:
    """Return the environment of a child process that is to have a log of its own."""
    return {name: value for name, value in os.environ.items() if name != _VARIABLE}
