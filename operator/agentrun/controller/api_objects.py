"""Between the contract's models and the API server's JSON: paths, what is sent, what is read."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from agentrun.contract.approval import AgentApproval
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.node import AgentNode
from agentrun.contract.object_meta import API_VERSION
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.engine.cluster_port import ClusterObject, ObjectSight

Kind = TypeVar("Kind", AgentTool, AgentRun, AgentNode, AgentApproval)

LEASE_API = "coordination.k8s.io/v1"
PLURALS: dict[str, str] = {
    "AgentTool": "agenttools",
    "AgentRun": "agentruns",
    "AgentNode": "agentnodes",
    "AgentApproval": "agentapprovals",
}
MODELS: dict[str, type[AgentTool | AgentRun | AgentNode | AgentApproval]] = {
    "AgentTool": AgentTool,
    "AgentRun": AgentRun,
    "AgentNode": AgentNode,
    "AgentApproval": AgentApproval,
}


def path_inside(namespace: str | None) -> str:
    """Return the part of a URL path that names a namespace; nothing for all (None)."""
    return f"/namespaces/{namespace}" if namespace else ""


def collection_path(kind: str, namespace: str | None) -> str:
    """Return the URL path of a kind in one namespace, or in all (None)."""
    return f"/apis/{API_VERSION}{path_inside(namespace)}/{PLURALS[kind]}"


def lease_collection(namespace: str | None) -> str:
    """Return the URL path of the Leases of one namespace, or of all (None)."""
    return f"/apis/{LEASE_API}{path_inside(namespace)}/leases"


def object_path(found: ClusterObject | ObjectSight) -> str:
    """Return the URL path of an object."""
    if found.kind == "Lease":
        return f"{lease_collection(found.metadata.namespace)}/{found.metadata.name}"
    return f"{collection_path(found.kind, found.metadata.namespace)}/{found.metadata.name}"


def creation_body(wanted: ClusterObject) -> JsonObject:
    """Return what is sent to create an object: never a status, and of its metadata only what is ours to say."""
    meta = wanted.metadata
    metadata: JsonObject = {"name": meta.name, "namespace": meta.namespace}
    if meta.labels:
        metadata["labels"] = dict(meta.labels)
    if meta.annotations:
        metadata["annotations"] = dict(meta.annotations)
    if meta.owner_references:
        metadata["ownerReferences"] = [owner.to_wire() for owner in meta.owner_references]
    return {"apiVersion": wanted.api_version, "kind": wanted.kind, "metadata": metadata, "spec": to_api(wanted.spec)}


def status_body(changed: ClusterObject) -> JsonObject:
    """Return what is sent to replace an object's status, guarded by its version and its uid.

    The spec is left out: the status subresource takes it from what is stored.
    """
    meta = changed.metadata
    return {
        "apiVersion": changed.api_version,
        "kind": changed.kind,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        },
        "status": {} if changed.status is None else to_api(changed.status),
    }


def to_api(model: BaseModel) -> JsonObject:
    """Return a model as the API server takes it: empty texts, lists and maps of ours are left out.

    Kubernetes 1.20 refuses an empty text in a nullable place as null (kubernetes#99804), and lists that are empty in
    one place and absent in another are drift to GitOps tools. What a user wrote is sent as it is.
    """
    wire: JsonObject = model.model_dump(by_alias=True, exclude_none=True)
    _leave_out_empty(model, wire)
    return wire


def read_object(kind: type[Kind], raw: object) -> Kind:
    """Return the model of an object as the API server has it. Raises :class:`pydantic.ValidationError`."""
    if isinstance(raw, dict) and "spec" not in raw:
        # An approval that nobody has decided is stored without a spec where the server prunes empty objects.
        raw = {**raw, "spec": {}}
    return kind.from_wire(raw)


def _leave_out_empty(model: BaseModel, wire: JsonObject) -> None:
    for name, field in type(model).model_fields.items():
        alias = field.alias or name
        if alias not in wire:
            continue
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            _leave_out_empty(value, wire[alias])
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for part, dumped in zip(value, wire[alias], strict=True):
                _leave_out_empty(part, dumped)
        elif value in ("", (), {}) and value == field.get_default(call_default_factory=True):
            del wire[alias]
