"""Answers admission reviews of AgentApprovals: the mutating one seals a decision, the validating one checks that.

Whoever may not decide is refused by the first; the second sees what is stored in the end, after every other webhook.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agentrun.contract.approval import Decision
from agentrun.contract.exact_json import JsonObject, JsonValue, canonical_json
from agentrun.contract.model_base import cut_text, format_time
from agentrun.controller.webhook.access_reviews import Access, Requester, read_requester
from agentrun.controller.webhook.approval_review import Answered, Inadmissible, Needed, review_update
from agentrun.controller.webhook.decision_seal import is_sealed, make_seal
from agentrun.engine.clock import Clock

REVIEW_API = "admission.k8s.io/v1"
_USER_LIMIT = 1024


class Stage(StrEnum):
    """Which of the two webhooks is called."""

    MUTATE = "mutate"
    VALIDATE = "validate"


class AccessJudge(Protocol):
    """Knows who may do what."""

    async def may(self, requester: Requester, namespace: str, name: str, access: Access) -> bool:
        """Tell whether the requester has the right about the object of that name; no name: about any of its kind."""
        ...


class KeySource(Protocol):
    """Has the key of the seals."""

    async def fetch(self) -> bytes:
        """Return the key."""
        ...


class MalformedReviewError(Exception):
    """This is no admission review of version v1."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """One update of an approval that is to be admitted."""

    uid: str
    """The request's, not the approval's."""
    namespace: str
    name: str
    requester: Requester
    before: JsonObject
    after: JsonObject


class ApprovalAdmission:
    """Judges updates. Its ports may raise what :meth:`ApiClient.request` raises; then nothing is admitted."""

    def __init__(self, judge: AccessJudge, key: KeySource, clock: Clock) -> None:
        self._judge = judge
        self._key = key
        self._clock = clock

    async def review(self, stage: Stage, review: JsonObject) -> JsonObject:
        """Answer a review with a review. Raises :class:`MalformedReviewError`."""
        request = read_request(review)
        found = review_update(request.before, request.after)
        if isinstance(found, Inadmissible):
            return refuse(request.uid, _say(request, found.message), found.code)
        needed = found.access
        if stage is Stage.VALIDATE:
            # Who may decide was asked before the seal was made.
            needed = tuple(access for access in needed if access.subresource)
        for access in needed:
            if not await self._judge.may(request.requester, request.namespace, request.name, access):
                return refuse(request.uid, _say_forbidden(request, access), 403)
        return await self._conclude(stage, request, found)

    async def _conclude(self, stage: Stage, request: UpdateRequest, found: Needed) -> JsonObject:
        answered = found.answered
        if answered is None:
            return admit(request.uid)
        key = await self._key.fetch()
        if stage is Stage.VALIDATE:
            return self._check(key, request, answered)
        stamped = self._stamp(answered.decision, request.requester)
        digest = answered.request.params_digest
        patch: list[JsonValue] = [
            {"op": "add", "path": f"/spec/decision/{field}", "value": value}
            for field, value in {
                "decidedBy": stamped.decided_by,
                "decidedAt": stamped.to_wire()["decidedAt"],
                "seal": make_seal(key, answered.approval_uid, answered.request, digest, stamped),
            }.items()
        ]
        return admit(request.uid, patch)

    def _stamp(self, decision: Decision, requester: Requester) -> Decision:
        moment = format_time(self._clock.now())
        return Decision.from_wire(
            {**decision.to_wire_set_only(), "decidedBy": user_name(requester), "decidedAt": moment, "seal": ""}
        )

    def _check(self, key: bytes, request: UpdateRequest, answered: Answered) -> JsonObject:
        decision = answered.decision
        if decision.decided_by != user_name(request.requester) or not is_sealed(
            key, answered.approval_uid, answered.request, answered.request.params_digest, decision
        ):
            changed = (
                "the decision was changed after it was sealed, or never sealed: see which other webhooks there are"
            )
            return refuse(request.uid, _say(request, changed), 403)
        return admit(request.uid)


def read_request(review: JsonObject) -> UpdateRequest:
    """Return the update that a review is about. Raises :class:`MalformedReviewError`."""
    request = review.get("request")
    if review.get("apiVersion") != REVIEW_API or not isinstance(request, dict):
        raise MalformedReviewError(f"expected an AdmissionReview of {REVIEW_API} with a request")
    before, after, user = request.get("oldObject"), request.get("object"), request.get("userInfo")
    if not (isinstance(before, dict) and isinstance(after, dict) and isinstance(user, dict)):
        raise MalformedReviewError("expected an update, with object, oldObject and userInfo")
    return UpdateRequest(
        uid=str(request.get("uid") or ""),
        namespace=str(request.get("namespace") or ""),
        name=str(request.get("name") or ""),
        requester=read_requester(user),
        before=before,
        after=after,
    )


def user_name(requester: Requester) -> str:
    """Return the name that a decision carries."""
    return cut_text(requester.username, _USER_LIMIT)


def admit(uid: str, patch: list[JsonValue] | None = None) -> JsonObject:
    """Return the review that admits the request, with a JSON patch."""
    response: JsonObject = {"uid": uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(canonical_json(patch).encode()).decode()}
    return _answer(response)


def refuse(uid: str, message: str, code: int) -> JsonObject:
    """Return the review that refuses the request."""
    return _answer({"uid": uid, "allowed": False, "status": {"code": code, "message": message}})


def _answer(response: JsonObject) -> JsonObject:
    return {"apiVersion": REVIEW_API, "kind": "AdmissionReview", "response": response}


def _say(request: UpdateRequest, what: str) -> str:
    return f"agentapproval {request.namespace}/{request.name}: {what}"


def _say_forbidden(request: UpdateRequest, access: Access) -> str:
    where = f"agentapproval {request.namespace}/{request.name}"
    return f'user "{request.requester.username}" may not {access.purpose} {where}: needs {access}'
