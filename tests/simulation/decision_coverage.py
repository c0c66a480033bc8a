"""Which branches of the decisions histories take: for ``make simulate ARGS=--coverage``.

Every process that lives histories counts for itself (:func:`prepare_process`) and leaves its counts in a folder when it
ends; the process that started them adds them up. Only branches are counted: what a module does when it is imported
proves nothing.
"""

from __future__ import annotations

import json
from multiprocessing.util import Finalize
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import Coverage

from simulation.one_history import silence

_PACKAGE = "agentrun.decisions"


def prepare_process(folder: str) -> None:
    """Have a process live histories in silence and count into the folder until it ends; empty: not count."""
    silence()
    if not folder:
        return
    counting = _build(folder, suffix=True)
    counting.start()

    def save() -> None:
        counting.stop()
        counting.save()

    Finalize(counting, save, exitpriority=100)


class DecisionCoverage:
    """The sum of what processes counted into :attr:`folder`."""

    def __init__(self) -> None:
        self._place = TemporaryDirectory()
        self.folder = self._place.name

    def report(self) -> str:
        """Return how many branches were taken, and of each module those that were not."""
        with self._place:
            total = _build(self.folder)
            total.combine([self.folder])
            told = Path(self.folder, "told.json")
            total.json_report(outfile=str(told))
            found = json.loads(told.read_text())
        lines = [_line(Path(name).stem, file["summary"], file) for name, file in sorted(found["files"].items())]
        return "\n".join([*filter(None, lines), _line(f"branches of {_PACKAGE}", found["totals"], {"whole": True})])


def _line(name: str, summary: dict[str, int], file: dict[str, object]) -> str:
    taken, of = summary["covered_branches"], summary["num_branches"]
    if not of or (taken == of and "whole" not in file):
        return ""
    missing = file.get("missing_branches")
    ways = ", ".join(f"{start}->{end}" for start, end in missing) if isinstance(missing, list) else ""
    return f"{name}: {taken} of {of} taken ({100 * taken / of:.1f} %)" + (f"; not {ways}" if ways else "")


def _build(folder: str, *, suffix: bool = False) -> Coverage:
    return Coverage(
        data_file=str(Path(folder, "counts")),
        data_suffix=suffix,
        branch=True,
        source_pkgs=[_PACKAGE],
        config_file=False,
        messages=False,
    )
