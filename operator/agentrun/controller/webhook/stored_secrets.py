"""Secrets of the operator's own, read and written by the API server: created by whoever comes first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import NameTakenError
from agentrun.engine.cluster_port import GoneError


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """What a Secret holds, as it was read."""

    data: Mapping[str, bytes]
    resource_version: str


class StoredSecrets:
    """The Secrets of one namespace. Each method may raise what :meth:`ApiClient.request` raises."""

    def __init__(self, client: ApiClient, namespace: str, labels: Mapping[str, str] | None = None) -> None:
        """``labels``: what every Secret that is written bears."""
        self._client = client
        self._labels = dict(labels or {})
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"

    async def find(self, name: str) -> StoredSecret | None:
        """Read a Secret; None when there is none of that name."""
        try:
            return _read(await self._client.request("GET", f"{self._collection}/{name}"))
        except GoneError:
            return None

    async def create_if_absent(self, name: str, data: Mapping[str, bytes]) -> StoredSecret:
        """Create a Secret unless somebody else was faster, and return the one that stands."""
        try:
            return _read(await self._client.request("POST", self._collection, self._body(name, data)))
        except NameTakenError:
            return _read(await self._client.request("GET", f"{self._collection}/{name}"))

    async def replace(self, name: str, data: Mapping[str, bytes], read: StoredSecret) -> StoredSecret:
        """Store a Secret's new content if nobody has changed it since it was read, else raise ConflictError."""
        body = self._body(name, data, read.resource_version)
        return _read(await self._client.request("PUT", f"{self._collection}/{name}", body))

    def _body(self, name: str, data: Mapping[str, bytes], resource_version: str = "") -> JsonObject:
        metadata: JsonObject = {"name": name}
        if self._labels:
            metadata["labels"] = dict(self._labels)
        if resource_version:
            metadata["resourceVersion"] = resource_version
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": metadata,
            "data": {field: base64.b64encode(value).decode() for field, value in data.items()},
        }


def _read(raw: JsonObject) -> StoredSecret:
    meta, data = raw.get("metadata"), raw.get("data")
    version = str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""
    fields = data.items() if isinstance(data, dict) else ()
    return StoredSecret({field: _decode(value) for field, value in fields}, version)


def _decode(value: object) -> bytes:
    try:
        return base64.b64decode(str(value))
    except binascii.Error:
        return b""
