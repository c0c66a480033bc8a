"""How the operator's settings are read from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from agentrun.contract.run import Priority
from agentrun.controller.operator_settings import OperatorSettings
from agentrun.decisions.decision_authority import UnverifiedDecisions
from agentrun.decisions.namespace_policy import NamespacePolicy


@pytest.mark.parametrize(
    "said, want_slots",
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("P0=2", {Priority.P0: 2}, id="one-priority"),
        pytest.param("P0=2, P1=4", {Priority.P0: 2, Priority.P1: 4}, id="two-priorities"),
    ],
)
def test_reserved_slots_are_read(monkeypatch: pytest.MonkeyPatch, said: str, want_slots: dict[Priority, int]) -> None:
    monkeypatch.setenv("AGENTRUN_OPERATOR_RESERVED_SLOTS", said)

    assert OperatorSettings().reserved_slots == want_slots


@pytest.mark.parametrize("said", ["P0", "P9=1", "P0=-1", "P0=many"])
def test_reserved_slots_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("AGENTRUN_OPERATOR_RESERVED_SLOTS", said)

    with pytest.raises(ValidationError, match="reserved_slots"):
        OperatorSettings()


def test_a_url_of_the_webhook_needs_a_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_URL", "https://10.0.0.1:8443")
    with pytest.raises(ValidationError, match="webhook_listen"):
        OperatorSettings()
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_LISTEN", "0.0.0.0:8443")
    assert OperatorSettings().webhook_url == "https://10.0.0.1:8443"


@pytest.mark.parametrize(
    "listen, said, want",
    [
        pytest.param("", "", UnverifiedDecisions.APPROVE_AND_REJECT, id="no-webhook"),
        pytest.param("0.0.0.0:8443", "", UnverifiedDecisions.REFUSE, id="webhook"),
        pytest.param("", "All", UnverifiedDecisions.ALL, id="given-up"),
        pytest.param("", "Refuse", UnverifiedDecisions.REFUSE, id="sealed-by-others"),
        pytest.param("0.0.0.0:8443", "ApproveAndReject", UnverifiedDecisions.APPROVE_AND_REJECT, id="both"),
    ],
)
def test_what_unverified_decisions_may_say_depends_on_the_webhook_unless_it_is_set(
    monkeypatch: pytest.MonkeyPatch, listen: str, said: str, want: UnverifiedDecisions
) -> None:
    for field, value in (("WEBHOOK_LISTEN", listen), ("APPROVALS_UNVERIFIED", said)):
        if value:
            monkeypatch.setenv(f"AGENTRUN_OPERATOR_{field}", value)

    assert OperatorSettings().unverified_decisions is want


@pytest.mark.parametrize("said", ["true", "approveandreject", ""])
def test_a_rule_for_unverified_decisions_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED", said)

    with pytest.raises(ValidationError, match="approvals_unverified"):
        OperatorSettings()


def test_a_folder_of_certificates_goes_with_a_webhook_and_without_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_CERTIFICATE_FOLDER", "/certificates")
    with pytest.raises(ValidationError, match="goes with webhook_listen"):
        OperatorSettings()
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_LISTEN", "0.0.0.0:8443")
    assert OperatorSettings().webhook_certificate_folder == Path("/certificates")
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_URL", "https://10.0.0.1:8443")
    with pytest.raises(ValidationError, match="does not go with webhook_url"):
        OperatorSettings()


@pytest.mark.parametrize("url", ["http://10.0.0.1", "https://", "https://10.0.0.1/path", "https://u@h?x"])
def test_a_url_that_no_api_server_takes_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_LISTEN", "0.0.0.0:8443")
    monkeypatch.setenv("AGENTRUN_OPERATOR_WEBHOOK_URL", url)
    with pytest.raises(ValidationError, match="webhook_url"):
        OperatorSettings()


def test_policies_of_namespaces_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    said = '{"*": {"highestPriority": "P1", "budget": "50.00"}, "shop": {"share": 3}}'
    monkeypatch.setenv("AGENTRUN_OPERATOR_NAMESPACE_POLICIES", said)

    policies = OperatorSettings().policies

    assert policies.find("shop") == NamespacePolicy(share=3)
    assert policies.find("other") == NamespacePolicy(Priority.P1, 50_000_000)


@pytest.mark.parametrize(
    "said",
    ['{"Shop": {}}', '{"shop": {"budget": 50}}', '{"shop": {"highestPriority": "P9"}}', '{"shop": {"budgets": "1"}}'],
    ids=["no namespace", "money as a number", "no priority", "unknown bound"],
)
def test_policies_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("AGENTRUN_OPERATOR_NAMESPACE_POLICIES", said)

    with pytest.raises(ValidationError, match="namespace_policies"):
        OperatorSettings()
