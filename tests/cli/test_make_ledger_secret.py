"""``agentrun operator make-ledger-secret``: what it says when the Secret may not be made."""

from __future__ import annotations

import pytest
from kubernetes import client

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.ledger_secret import make_ledger_secret
from agentrun.controller import api_access, ledger_secret
from agentrun.controller.api_access import ApiAccess
from agentrun.engine.cluster_port import ForbiddenError, HeldBackError, QuotaExceededError


@pytest.mark.parametrize(
    "refusal, said",
    [
        (QuotaExceededError("few-secrets", "exceeded quota: few-secrets"), "exceeded quota: few-secrets"),
        (ForbiddenError("create secrets", "the operator may not create secrets"), "may not create secrets"),
    ],
)
def test_what_the_cluster_refuses_is_named_at_once(
    refusal: HeldBackError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(api_access, "load_access", lambda kubeconfig: ApiAccess(client.Configuration(host="http://x")))
    monkeypatch.setattr(ledger_secret, "ensure_ledger_secret", refuse)
    assert make_ledger_secret(secret="ledger", host="valkey:6379") == ExitCode.FAILED
    assert said in capsys.readouterr().err
