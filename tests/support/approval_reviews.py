"""Admission reviews of approvals as an API server sends them, and what stands around the webhook in its tests."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrun.contract.approval import ApprovalRequest
from agentrun.contract.exact_json import JsonObject, parse_json
from agentrun.contract.node import InboxKind, RunRef
from agentrun.controller.webhook.access_reviews import Access, Requester

UID = "7d1c"
DIGEST = "sha256:11"
KEY = b"k" * 32


def a_request(digest: str = DIGEST) -> ApprovalRequest:
    """Return a question."""
    return ApprovalRequest(
        run=RunRef(name="r", uid="u-r"),
        node="pay",
        inbox_id="call-1",
        kind=InboxKind.CALL,
        params_digest=digest,
        asked_at="2026-01-01T00:00:00Z",  # type: ignore[arg-type]
    )


def an_approval(
    decision: Mapping[str, Any] | None = None, *, state: str = "Open", asked: bool = True, **metadata: Any
) -> JsonObject:
    """Return an approval as the API server shows it."""
    approval: JsonObject = {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentApproval",
        "metadata": {"name": "a-1", "namespace": "shop", "uid": UID, **metadata},
        "spec": {"decision": dict(decision)} if decision is not None else {},
    }
    if asked:
        approval["status"] = {"state": state, "request": a_request().to_wire()}
    return approval


def a_review(
    before: JsonObject,
    after: JsonObject,
    user: str = "bob",
    groups: Sequence[str] = ("staff",),
    extra: Mapping[str, Sequence[str]] | None = None,
) -> JsonObject:
    """Return the review of an update."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "req-1",
            "operation": "UPDATE",
            "namespace": "shop",
            "name": "a-1",
            "userInfo": {
                "username": user,
                "groups": list(groups),
                "extra": {key: list(values) for key, values in (extra or {}).items()},
            },
            "oldObject": before,
            "object": after,
        },
    }


def patched(after: JsonObject, answer: JsonObject) -> dict[str, Any]:
    """Return the decision as it is after the patch of an answer."""
    spec: Any = after["spec"]
    decision = dict(spec["decision"])
    response: Any = answer["response"]
    changes: Any = parse_json(base64.b64decode(response["patch"]))
    for change in changes:
        decision[change["path"].removeprefix("/spec/decision/")] = change["value"]
    return decision


@dataclass(slots=True)
class Roles:
    """Who may do what, and what was asked."""

    granted: frozenset[str] = frozenset()
    """Verbs; one of a subresource as ``subresource:verb``, one about another resource as ``verb resource/name``."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(user, right) in order."""

    async def may(self, requester: Requester, namespace: str, name: str, access: Access) -> bool:
        """Tell whether the right is granted, to anybody."""
        right = f"{access.subresource}:{access.verb}" if access.subresource else access.verb
        if access.resource != "agentapprovals":
            right = f"{access.verb} {access.resource}/{name}".rstrip("/")
        self.asked.append((requester.username, right))
        return right in self.granted


class FixedKey:
    """A key that is always there."""

    async def fetch(self) -> bytes:
        """Return it."""
        return KEY
