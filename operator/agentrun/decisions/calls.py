"""The final call of a task: params resolved, gated, digested and keyed. What stands here is what everybody sees."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from agentrun.contract.defaults import PARAMS_MAX_BYTES
from agentrun.contract.exact_json import JsonObject, canonical_json, json_digest
from agentrun.contract.failures import Reason
from agentrun.contract.node import CallStatus, ToolRef
from agentrun.decisions.facts import NodeFacts
from agentrun.decisions.idempotency_keys import IdempotencyScopeNames, build_record_key
from agentrun.decisions.references import UnresolvedReferenceError, parse_template, resolve_template


@dataclass(frozen=True, slots=True)
class CallRefused:
    """The params cannot be used: nothing is called."""

    reason: str
    message: str


def build_call(facts: NodeFacts, names: IdempotencyScopeNames, ref: ToolRef) -> CallStatus | CallRefused:
    """Return the node's final call, or why there is none.

    Params a human edited take the place of the author's. The request id is the same each time the same call is
    built, so a repeated dispatch after a restart is recognised.
    """
    tool = facts.tool
    if tool is None:
        return CallRefused(Reason.TOOL_NOT_FOUND, f"tool {ref.name} has no definition any more")
    try:
        params = _resolve_params(facts)
        own_key = _resolve_own_key(facts)
    except UnresolvedReferenceError as error:
        return CallRefused(Reason.REFERENCE_UNRESOLVED, str(error))
    size = len(canonical_json(params).encode())
    if size > PARAMS_MAX_BYTES:
        return CallRefused(
            Reason.PARAMS_TOO_LARGE,
            f"params have {size} bytes, at most {PARAMS_MAX_BYTES} are allowed: pass a reference",
        )
    if tool.params is not None:
        problems = facts.judge(tool.params.schema_, params)
        if problems:
            said = "; ".join(f"params{_at(problem.path)}: {problem.message}" for problem in problems)
            return CallRefused(Reason.PARAMS_INVALID, said)
    digest = json_digest(params)
    scope, key = build_record_key(facts, names, params_digest=digest, own_key=own_key)
    identity = f"{names.node_uid}/{key}/{digest}"
    return CallStatus(
        request_id=f"{ref.name[:80]}-{_uuid_of(identity)}",
        tool=ref,
        params=params,
        params_digest=digest,
        key=key,
        scope=scope,
        hold_micros=tool.cost.per_call if tool.cost else 0,
    )


def _uuid_of(identity: str) -> str:
    """Return a UUID made of the text's hash (RFC 9562, version 8): the same text gives the same one."""
    digits = hashlib.sha256(identity.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def _resolve_params(facts: NodeFacts) -> JsonObject:
    if facts.status.edited_params is not None:
        return facts.status.edited_params
    resolved = resolve_template(parse_template(facts.spec.node.params), facts.scope)
    if not isinstance(resolved, dict):
        raise TypeError("params resolve to an object because they are one")
    return resolved


def _resolve_own_key(facts: NodeFacts) -> str | None:
    own = facts.spec.node.idempotency
    if own is None:
        return None
    return str(resolve_template(parse_template(own.key), facts.scope))


def _at(path: str) -> str:
    return f".{path}" if path and not path.startswith("[") else path
