"""The part of a Kubernetes object that is the same for every kind."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict, Field

from agentrun.contract.model_base import ContractModel, LongText, MediumText, ShortText, Timestamp

API_GROUP = "agentrun.dev"
API_VERSION = f"{API_GROUP}/v1alpha1"


class OwnerReference(ContractModel):
    """Who owns an object; deletion follows it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = True
    block_owner_deletion: bool = False


class ObjectMeta(ContractModel):
    """The metadata that the product reads or writes; everything else the API server keeps there is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int = 1
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class ConditionStatus(StrEnum):
    """The three truth values of a Kubernetes condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class StatusCondition(ContractModel):
    """One Kubernetes condition (API conventions, "Typical status properties")."""

    type: ShortText
    """What is said: ``Accepted``, ``Admitted``, ``Complete``, ``Succeeded`` and others."""
    status: ConditionStatus
    """Whether it holds."""
    reason: ShortText
    """Why, as one word that programs may compare."""
    message: LongText = ""
    """Why, for people."""
    last_transition_time: Timestamp
    """When ``status`` changed last."""
    observed_generation: int | None = None
    """The generation of the spec that was looked at."""


class Actor(ContractModel):
    """Who did something: the scheduler, a worker by its identity, or a person by name."""

    kind: ShortText = "scheduler"
    """``scheduler``, ``worker`` or ``human``."""
    name: MediumText = ""
    """Which one."""
