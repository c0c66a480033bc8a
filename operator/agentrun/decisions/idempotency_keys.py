"""Under which record a call is kept: when two calls are one call.

A call's own key is the tool first asked for and the digest of the canonical params, or the tool and the key its author
gave the node; a repetition a human approved has a key made from that approval, so it is nobody's duplicate. The scope
says within what equal keys meet. Scope, the scope's name and the own key are hashed together into the record's key,
which is unique inside one install and namespace.

Called when the final params stand. What the record then says is the gate's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from agentrun.contract.defaults import IDEMPOTENCY_WINDOW
from agentrun.contract.exact_json import JsonValue, canonical_json
from agentrun.contract.ledger_keys import short_hash
from agentrun.contract.orders import RecordRef
from agentrun.contract.tool import AgentToolSpec, Idempotency, IdempotencyScope, SideEffect
from agentrun.decisions.facts import NodeFacts


@dataclass(frozen=True, slots=True)
class IdempotencyScopeNames:
    """What the scopes are called for one attempt of one node."""

    run_uid: str
    """The root run's, where the run is a retry of another: it keeps the root's idempotency."""
    session: str
    """Empty: the run has no session."""
    node_uid: str
    attempt: int
    """The attempt the call is built for, from 1."""


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """What makes a call this call and no other."""

    tool: str
    """The tool first asked for: a step down the ladder is still the same call."""
    params_digest: str
    author_key: str | None = None
    """The node's ``idempotency.key``, resolved."""
    approved_by: str = ""
    """The uid of the approval that allowed this repetition; wins over everything."""


def build_record_key(
    facts: NodeFacts, names: IdempotencyScopeNames, *, params_digest: str, own_key: str | None
) -> tuple[IdempotencyScope, str]:
    """Return scope and record key of the node's final call."""
    if facts.tool is None:
        raise ValueError("only a call to a tool has a record")
    asked = facts.spec.tool.name if facts.spec.tool else facts.spec.node.tool or ""
    identity = CallIdentity(asked, params_digest, own_key, facts.status.own_key)
    scope = find_scope(facts.tool, has_session=bool(names.session), has_author_key=own_key is not None)
    return scope, record_key(identity, scope, names)


def build_record_ref(tool: AgentToolSpec, scope: IdempotencyScope, key: str, *, own_key: bool) -> RecordRef:
    """Return the record an order goes with. ``own_key``: a human approved the repetition."""
    policy = tool.idempotency or Idempotency()
    window = IDEMPOTENCY_WINDOW if policy.window is None else policy.window
    return RecordRef(
        key=key,
        scope=scope,
        window_ms=window // timedelta(milliseconds=1),
        on_duplicate=policy.on_duplicate,
        own_key=own_key,
    )


def find_scope(tool: AgentToolSpec, *, has_session: bool, has_author_key: bool) -> IdempotencyScope:
    """Return within what an equal call is the same call.

    The tool's declared scope, else Session for Idempotent and Once tools and Attempt for others: a read is never
    answered from the past, unless its author gave it a key. Session is Run where the run has none.
    """
    declared = tool.idempotency.scope if tool.idempotency else None
    if declared is not None:
        scope = declared
    elif tool.side_effect is SideEffect.NONE and not has_author_key:
        scope = IdempotencyScope.ATTEMPT
    else:
        scope = IdempotencyScope.SESSION
    return IdempotencyScope.RUN if scope is IdempotencyScope.SESSION and not has_session else scope


def record_key(identity: CallIdentity, scope: IdempotencyScope, names: IdempotencyScopeNames) -> str:
    """Return the record's key: 32 hex digits over scope, the scope's name and the call's own key."""
    parts: list[JsonValue] = [str(scope), _scope_name(scope, names), _own_key(identity)]
    return short_hash(canonical_json(parts))


def _scope_name(scope: IdempotencyScope, names: IdempotencyScopeNames) -> list[JsonValue]:
    match scope:
        case IdempotencyScope.ATTEMPT:
            return [names.run_uid, names.node_uid, names.attempt]
        case IdempotencyScope.RUN:
            return [names.run_uid]
        case IdempotencyScope.SESSION:
            return [names.session]
        case IdempotencyScope.NAMESPACE:
            return []


def _own_key(identity: CallIdentity) -> list[JsonValue]:
    # A meant repetition belongs to the human act that allowed it.
    if identity.approved_by:
        return ["approval", identity.approved_by]
    # The author's key says which calls are the same, whatever their params: other params are a conflict at the gate.
    if identity.author_key is not None:
        return ["key", identity.tool, identity.author_key]
    return ["params", identity.tool, identity.params_digest]
