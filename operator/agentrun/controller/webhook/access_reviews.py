"""Asking the API server whether a user may do something: SubjectAccessReviews.

Called by the admission of approvals, whose verbs are virtual (no request has them, roles grant them all the same), and
by that of tools. What is needed for what is decided there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.object_meta import API_GROUP
from agentrun.controller.api_client import ApiClient

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sent a request to the API server, as that server says."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read_requester(user: JsonObject) -> Requester:
    """Return the requester that an admission review names in ``userInfo``."""
    extra = user.get("extra")
    return Requester(
        username=str(user.get("username") or ""),
        uid=str(user.get("uid") or ""),
        groups=_texts(user.get("groups")),
        extra={key: _texts(values) for key, values in extra.items()} if isinstance(extra, dict) else {},
    )


@dataclass(frozen=True, slots=True)
class Access:
    """A right about one object; about one approval where nothing else is said."""

    verb: str
    subresource: str = ""
    purpose: str = ""
    """What it is needed for, as the object of "may not"."""
    resource: str = "agentapprovals"
    group: str = API_GROUP

    def __str__(self) -> str:
        """Return it as a role grants it."""
        where = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f'verb "{self.verb}" on {where}{"." if self.group else ""}{self.group}'


class AccessReviews:
    """Asks one API server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def may(self, requester: Requester, namespace: str, name: str, access: Access) -> bool:
        """Tell whether the requester has the right about the object of that name; no name: about any of its kind.

        Raises what :meth:`ApiClient.request` raises.
        """
        answer = await self._client.request("POST", _PATH, build_review(requester, namespace, name, access))
        status = answer.get("status")
        return isinstance(status, dict) and status.get("allowed") is True and status.get("denied") is not True


def build_review(requester: Requester, namespace: str, name: str, access: Access) -> JsonObject:
    """Return the SubjectAccessReview that asks for one right."""
    attributes: JsonObject = {
        "group": access.group,
        "resource": access.resource,
        "namespace": namespace,
        "verb": access.verb,
    }
    if name:
        attributes["name"] = name
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


def _texts(values: JsonValue) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list) else ()
