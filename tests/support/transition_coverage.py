"""A pytest plugin that reports which rows of the state machine the suite's runs went through.

It listens where the engine applies a move, so only moves of whole runs count, not those that a unit test makes up. When
the whole suite was asked for, a row that nothing reached fails it.
"""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.decisions import moves
from agentrun.decisions.node_states import TRANSITIONS
from agentrun.engine import node_effects


class TransitionCoverage:
    """Collects (from, to) pairs in every worker process and reports them in the one that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reached: dict[tuple[str, str], int] = {}
        original = moves.apply_move

        def counted(status: Any, move: Any, now: Any, pause_total: Any) -> Any:
            answer = original(status, move, now, pause_total)
            pair = (str(status.phase), str(move.to))
            self._reached[pair] = self._reached.get(pair, 0) + 1
            return answer

        node_effects.apply_move = counted  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take in what a worker process reached."""
        output = getattr(node, "workeroutput", {})
        for pair, count in output.get("transitions", []):
            key = (pair[0], pair[1])
            self._reached[key] = self._reached.get(key, 0) + count

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over to the printing process, or judge."""
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["transitions"] = list(self._reached.items())
            return
        if self._covers_whole_suite() and self._missing() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the report."""
        if not self._covers_whole_suite():
            return
        missing = self._missing()
        terminalreporter.section("state machine coverage")
        terminalreporter.write_line(
            f"{len(TRANSITIONS) - len(missing)} of {len(TRANSITIONS)} rows were passed by whole runs"
        )
        for row in missing:
            terminalreporter.write_line(f"NOT REACHED: {row}")

    def _covers_whole_suite(self) -> bool:
        option = self._config.option
        picked = option.keyword or option.markexpr or getattr(option, "lf", False)
        whole = [str(argument) for argument in self._config.args] in (["tests"], [str(self._config.rootpath / "tests")])
        return whole and not picked

    def _missing(self) -> list[str]:
        return [row.name for row in TRANSITIONS if (str(row.from_phase), str(row.to_phase)) not in self._reached]
