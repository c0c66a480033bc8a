"""Which calls are one call."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import json_digest, parse_json
from agentrun.contract.orders import RecordRef
from agentrun.contract.tool import AgentToolSpec, IdempotencyScope, OnDuplicate
from agentrun.decisions.idempotency_keys import (
    CallIdentity,
    IdempotencyScopeNames,
    build_record_ref,
    find_scope,
    record_key,
)

NAMES = IdempotencyScopeNames(run_uid="run-1", session="s-42", node_uid="node-1", attempt=1)
CALL = CallIdentity("refund", "sha256:aa")


def build_tool(side_effect: str = "Once", **idempotency: object) -> AgentToolSpec:
    return AgentToolSpec.model_validate(
        {
            "type": "http",
            "http": {"url": "https://shop.internal/"},
            "sideEffect": side_effect,
            **({"idempotency": idempotency} if idempotency else {}),
        }
    )


@pytest.mark.parametrize(
    "tool,has_session,has_author_key,want",
    [
        pytest.param(build_tool("Once"), True, False, "Session", id="once in a session"),
        pytest.param(build_tool("Once"), False, False, "Run", id="once without a session"),
        pytest.param(build_tool("Idempotent"), True, False, "Session", id="idempotent in a session"),
        pytest.param(build_tool("None"), True, False, "Attempt", id="a read is never answered from the past"),
        pytest.param(build_tool("None"), True, True, "Session", id="unless its author gave a key"),
        pytest.param(build_tool("Once", scope="Namespace"), True, False, "Namespace", id="declared"),
        pytest.param(build_tool("None", scope="Run"), True, False, "Run", id="declared for a read"),
        pytest.param(build_tool("Once", scope="Session"), False, False, "Run", id="declared session without one"),
    ],
)
def test_scope(tool: AgentToolSpec, has_session: bool, has_author_key: bool, want: str) -> None:
    assert find_scope(tool, has_session=has_session, has_author_key=has_author_key) == want


@pytest.mark.parametrize(
    "scope,other,want_same",
    [
        pytest.param(
            "Session", replace(NAMES, run_uid="run-2", node_uid="node-2", attempt=3), True, id="session spans runs"
        ),
        pytest.param("Session", replace(NAMES, session="s-43"), False, id="other session"),
        pytest.param("Run", replace(NAMES, node_uid="node-2", attempt=2), True, id="run spans nodes"),
        pytest.param("Run", replace(NAMES, run_uid="run-2"), False, id="other run"),
        pytest.param(
            "Namespace", replace(NAMES, run_uid="run-2", session="", node_uid="n"), True, id="namespace spans all"
        ),
        pytest.param("Attempt", NAMES, True, id="the same attempt"),
        pytest.param("Attempt", replace(NAMES, attempt=2), False, id="other attempt"),
        pytest.param("Attempt", replace(NAMES, node_uid="node-2"), False, id="other node"),
    ],
)
def test_equal_calls_meet_inside_their_scope(scope: str, other: IdempotencyScopeNames, want_same: bool) -> None:
    within = IdempotencyScope(scope)

    assert (record_key(CALL, within, NAMES) == record_key(CALL, within, other)) is want_same


@pytest.mark.parametrize(
    "left,right,want_same",
    [
        pytest.param(CALL, replace(CALL, params_digest="sha256:bb"), False, id="other params"),
        pytest.param(CALL, replace(CALL, tool="charge"), False, id="other tool"),
        pytest.param(
            replace(CALL, author_key="k"),
            replace(CALL, author_key="k", params_digest="sha256:bb"),
            True,
            id="author's key whatever the params",
        ),
        pytest.param(replace(CALL, author_key="k"), replace(CALL, author_key="l"), False, id="other author's key"),
        pytest.param(
            replace(CALL, author_key="k"),
            replace(CALL, author_key="k", tool="charge"),
            False,
            id="key is the tool's own",
        ),
        pytest.param(CALL, replace(CALL, approved_by="aa-1"), False, id="approved repetition is another call"),
        pytest.param(
            replace(CALL, author_key="k", approved_by="aa-1"),
            replace(CALL, author_key="k", approved_by="aa-2"),
            False,
            id="each approval has its own",
        ),
        pytest.param(CALL, replace(CALL, author_key=CALL.params_digest), False, id="key that looks like a digest"),
        pytest.param(
            replace(CALL, approved_by="x"), replace(CALL, author_key="x"), False, id="key that looks like an approval"
        ),
    ],
)
def test_identity_of_a_call(left: CallIdentity, right: CallIdentity, want_same: bool) -> None:
    keys = [record_key(call, IdempotencyScope.SESSION, NAMES) for call in (left, right)]

    assert (keys[0] == keys[1]) is want_same


def test_equal_params_in_other_spelling_are_one_call() -> None:
    spellings = ['{"a": 5.0, "b": "x"}', '{"b":"x","a":5}', '{"b":"x","a":50e-1}']

    digests = {json_digest(parse_json(text)) for text in spellings}

    assert len(digests) == 1


@given(st.text(), st.text(), st.sampled_from(IdempotencyScope), st.sampled_from(IdempotencyScope))
def test_scopes_never_meet(run_uid: str, session: str, left: IdempotencyScope, right: IdempotencyScope) -> None:
    names = replace(NAMES, run_uid=run_uid, session=session)

    assert (record_key(CALL, left, names) == record_key(CALL, right, names)) is (left is right)


def test_record_takes_window_and_policy_of_the_tool() -> None:
    tool = build_tool("Once", window="720h", onDuplicate="Ask")

    got = build_record_ref(tool, IdempotencyScope.SESSION, "k", own_key=True)

    assert got == RecordRef(
        key="k",
        scope=IdempotencyScope.SESSION,
        window_ms=720 * 3_600_000,
        on_duplicate=OnDuplicate.ASK,
        own_key=True,
    )


def test_record_is_kept_thirty_days_and_replayed_by_default() -> None:
    got = build_record_ref(build_tool(), IdempotencyScope.SESSION, "k", own_key=False)

    assert got.window_ms == timedelta(days=30) // timedelta(milliseconds=1)
    assert got.on_duplicate is OnDuplicate.REPLAY
