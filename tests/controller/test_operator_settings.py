"""How the operator's settings are read from the environment."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agentrun.contract.run import Priority
from agentrun.controller.operator_settings import OperatorSettings


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
