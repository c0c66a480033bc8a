"""Where attempts of a tool run: in a pool of workers, or in a Job each; with which image, account, files and limits.

Part of an AgentTool, so the platform team alone decides it; a run has no say in any of this. Read by the engine (which
pool takes an order) and by those that build pods. Local mode reads ``pool`` alone.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from agentrun.contract.exact_json import JsonObject, json_digest
from agentrun.contract.ledger_keys import short_hash
from agentrun.contract.model_base import ContractModel, MediumText, ObjectName

PoolName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", max_length=40)]
ImageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$", max_length=512)]
DEFAULT_POOL = "shared"
_DIGEST_DIGITS = 16
_ORDER_DIGITS = 32


class ExecutionMode(StrEnum):
    """What an attempt runs in."""

    POOL = "Pool"
    """A worker of a pool, which makes many calls."""
    JOB = "Job"
    """A Job of its own."""


class ScalingMode(StrEnum):
    """Who decides how many workers a pool has."""

    BACKLOG = "Backlog"
    """The operator, by what waits."""
    EXTERNAL = "External"
    """Somebody else, such as an autoscaler; the operator never writes the number."""


class Scaling(ContractModel):
    """How many workers a pool has. Where tools of a pool differ, the larger numbers and ``External`` count."""

    mode: ScalingMode = ScalingMode.BACKLOG
    """Who decides."""
    min: Annotated[int, Field(ge=0, le=1000)] = 0
    """Workers while nothing waits; 0 starts the first one when a call does."""
    max: Annotated[int, Field(ge=1, le=1000)] = 10
    """Workers at most."""

    @model_validator(mode="after")
    def _min_is_no_more_than_max(self) -> Scaling:
        if self.min > self.max:
            raise ValueError("min must be no more than max")
        return self


Quantity = Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$", max_length=20)]
"""An amount as Kubernetes writes it: ``250m``, ``1.5``, ``512Mi``."""


class ResourceAmounts(ContractModel):
    """Amounts of what a container uses."""

    cpu: Quantity | None = None
    """Processors."""
    memory: Quantity | None = None
    """Memory in bytes."""
    ephemeral_storage: Quantity | None = None
    """Disk space in bytes that goes with the pod."""


class Resources(ContractModel):
    """What the container that makes the calls gets; what is not said is the operator's default."""

    requests: ResourceAmounts | None = None
    """Kept free for it."""
    limits: ResourceAmounts | None = None
    """At most."""


class EnvironmentVariable(ContractModel):
    """A variable with a fixed value, for everybody to read: secrets come by ``volumes`` or ``headersFrom``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    """Its name; those that begin with ``AGENTRUN_`` are the product's own."""
    value: MediumText = ""
    """Its value."""

    @model_validator(mode="after")
    def _is_not_ours(self) -> EnvironmentVariable:
        if self.name.startswith("AGENTRUN_"):
            raise ValueError("names that begin with AGENTRUN_ are the product's own")
        return self


class VolumeKind(StrEnum):
    """What a volume holds."""

    SECRET = "Secret"
    """The keys of a Secret, as files."""
    CONFIG_MAP = "ConfigMap"
    """The keys of a ConfigMap, as files."""
    CLAIM = "PersistentVolumeClaim"
    """A disk that exists."""


class Volume(ContractModel):
    """Something of the namespace that is mounted where the calls are made."""

    name: Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", max_length=40)]
    """Its name in the pod."""
    kind: VolumeKind
    """What it holds."""
    source: ObjectName
    """The object of that kind."""
    mount_path: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]*$", max_length=256)]
    """Where; absolute, without ``..``, outside of ``/proc``, ``/sys``, ``/dev``, ``/run`` and ``/var/run``."""
    read_only: bool = True
    """Only a PersistentVolumeClaim can be written to at all."""
    optional: bool = False
    """A Secret or ConfigMap that is missing leaves the folder empty instead of keeping the pod from its start."""

    @model_validator(mode="after")
    def _mounts_where_it_may(self) -> Volume:
        if _FORBIDDEN_MOUNT.search(self.mount_path):
            raise ValueError("mountPath must be no place of the system or the product, and hold no ..")
        if not self.read_only and self.kind is not VolumeKind.CLAIM:
            raise ValueError("readOnly: false goes with kind PersistentVolumeClaim alone")
        return self


FORBIDDEN_MOUNT = r"^/+$|(^|/)\.\.?(/|$)|//|^/(proc|sys|dev)(/|$)|^/(var/)?run(/|$)"
"""Mount paths that would hide the system's or the product's own files."""
_FORBIDDEN_MOUNT = re.compile(FORBIDDEN_MOUNT)


class Execution(ContractModel):
    """Where attempts run. Local mode runs them in its own process and reads ``pool`` alone."""

    mode: ExecutionMode = ExecutionMode.POOL
    """A worker of a pool, or a Job for each attempt."""
    pool: PoolName = DEFAULT_POOL
    """The worker pool that takes this tool's orders; tools of one pool trust each other."""
    image: ImageName | None = None
    """Image of the worker, with the tool's code. Default: the operator's setting."""
    service_account_name: ObjectName | None = None
    """Account of the pod, one that the operator's settings allow; its token is mounted then. Default: none."""
    resources: Resources | None = None
    """What its container gets; in a pool the largest of its tools counts."""
    scaling: Scaling | None = None
    """How many workers the pool has."""
    env: tuple[EnvironmentVariable, ...] = Field(default=(), max_length=64)
    """Environment variables."""
    volumes: tuple[Volume, ...] = Field(default=(), max_length=16)
    """What is mounted."""
    secrets: tuple[ObjectName, ...] = Field(default=(), max_length=32)
    """Secrets that a Python function asks for by name; those of ``headersFrom`` need not be named again."""

    @model_validator(mode="after")
    def _fits_together(self) -> Execution:
        if self.mode is ExecutionMode.JOB and self.scaling is not None:
            raise ValueError("scaling goes with mode Pool")
        for field, names in (
            ("env", [variable.name for variable in self.env]),
            ("volumes", [volume.name for volume in self.volumes]),
            ("secrets", list(self.secrets)),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"{field}: each name may stand once")
        paths = [volume.mount_path.rstrip("/") for volume in self.volumes]
        if len(set(paths)) != len(paths):
            raise ValueError("volumes: each mountPath may stand once")
        return self


def find_ledger_pool(execution: Execution | None) -> str:
    """Return the name of the queue that a tool's orders wait in, and of the workers that read it.

    Two tools of one pool share workers only if image, account, environment and volumes are the same: whatever makes
    another pod makes another queue, ``<pool>.<digest>``. A plain pool keeps its plain name, so that workers that
    somebody starts by hand serve it; no pool of a user's own holds a dot.
    """
    if execution is None:
        return DEFAULT_POOL
    parts: JsonObject = {
        "image": execution.image,
        "account": execution.service_account_name,
        "env": {variable.name: variable.value for variable in execution.env},
        "volumes": {volume.name: volume.to_wire() for volume in execution.volumes},
    }
    if not any(parts.values()):
        return execution.pool
    return f"{execution.pool}.{json_digest(parts).removeprefix('sha256:')[:_DIGEST_DIGITS]}"


def find_order_queue(execution: Execution | None, node_uid: str, seq: int, tool_digest: str) -> str:
    """Return the name of the queue of one order that a Job's pod carries out: nobody else reads it.

    Another order of the node, and the same one of another definition, have another queue: a pod that was started for
    something else never takes it. Twice as many digits keep it apart from the queues of pools.
    """
    pool = DEFAULT_POOL if execution is None else execution.pool
    return f"{pool}.{order_identity(node_uid, seq, tool_digest)}"


def order_identity(node_uid: str, seq: int, tool_digest: str) -> str:
    """Return 32 hex digits that stand for one order of one node, by one definition of its tool."""
    return short_hash(f"{node_uid}/{seq}/{tool_digest}")


def serves_one_order(queue: str) -> bool:
    """Tell whether a queue, as the ledger names it, is that of a single order."""
    return len(queue.rpartition(".")[2]) == _ORDER_DIGITS and "." in queue
