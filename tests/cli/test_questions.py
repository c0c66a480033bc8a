"""Questions answered at the terminal, by whoever sits there."""

from __future__ import annotations

import contextlib
import io
import os

import pytest
from rich.console import Console

from agentrun.cli.questions import TerminalAnswers
from agentrun.contract.approval import AgentApproval, Verdict
from support.approval_reviews import an_approval


async def test_a_person_whom_the_machine_has_no_name_for_decides_under_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_000)
    monkeypatch.setattr("sys.stdin", io.StringIO("approve\n"))
    answers = TerminalAnswers(Console(file=io.StringIO()), contextlib.nullcontext)
    question = an_approval()
    question["status"]["request"]["allowed"] = ["Approve"]
    decision = await answers(AgentApproval.model_validate(question))
    assert decision is not None
    assert (decision.verdict, decision.decided_by) == (Verdict.APPROVE, "uid 2000000000")
