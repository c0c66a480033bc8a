"""When a human is asked, and which answers count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.node import Inbox, InboxKind
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.approval_rules import (
    Accepted,
    Refused,
    call_needs_approval,
    find_allowed_verdicts,
    judge_decision,
)
from agentrun.decisions.decision_authority import Authority, UnverifiedDecisions, find_authority

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
EXPIRY = NOW + timedelta(hours=1)


def build_tool(*when: JsonObject, **approval: object) -> AgentToolSpec:
    rule = {"when": list(when), **approval}
    return AgentToolSpec.model_validate({"type": "http", "http": {"url": "https://shop.internal/"}, "approval": rule})


OVER_500: JsonObject = {"path": "params.amount", "op": "gt", "value": 500}
ABROAD: JsonObject = {"path": "params.country", "op": "ne", "value": "DE"}


@pytest.mark.parametrize(
    "tool,params,want",
    [
        pytest.param(build_tool(OVER_500), {"amount": 501}, "params.amount gt 500", id="over the threshold"),
        pytest.param(build_tool(OVER_500), {"amount": 500}, None, id="at the threshold"),
        pytest.param(build_tool(OVER_500, ABROAD), {"amount": 1, "country": "FR"}, 'country ne "DE"', id="any test"),
        pytest.param(build_tool(OVER_500), {}, "cannot be judged: params.amount: is missing", id="missing amount asks"),
        pytest.param(build_tool(OVER_500), {"amount": "501"}, "cannot be judged", id="amount as text asks"),
        pytest.param(build_tool(required="Always"), {}, "always", id="always"),
        pytest.param(
            build_tool({"path": "params.force", "op": "exists"}), {"force": None}, "params.force exists", id="exists"
        ),
    ],
)
def test_call_needs_approval(tool: AgentToolSpec, params: JsonObject, want: str | None) -> None:
    got = call_needs_approval(tool, params)

    assert got is None if want is None else got is not None and want in got


def test_tool_without_a_rule_asks_nobody() -> None:
    tool = AgentToolSpec.model_validate({"type": "http", "http": {"url": "https://shop.internal/"}})

    assert call_needs_approval(tool, {"requiresApproval": True}) is None


def build_inbox(kind: InboxKind = InboxKind.QUARANTINE, **fields: object) -> Inbox:
    defaults: JsonObject = {"id": "q-2", "askedAt": NOW, "expiresAt": EXPIRY, "paramsDigest": "sha256:aa"}
    return Inbox.model_validate({"kind": kind, **defaults, **fields})


def build_decision(verdict: str, **fields: object) -> Decision:
    return Decision.model_validate({"verdict": verdict, **fields})


UNKNOWN = build_inbox(unknownOutcome=True)
EXECUTED = build_inbox(executed=True)


@pytest.mark.parametrize(
    "inbox,decision",
    [
        pytest.param(build_inbox(InboxKind.CALL), build_decision("Approve"), id="approve a call"),
        pytest.param(build_inbox(InboxKind.CALL), build_decision("Approve", params={"a": 1}), id="with edited params"),
        pytest.param(
            build_inbox(InboxKind.CALL), build_decision("Approve", paramsDigest="sha256:aa"), id="same digest"
        ),
        pytest.param(build_inbox(InboxKind.DUPLICATE), build_decision("Reject"), id="reject a duplicate"),
        pytest.param(build_inbox(InboxKind.GRANT), build_decision("Approve"), id="grant an attempt"),
        pytest.param(build_inbox(InboxKind.DEAD), build_decision("Redrive", params={"a": 1}), id="re-drive"),
        pytest.param(build_inbox(InboxKind.DEAD), build_decision("Discard"), id="discard the dead"),
        pytest.param(build_inbox(), build_decision("Release", params={"a": 1}), id="release with edited params"),
        pytest.param(build_inbox(), build_decision("Resolve", result={"id": 1}), id="resolve"),
        pytest.param(build_inbox(), build_decision("Resolve", result=None), id="resolve with null"),
        pytest.param(build_inbox(), build_decision("Release", effect="NotExecuted"), id="effect that is known"),
        pytest.param(UNKNOWN, build_decision("Release", effect="NotExecuted"), id="unknown: release not executed"),
        pytest.param(UNKNOWN, build_decision("Resolve", effect="Executed", result=1), id="unknown: resolve executed"),
        pytest.param(UNKNOWN, build_decision("Discard", effect="Executed"), id="unknown: discard executed"),
        pytest.param(UNKNOWN, build_decision("Discard", effect="NotExecuted"), id="unknown: discard not executed"),
        pytest.param(EXECUTED, build_decision("Resolve", result=1), id="executed: resolve"),
        pytest.param(EXECUTED, build_decision("Resolve", effect="Executed", result=1), id="executed: said again"),
        pytest.param(EXECUTED, build_decision("Discard"), id="executed: discard"),
    ],
)
def test_answer_to_the_open_question_is_accepted(inbox: Inbox, decision: Decision) -> None:
    assert judge_decision(decision, "q-2", inbox, NOW) == Accepted(decision)


@pytest.mark.parametrize(
    "inbox,decision,want",
    [
        pytest.param(None, build_decision("Approve"), "is not open any more", id="nothing is open"),
        pytest.param(
            build_inbox(InboxKind.CALL, id="q-3"), build_decision("Approve"), "open one is q-3", id="later question"
        ),
        pytest.param(
            build_inbox(InboxKind.CALL, expiresAt=NOW), build_decision("Approve"), "has expired", id="at the expiry"
        ),
        pytest.param(
            build_inbox(InboxKind.CALL),
            build_decision("Approve", paramsDigest="sha256:bb"),
            "paramsDigest sha256:bb is not that of the params in question",
            id="other params",
        ),
        pytest.param(
            build_inbox(InboxKind.CALL), build_decision("Release"), "use Approve or Reject", id="release a call"
        ),
        pytest.param(
            build_inbox(InboxKind.DEAD), build_decision("Approve"), "use Redrive or Discard", id="approve the dead"
        ),
        pytest.param(
            build_inbox(), build_decision("Redrive"), "use Release or Resolve or Discard", id="re-drive the living"
        ),
        pytest.param(build_inbox(), build_decision("Resolve"), "needs result", id="resolve without a result"),
        pytest.param(
            build_inbox(), build_decision("Discard", effect="Executed"), "nothing was executed", id="invented effect"
        ),
        pytest.param(UNKNOWN, build_decision("Release"), "say effect", id="unknown: release without the effect"),
        pytest.param(
            UNKNOWN,
            build_decision("Release", params={"a": 1}),
            "say effect",
            id="unknown: editing params frees of nothing",
        ),
        pytest.param(UNKNOWN, build_decision("Discard"), "say effect", id="unknown: discard without the effect"),
        pytest.param(
            UNKNOWN,
            build_decision("Release", effect="Executed"),
            "never leads to another execution",
            id="unknown: release what was executed",
        ),
        pytest.param(
            UNKNOWN,
            build_decision("Resolve", effect="NotExecuted", result=1),
            "with effect NotExecuted, Release or Discard",
            id="unknown: result of what was not executed",
        ),
        pytest.param(EXECUTED, build_decision("Release"), "use Resolve or Discard", id="executed: release"),
        pytest.param(
            EXECUTED,
            build_decision("Discard", effect="NotExecuted"),
            "contradicts what is known",
            id="executed: denied",
        ),
    ],
)
def test_other_answer_is_refused_with_the_reason(inbox: Inbox | None, decision: Decision, want: str) -> None:
    got = judge_decision(decision, "q-2", inbox, NOW)

    assert isinstance(got, Refused)
    assert want in got.message


@pytest.mark.parametrize(
    "inbox,decision",
    [
        pytest.param(build_inbox(InboxKind.CALL), build_decision("Approve"), id="approve"),
        pytest.param(build_inbox(InboxKind.GRANT), build_decision("Reject"), id="reject"),
        pytest.param(build_inbox(), build_decision("Discard"), id="discard"),
        pytest.param(EXECUTED, build_decision("Discard"), id="executed: discard"),
        pytest.param(UNKNOWN, build_decision("Discard"), id="unknown: discard and leave it unknown"),
        pytest.param(build_inbox(InboxKind.DEAD), build_decision("Discard"), id="discard the dead"),
    ],
)
def test_who_is_unknown_may_say_yes_and_no_and_give_up(inbox: Inbox, decision: Decision) -> None:
    assert judge_decision(decision, "q-2", inbox, NOW, Authority.YES_OR_NO) == Accepted(decision)
    refused = judge_decision(decision, "q-2", inbox, NOW, Authority.NOTHING)
    assert isinstance(refused, Refused)
    assert "not verified" in refused.message


@pytest.mark.parametrize(
    "inbox,decision,want",
    [
        pytest.param(build_inbox(), build_decision("Release"), "verdict Release is refused", id="release"),
        pytest.param(build_inbox(), build_decision("Resolve", result=1), "verdict Resolve is refused", id="resolve"),
        pytest.param(
            build_inbox(InboxKind.DEAD), build_decision("Redrive"), "verdict Redrive is refused", id="redrive"
        ),
        pytest.param(
            build_inbox(InboxKind.CALL), build_decision("Approve", params={}), "editing the params", id="edited params"
        ),
        pytest.param(
            UNKNOWN, build_decision("Discard", effect="NotExecuted"), "saying effect NotExecuted", id="what happened"
        ),
        pytest.param(
            EXECUTED, build_decision("Discard", effect="Executed"), "saying effect Executed", id="what is known"
        ),
        pytest.param(build_inbox(), build_decision("Approve"), "use Discard", id="another question's answer"),
    ],
)
def test_who_is_unknown_may_say_no_more(inbox: Inbox, decision: Decision, want: str) -> None:
    got = judge_decision(decision, "q-2", inbox, NOW, Authority.YES_OR_NO)

    assert isinstance(got, Refused)
    assert want in got.message


@pytest.mark.parametrize(
    "rule,verified,want",
    [
        pytest.param(UnverifiedDecisions.REFUSE, True, Authority.EVERYTHING, id="refuse, verified"),
        pytest.param(UnverifiedDecisions.REFUSE, False, Authority.NOTHING, id="refuse"),
        pytest.param(UnverifiedDecisions.APPROVE_AND_REJECT, True, Authority.EVERYTHING, id="yes or no, verified"),
        pytest.param(UnverifiedDecisions.APPROVE_AND_REJECT, False, Authority.YES_OR_NO, id="yes or no"),
        pytest.param(UnverifiedDecisions.ALL, False, Authority.EVERYTHING, id="all"),
    ],
)
def test_authority(rule: UnverifiedDecisions, verified: bool, want: Authority) -> None:
    assert find_authority(rule, verified=verified) is want


@pytest.mark.parametrize(
    "inbox,want",
    [
        pytest.param(build_inbox(InboxKind.CALL), (Verdict.APPROVE, Verdict.REJECT), id="call"),
        pytest.param(build_inbox(), (Verdict.DISCARD,), id="quarantine"),
        pytest.param(EXECUTED, (Verdict.DISCARD,), id="executed"),
        pytest.param(build_inbox(InboxKind.DEAD), (Verdict.DISCARD,), id="dead"),
    ],
)
def test_every_question_can_be_answered_by_who_is_unknown(inbox: Inbox, want: tuple[Verdict, ...]) -> None:
    assert find_allowed_verdicts(inbox, Authority.YES_OR_NO) == want
    assert find_allowed_verdicts(inbox, Authority.NOTHING) == ()


@pytest.mark.parametrize(
    "inbox,want",
    [
        pytest.param(build_inbox(InboxKind.CALL), (Verdict.APPROVE, Verdict.REJECT), id="call"),
        pytest.param(build_inbox(), (Verdict.RELEASE, Verdict.RESOLVE, Verdict.DISCARD), id="quarantine"),
        pytest.param(EXECUTED, (Verdict.RESOLVE, Verdict.DISCARD), id="executed is never released"),
        pytest.param(build_inbox(InboxKind.DEAD), (Verdict.REDRIVE, Verdict.DISCARD), id="dead"),
    ],
)
def test_allowed_verdicts(inbox: Inbox, want: tuple[Verdict, ...]) -> None:
    assert find_allowed_verdicts(inbox) == want
