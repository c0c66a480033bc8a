"""Answers admission reviews of AgentRuns and AgentTools: what is wrong with them, and what a tool's author may not do.

Called by the webhook's server. Runs and tools are stored all the same where no webhook answers (``failurePolicy:
Ignore``): what is wrong is found again by the operator, but who wrote a tool is never asked again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.webhook.access_reviews import Requester, read_requester
from agentrun.controller.webhook.approval_admission import REVIEW_API, AccessJudge, MalformedReviewError, admit, refuse
from agentrun.controller.webhook.object_review import KINDS, find_new_faults, read_tool
from agentrun.controller.webhook.tool_author import find_author_needs
from agentrun.decisions.admission import CheckSchema
from agentrun.decisions.namespace_policy import NO_POLICIES, NamespacePolicies

_FAULTS = 10
"""How many are told at once."""


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """One object that is to be stored."""

    uid: str
    """The request's, not the object's."""
    namespace: str
    requester: Requester
    before: JsonObject | None
    """None: it is new."""
    after: JsonObject


class ObjectAdmission:
    """Judges what is created and changed. Its judge may raise what :meth:`ApiClient.request` raises."""

    def __init__(
        self, judge: AccessJudge, check_schema: CheckSchema, policies: NamespacePolicies = NO_POLICIES
    ) -> None:
        self._judge = judge
        self._check_schema = check_schema
        self._policies = policies

    async def review(self, review: JsonObject) -> JsonObject:
        """Answer a review with a review. Raises :class:`MalformedReviewError`."""
        request = read_object_request(review)
        before, after = request.before, request.after
        # What was stored before this webhook was there must still be labelled, and let go of by its finalizers.
        if after.get("kind") not in KINDS or (before is not None and before.get("spec") == after.get("spec")):
            return admit(request.uid)
        faults = find_new_faults(before, after, self._check_schema, self._policies.find(request.namespace))
        if faults:
            return refuse(request.uid, "; ".join(faults[:_FAULTS]), 422)
        refused = await self._find_beyond_author(request) if after.get("kind") == "AgentTool" else []
        return refuse(request.uid, "; ".join(refused), 403) if refused else admit(request.uid)

    async def _find_beyond_author(self, request: ObjectRequest) -> list[str]:
        author, namespace = request.requester, request.namespace
        needs = tuple(find_author_needs(read_tool(request.after).spec))
        # Together, for the API server waits for the answer.
        granted = await asyncio.gather(*(self._judge.may(author, namespace, need.name, need.access) for need in needs))
        return [
            need.explain_refusal(author.username, namespace)
            for need, is_granted in zip(needs, granted, strict=True)
            if not is_granted
        ]


def read_object_request(review: JsonObject) -> ObjectRequest:
    """Return the creation or change that a review is about. Raises :class:`MalformedReviewError`."""
    request = review.get("request")
    if review.get("apiVersion") != REVIEW_API or not isinstance(request, dict):
        raise MalformedReviewError(f"expected an AdmissionReview of {REVIEW_API} with a request")
    before, after, user = request.get("oldObject"), request.get("object"), request.get("userInfo")
    if not (isinstance(after, dict) and isinstance(user, dict)):
        raise MalformedReviewError("expected an object that is created or changed, with userInfo")
    return ObjectRequest(
        uid=str(request.get("uid") or ""),
        namespace=str(request.get("namespace") or ""),
        requester=read_requester(user),
        before=before if isinstance(before, dict) else None,
        after=after,
    )
