"""Answering approvals in local mode: by a person at the terminal, or by a fixed word."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum

from rich.console import Console
from rich.text import Text

from agentrun.contract.approval import AgentApproval, ApprovalRequest, Decision, Verdict
from agentrun.contract.exact_json import JsonRefusedError, parse_json
from agentrun.contract.failures import Effect
from agentrun.contract.node import InboxKind

_AGREEABLE = frozenset({InboxKind.CALL, InboxKind.DUPLICATE, InboxKind.GRANT})
"""Questions that a plain yes or no answers; the others need somebody who found out what happened."""


class Approve(StrEnum):
    """Who answers approvals."""

    ASK = "ask"
    YES = "yes"
    NO = "no"


class FixedAnswers:
    """Says yes (or no) to every call that asks, and prints that it did; leaves all other questions open."""

    def __init__(self, console: Console, *, agree: bool, why: str) -> None:
        self._console = console
        self._agree = agree
        self._why = why

    async def __call__(self, approval: AgentApproval) -> Decision | None:
        """Answer one question."""
        request = _request(approval)
        if request.kind not in _AGREEABLE:
            self._console.print(Text(f"  {request.node}: waits for a human: {request.question}"))
            return None
        verdict = Verdict.APPROVE if self._agree else Verdict.REJECT
        self._console.print(Text(f"  {request.node}: {verdict} ({self._why}): {request.question}"))
        return Decision(verdict=verdict, reason=self._why, decided_by="agentrun local run")


class TerminalAnswers:
    """Asks the person at the terminal, one question after the other."""

    def __init__(self, console: Console, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """``quiet`` keeps the live tree off the terminal while a question stands there."""
        self._console = console
        self._quiet = quiet
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, approval: AgentApproval) -> Decision | None:
        """Ask, and read the answer without holding anything else up."""
        async with self._one_at_a_time:
            with self._quiet():
                return await asyncio.to_thread(self._ask, _request(approval))

    def _ask(self, request: ApprovalRequest) -> Decision | None:
        print_line = self._console.print
        print_line(Text(f"\n{request.node}: {request.question}", style="bold"))
        if request.tool:
            print_line(Text(f"tool {request.tool} with {request.params_preview}"))
        words = {str(verdict).lower(): verdict for verdict in request.allowed}
        while True:
            try:
                text = input(f"{' / '.join(words)} / later: ").strip().lower()
            except EOFError:
                return None
            if text in ("later", ""):
                return None
            # A first letter is enough where it is the only one of its kind.
            fits = [verdict for word, verdict in words.items() if word == text or (text and word.startswith(text))]
            if len(fits) == 1:
                return self._decide(request, fits[0])
            print_line(Text(f"write one of {', '.join(words)}, or later"))

    def _decide(self, request: ApprovalRequest, verdict: Verdict) -> Decision:
        effect: Effect | None = None
        if request.unknown_outcome:
            happened = ""
            while happened not in ("yes", "no"):
                happened = input("was the call executed outside? yes / no: ").strip().lower()
            effect = Effect.EXECUTED if happened == "yes" else Effect.NOT_EXECUTED
        fields: dict[str, object] = {"verdict": verdict, "effect": effect, "decided_by": _find_user()}
        if request.params_digest:
            fields["params_digest"] = request.params_digest
        if verdict is Verdict.RESOLVE:
            fields["result"] = _read_result()
        return Decision.model_validate(fields)


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have a number alone.
        return f"uid {os.getuid()}"


def _read_result() -> object:
    while True:
        try:
            return parse_json(input("its result, as JSON: "))
        except JsonRefusedError as error:
            print(f"that is no JSON: {error}")


def _request(approval: AgentApproval) -> ApprovalRequest:
    request = approval.status.request if approval.status else None
    if request is None:
        raise ValueError("a question without its request is never asked")
    return request
