"""Asking the API server whether a user may do something: SubjectAccessReviews for the verbs of deciding.

The verbs are virtual: no request has them, roles grant them all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.object_meta import API_GROUP
from agentrun.controller.api_client import ApiClient

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_RESOURCE = "agentapprovals"


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sent a request to the API server, as that server says."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Access:
    """A right about one approval."""

    verb: str
    subresource: str = ""
    purpose: str = ""
    """What it is needed for, as the object of "may not"."""

    def __str__(self) -> str:
        """Return it as a role grants it."""
        where = f"{_RESOURCE}/{self.subresource}" if self.subresource else _RESOURCE
        return f'verb "{self.verb}" on {where}.{API_GROUP}'


class AccessReviews:
    """Asks one API server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def may(self, requester: Requester, namespace: str, name: str, access: Access) -> bool:
        """Tell whether the requester has the right. Raises what :meth:`ApiClient.request` raises."""
        answer = await self._client.request("POST", _PATH, build_review(requester, namespace, name, access))
        status = answer.get("status")
        return isinstance(status, dict) and status.get("allowed") is True and status.get("denied") is not True


def build_review(requester: Requester, namespace: str, name: str, access: Access) -> JsonObject:
    """Return the SubjectAccessReview that asks for one right."""
    attributes: JsonObject = {
        "group": API_GROUP,
        "resource": _RESOURCE,
        "namespace": namespace,
        "name": name,
        "verb": access.verb,
    }
    if access.subresource:
        attributes["subresource"] = access.subresource
    spec: JsonObject = {"user": requester.username, "resourceAttributes": attributes}
    if requester.uid:
        spec["uid"] = requester.uid
    if requester.groups:
        spec["groups"] = list(requester.groups)
    if requester.extra:
        spec["extra"] = {key: list(values) for key, values in requester.extra.items()}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
