"""A seal holds for one decision on one question, and for nothing else."""

from typing import Any

import pytest

from agentrun.contract.approval import Decision
from agentrun.controller.webhook.decision_seal import is_sealed, make_seal
from support.approval_reviews import DIGEST, KEY, UID, a_request

GIVEN: dict[str, Any] = {
    "verdict": "Resolve",
    "effect": "Executed",
    "result": {"total": 12.50, "list": [1, None]},
    "reason": "looked it up",
    "decidedBy": "bob",
    "decidedAt": "2026-01-01T12:00:00.000001Z",
}


def sealed(**changes: Any) -> Decision:
    decision = Decision.from_wire(GIVEN)
    seal = make_seal(KEY, UID, a_request(), DIGEST, decision)
    return Decision.from_wire({**GIVEN, "seal": seal, **changes})


def test_a_seal_outlives_the_way_through_the_api_server() -> None:
    # Which writes numbers and times in its own way.
    again = sealed(result={"list": [1, None], "total": 12.5}, decidedAt="2026-01-01T13:00:00.000001+01:00")
    assert is_sealed(KEY, UID, a_request(), DIGEST, again)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"verdict": "Discard", "result": None}, id="verdict"),
        pytest.param({"effect": None}, id="effect"),
        pytest.param({"result": {"total": 12.51, "list": [1, None]}}, id="result"),
        pytest.param({"decidedBy": "eve"}, id="user"),
        pytest.param({"decidedAt": "2026-01-01T12:00:01Z"}, id="moment"),
        pytest.param({"reason": ""}, id="reason"),
        pytest.param({"paramsDigest": "sha256:22"}, id="digest looked at"),
        pytest.param({"seal": ""}, id="no seal"),
        pytest.param({"seal": "v1:é"}, id="no ASCII"),
    ],
)
def test_a_changed_decision_is_not_sealed(changes: dict[str, Any]) -> None:
    fields = {**GIVEN, "seal": sealed().seal, **changes}
    decision = Decision.from_wire({key: value for key, value in fields.items() if value is not None})
    assert not is_sealed(KEY, UID, a_request(), DIGEST, decision)


def test_edited_params_are_sealed() -> None:
    given = {"verdict": "Approve", "decidedBy": "bob", "params": {"amount": 1}}
    seal = make_seal(KEY, UID, a_request(), DIGEST, Decision.from_wire(given))
    edited = Decision.from_wire({**given, "seal": seal, "params": {"amount": 2}})
    assert not is_sealed(KEY, UID, a_request(), DIGEST, edited)


def test_a_seal_is_no_use_for_another_question_other_params_or_another_key() -> None:
    assert not is_sealed(KEY, "other", a_request(), DIGEST, sealed())
    assert not is_sealed(KEY, UID, a_request().model_copy(update={"inbox_id": "call-2"}), DIGEST, sealed())
    assert not is_sealed(KEY, UID, a_request(), "sha256:22", sealed())
    assert not is_sealed(b"other" * 8, UID, a_request(), DIGEST, sealed())
