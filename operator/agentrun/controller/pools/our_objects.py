"""Objects of ours on the API server: written over what is ours alone, and deleted as what was seen.

Used for what the operator makes for workers. Decides nothing; what a request raises is the caller's to explain.
"""

from __future__ import annotations

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.object_meta import API_GROUP
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import NameTakenError
from agentrun.controller.pools.labelled_objects import find_name
from agentrun.controller.pools.pool_sights import labels_of
from agentrun.engine.cluster_port import GoneError


class ForeignObjectError(Exception):
    """An object of the wanted name is somebody else's: it is left alone."""


class OurObjects:
    """The requests that are the same for every kind."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def find_or_create(self, path: str, wanted: JsonObject) -> JsonObject:
        """Create an object and return it as stored; one that stands there is returned as it is, if it is ours.

        ``path``: of the collection. Raises :class:`ForeignObjectError`.
        """
        try:
            return await self._client.request("POST", path, wanted)
        except NameTakenError:
            found = await self._client.request("GET", f"{path}/{find_name(wanted)[1]}")
            check_ours(found, wanted)
            return found

    async def write(self, path: str, wanted: JsonObject) -> None:
        """Have an object as wanted; what others noted on it stays. Raises :class:`ForeignObjectError`."""
        name = find_name(wanted)[1]
        try:
            await self._client.request("POST", path, wanted)
        except NameTakenError:
            found = await self._client.request("GET", f"{path}/{name}")
            check_ours(found, wanted)
            await self._client.request("PUT", f"{path}/{name}", {**wanted, "metadata": merge_meta(found, wanted)})

    async def delete(self, path: str, name: str, uid: str = "") -> None:
        """Delete an object with what it owns, with ``uid`` if it is still the one that was seen; gone is success."""
        options: JsonObject | None = None
        if uid:
            options = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": uid},
                "propagationPolicy": "Background",
            }
        try:
            await self._client.request("DELETE", f"{path}/{name}", options)
        except GoneError:
            return


def merge_meta(seen: JsonObject, wanted: JsonObject) -> JsonObject:
    """Return the metadata of what was seen, guarded by its version, with our labels and annotations as wanted."""
    theirs, ours = seen.get("metadata"), wanted.get("metadata")
    theirs, ours = theirs if isinstance(theirs, dict) else {}, ours if isinstance(ours, dict) else {}
    merged: JsonObject = {field: theirs[field] for field in ("uid", "resourceVersion", "finalizers") if field in theirs}
    for field in ("labels", "annotations"):
        before, our = theirs.get(field), ours.get(field)
        merged[field] = {**(before if isinstance(before, dict) else {}), **(our if isinstance(our, dict) else {})}
    return {**merged, "name": ours.get("name"), "namespace": ours.get("namespace")}


def check_ours(found: JsonObject, wanted: JsonObject) -> None:
    """Raise :class:`ForeignObjectError` unless what was found bears the labels by which we know what is ours."""
    theirs, ours = labels_of(found), labels_of(wanted)
    if any(theirs.get(label) != ours[label] for label in ours if label.startswith(f"{API_GROUP}/")):
        kind, name = wanted.get("kind"), find_name(found)[1]
        raise ForeignObjectError(f"{kind} {name} exists and is somebody else's: delete or rename it")
