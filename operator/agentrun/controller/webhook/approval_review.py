"""What an update of an AgentApproval needs to be admitted; pure.

The question is taken from the stored object alone: what a requester sends as status is not what the API server stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from agentrun.contract.approval import AgentApprovalStatus, ApprovalRequest, Decision, Verdict
from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.object_meta import API_GROUP
from agentrun.controller.webhook.access_reviews import Access

VERBS: dict[Verdict, str] = {
    Verdict.APPROVE: "approve",
    Verdict.REJECT: "approve",
    Verdict.DISCARD: "approve",
    Verdict.RELEASE: "release",
    Verdict.RESOLVE: "resolve",
    Verdict.REDRIVE: "redrive",
}
"""The right that each verdict needs: who may agree may refuse."""
EDIT_PARAMS = "edit-params"
_OWN_PREFIX = f"{API_GROUP}/"


@dataclass(frozen=True, slots=True)
class Answered:
    """A decision that is set by this update, and the question that it answers."""

    decision: Decision
    approval_uid: str
    request: ApprovalRequest


@dataclass(frozen=True, slots=True)
class Needed:
    """The update is admitted to whoever has these rights; none: to everybody whom RBAC lets write."""

    access: tuple[Access, ...] = ()
    answered: Answered | None = None


@dataclass(frozen=True, slots=True)
class Inadmissible:
    """The update is admitted to nobody."""

    message: str
    code: int = 403


def review_update(before: JsonObject, after: JsonObject) -> Needed | Inadmissible:
    """Return what an update from one state of the object to another needs."""
    given, wanted = _decision(before), _decision(after)
    # A decision is one act of one person: neither others nor they themselves change it afterwards.
    if given is not None and wanted != given:
        return Inadmissible(f"it was decided already ({_tell(given)}): a decision is given once")
    # Who owns it and which run it belongs to is the operator's to say, and the garbage collector's; both may write the
    # status, approvers may not.
    touched = _find_touched(before, after)
    access = [Access("update", "status", f"change {', '.join(touched)} of")] if touched else []
    if wanted is None or given is not None:
        return Needed(tuple(access))
    try:
        decision = Decision.from_wire(wanted)
    except ValidationError as error:
        return Inadmissible(_explain(error), 422)
    status = before.get("status")
    asked = AgentApprovalStatus.from_wire(status) if isinstance(status, dict) else None
    # The operator writes the question a moment after the object.
    if asked is None or asked.request is None:
        return Inadmissible("its question does not stand yet: try again in a moment", 409)
    if asked.state != "Open":
        return Inadmissible(f"its question is not open any more ({asked.state})", 409)
    access.append(Access(VERBS[decision.verdict], purpose=decision.verdict.lower()))
    if decision.params is not None:
        access.append(Access(EDIT_PARAMS, purpose="edit the params of"))
    return Needed(tuple(access), Answered(decision, str(_meta(before).get("uid") or ""), asked.request))


def _find_touched(before: JsonObject, after: JsonObject) -> list[str]:
    old, new = _meta(before), _meta(after)
    touched = [field for field in ("ownerReferences", "finalizers") if (old.get(field) or []) != (new.get(field) or [])]
    touched += [field for field in ("labels", "annotations") if _own(old.get(field)) != _own(new.get(field))]
    return [f"metadata.{field}" for field in touched]


def _own(entries: JsonValue) -> JsonObject:
    """Return the labels or annotations that mean something to us."""
    pairs = entries.items() if isinstance(entries, dict) else ()
    return {key: value for key, value in pairs if key.startswith(_OWN_PREFIX)}


def _decision(approval: JsonObject) -> JsonObject | None:
    spec = approval.get("spec")
    decision = spec.get("decision") if isinstance(spec, dict) else None
    return decision if isinstance(decision, dict) else None


def _meta(approval: JsonObject) -> JsonObject:
    meta = approval.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _tell(given: JsonObject) -> str:
    return (
        f"{given.get('verdict')} by {given.get('decidedBy') or 'somebody'}, {given.get('decidedAt') or 'some time ago'}"
    )


def _explain(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False)[:10]
    return "; ".join(f"spec.decision{''.join(f'.{part}' for part in fault['loc'])}: {fault['msg']}" for fault in faults)
