"""Who may decide an approval, and what a decision is stored as."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from agentrun.contract.approval import Decision
from agentrun.contract.exact_json import JsonObject
from agentrun.controller.webhook.access_reviews import Access, Requester, build_review
from agentrun.controller.webhook.approval_admission import ApprovalAdmission, MalformedReviewError, Stage
from agentrun.controller.webhook.decision_seal import is_sealed
from support.approval_reviews import DIGEST, KEY, UID, FixedKey, Roles, a_request, a_review, an_approval, patched

APPROVE = {"verdict": "Approve"}
GIVEN = {"verdict": "Approve", "decidedBy": "ada", "decidedAt": "2026-01-01T00:00:00Z"}


class _Noon:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=UTC)


def review(
    before: JsonObject, after: JsonObject, roles: Roles, stage: Stage = Stage.MUTATE, user: str = "bob"
) -> dict[str, Any]:
    admission = ApprovalAdmission(roles, FixedKey(), _Noon())
    return asyncio.run(admission.review(stage, a_review(before, after, user)))


def decide(decision: dict[str, Any], *verbs: str) -> dict[str, Any]:
    return review(an_approval(), an_approval(decision), Roles(frozenset(verbs)))


def message(answer: dict[str, Any]) -> str:
    assert not answer["response"]["allowed"]
    return str(answer["response"]["status"]["message"])


def test_a_decision_is_stored_with_the_true_user_the_moment_and_a_seal() -> None:
    after = an_approval({**APPROVE, "decidedBy": "ada", "decidedAt": "2020-01-01T00:00:00Z", "seal": "v1:forged"})
    roles = Roles(frozenset({"approve"}))
    stored = patched(after, review(an_approval(), after, roles))
    assert (stored["decidedBy"], stored["decidedAt"]) == ("bob", "2026-01-01T12:00:00.000000Z")
    assert is_sealed(KEY, UID, a_request(), DIGEST, Decision.from_wire(stored))
    checked = review(an_approval(), an_approval(stored), Roles(), Stage.VALIDATE)
    assert checked["response"] == {"uid": "req-1", "allowed": True}


@pytest.mark.parametrize(
    "decision, want_verbs",
    [
        pytest.param({"verdict": "Approve"}, ["approve"], id="approve"),
        pytest.param({"verdict": "Reject"}, ["approve"], id="reject"),
        pytest.param({"verdict": "Discard", "effect": "Executed"}, ["approve"], id="discard"),
        pytest.param({"verdict": "Release"}, ["release"], id="release"),
        pytest.param({"verdict": "Resolve", "result": 1}, ["resolve"], id="resolve"),
        pytest.param({"verdict": "Redrive"}, ["redrive"], id="redrive"),
        pytest.param({"verdict": "Approve", "params": {"x": 1}}, ["approve", "edit-params"], id="edited"),
        pytest.param({"verdict": "Redrive", "params": {}}, ["redrive", "edit-params"], id="edited to nothing"),
    ],
)
def test_each_decision_needs_its_verbs(decision: dict[str, Any], want_verbs: list[str]) -> None:
    roles = Roles(frozenset(want_verbs))
    assert review(an_approval(), an_approval(decision), roles)["response"]["allowed"]
    assert roles.asked == [("bob", verb) for verb in want_verbs]
    for missing in want_verbs:
        refusal = message(decide(decision, *(verb for verb in want_verbs if verb != missing)))
        assert f'verb "{missing}"' in refusal
        assert 'user "bob"' in refusal


def test_a_given_decision_is_neither_changed_nor_taken_back() -> None:
    everything = Roles(frozenset({"approve", "status:update"}))
    for after in (an_approval({"verdict": "Reject"}), an_approval(), an_approval({**GIVEN, "decidedBy": "eve"})):
        said = message(review(an_approval(GIVEN), after, everything))
        assert "decided already (Approve by ada" in said
        assert "given once" in said


def test_an_update_that_decides_nothing_asks_for_nothing() -> None:
    roles = Roles()
    assert review(an_approval(GIVEN), an_approval(GIVEN, labels={"team": "a"}), roles)["response"]["allowed"]
    assert roles.asked == []


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {"agentrun.dev/run-uid": "other"}}, id="run"),
        pytest.param({"annotations": {"agentrun.dev/x": "y"}}, id="annotation"),
        pytest.param({"ownerReferences": [{"uid": "z"}]}, id="owner"),
        pytest.param({"finalizers": ["a/b"]}, id="finalizer"),
    ],
)
def test_what_ties_an_approval_to_its_run_is_changed_only_by_who_may_write_its_status(
    stage: Stage, metadata: dict[str, Any]
) -> None:
    before, after = an_approval(), an_approval(**metadata)
    said = message(review(before, after, Roles(frozenset({"approve"})), stage))
    assert f"may not change metadata.{next(iter(metadata))}" in said
    assert 'verb "update" on agentapprovals/status' in said
    assert review(before, after, Roles(frozenset({"status:update"})), stage)["response"]["allowed"]


@pytest.mark.parametrize(
    "before, want",
    [
        pytest.param(an_approval(asked=False), "does not stand yet", id="not asked yet"),
        pytest.param(an_approval(state="Expired"), "not open any more (Expired)", id="over"),
    ],
)
def test_only_an_open_question_is_answered(before: JsonObject, want: str) -> None:
    assert want in message(review(before, an_approval(APPROVE), Roles(frozenset({"approve"}))))


def test_a_question_that_the_requester_made_up_does_not_count() -> None:
    # The API server drops what a requester says about the status, after the first webhook has seen it.
    assert "does not stand yet" in message(
        review(an_approval(asked=False), an_approval(APPROVE), Roles(frozenset({"approve"})))
    )


def test_a_decision_that_the_models_refuse_is_refused_with_its_field() -> None:
    said = message(decide({"verdict": "Reject", "params": {"x": 1}}, "approve", "edit-params"))
    assert "params do not go with verdict Reject" in said
    assert "spec.decision.verdict" in message(decide({}, "approve"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"verdict": "Reject"}, id="verdict"),
        pytest.param({"params": {"x": 2}}, id="params"),
        pytest.param({"decidedBy": "ada"}, id="user"),
        pytest.param({"seal": ""}, id="seal removed"),
    ],
)
def test_what_another_webhook_changed_after_the_seal_is_refused(change: dict[str, Any]) -> None:
    after = an_approval(APPROVE)
    stored = patched(after, review(an_approval(), after, Roles(frozenset({"approve"}))))
    said = message(review(an_approval(), an_approval({**stored, **change}), Roles(), Stage.VALIDATE))
    assert "after it was sealed" in said


def test_somebody_elses_sealed_decision_is_not_admitted_as_ones_own() -> None:
    after = an_approval(APPROVE)
    stored = patched(after, review(an_approval(), after, Roles(frozenset({"approve"}))))
    assert message(review(an_approval(), an_approval(stored), Roles(), Stage.VALIDATE, user="eve"))


def test_the_access_review_asks_for_the_requester_as_the_api_server_knows_them() -> None:
    requester = Requester("bob", "u-1", ("staff", "system:authenticated"), {"scopes": ("a", "b")})
    assert build_review(requester, "shop", "a-1", Access("release"))["spec"] == {
        "user": "bob",
        "uid": "u-1",
        "groups": ["staff", "system:authenticated"],
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "group": "agentrun.dev",
            "resource": "agentapprovals",
            "namespace": "shop",
            "name": "a-1",
            "verb": "release",
        },
    }


def test_what_is_no_review_of_an_update_is_not_answered() -> None:
    admission = ApprovalAdmission(Roles(), FixedKey(), _Noon())
    for wrong in ({}, {"apiVersion": "admission.k8s.io/v1", "request": {"object": {}}}):
        with pytest.raises(MalformedReviewError):
            asyncio.run(admission.review(Stage.MUTATE, wrong))
