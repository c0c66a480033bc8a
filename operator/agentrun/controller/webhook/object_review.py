"""What is wrong with an AgentRun or AgentTool that is about to be stored; pure.

A courtesy: the operator judges again what it reads, so nothing depends on this being asked. Only what the models refuse
is looked for here; what needs other objects is judged at the run's admission.
"""

from __future__ import annotations

from pydantic import ValidationError

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_objects import MODELS
from agentrun.controller.webhook.approval_admission import REVIEW_API, MalformedReviewError, admit, refuse

KINDS = ("AgentRun", "AgentTool")
_FAULTS = 10


def review_object(review: JsonObject) -> JsonObject:
    """Answer the review of an object that is created or changed. Raises :class:`MalformedReviewError`."""
    request = review.get("request")
    wanted = request.get("object") if isinstance(request, dict) else None
    if review.get("apiVersion") != REVIEW_API or not isinstance(request, dict) or not isinstance(wanted, dict):
        raise MalformedReviewError(f"expected an AdmissionReview of {REVIEW_API} with an object")
    uid, kind, before = str(request.get("uid") or ""), str(wanted.get("kind") or ""), request.get("oldObject")
    # What was stored before this webhook was there must still be labelled, and let go of by its finalizers.
    if kind not in KINDS or (isinstance(before, dict) and before.get("spec") == wanted.get("spec")):
        return admit(uid)
    faults = _find_faults(kind, wanted)
    return refuse(uid, "; ".join(faults), 422) if faults else admit(uid)


def _find_faults(kind: str, wanted: JsonObject) -> list[str]:
    # The metadata is the API server's to judge, and a name may still have to be generated.
    judged = {**wanted, "metadata": {"name": "unnamed"}}
    judged.pop("status", None)
    try:
        MODELS[kind].from_wire(judged)
    except ValidationError as error:
        return [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)[:_FAULTS]
        ]
    return []
