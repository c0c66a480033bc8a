"""The operator process's settings: environment variables ``AGENTRUN_OPERATOR_…``, overridden by the command line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from agentrun.contract.durations import parse_duration
from agentrun.contract.model_base import NODE_NAME_PATTERN, Money, ObjectName
from agentrun.contract.run import Priority
from agentrun.controller.pools.worker_access import Isolation
from agentrun.controller.session_leases import SESSION_LEASE
from agentrun.decisions.decision_authority import UnverifiedDecisions
from agentrun.decisions.namespace_policy import NamespacePolicies, NamespacePolicy
from agentrun.decisions.pools.resource_amounts import read_quantity
from agentrun.ledger.ledger_url import LedgerUrl
from agentrun.ledger.redis_connection import Durability
from agentrun.telemetry.listen_address import ListenAddress, parse_address
from agentrun.telemetry.log_setup import LogLevel

ENVIRONMENT_PREFIX = "AGENTRUN_OPERATOR_"


def _names(value: object) -> object:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _duration(value: object) -> timedelta:
    return value if isinstance(value, timedelta) else parse_duration(value)  # type: ignore[arg-type]


def _long_enough(value: timedelta) -> timedelta:
    if value < timedelta(seconds=3):
        raise ValueError("must be at least 3s: the API server's answers may take that long")
    return value


def _read_pairs(value: object, examples: str) -> object:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError(f"must be written as {examples}")
    return {name.strip(): text.strip() for name, _, text in pairs}


def _slots(value: object) -> object:
    return _read_pairs(value, "P0=2 or P0=2,P1=4")


def _pairs(value: object) -> object:
    return _read_pairs(value, "name=value or name=value,name=value")


def _quantity(value: str) -> str:
    read_quantity(value)
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_long_enough)]
ResourceQuantity = Annotated[str, AfterValidator(_quantity)]
Kept = Annotated[timedelta, BeforeValidator(_duration)]
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
NamespaceOrEvery = Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$")]


class PolicySettings(BaseModel):
    """What the runs of one namespace may ask for; what is not said is not bounded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    highest_priority: Annotated[Priority | None, Field(alias="highestPriority")] = None
    budget: Money | None = None
    """The largest budget that a run may have, as a decimal string; a run without one is refused then."""
    share: Annotated[int, Field(ge=1, le=1000)] = 1
    """Weight in the queue: where slots are short, a namespace of 3 gets three times as many as one of 1."""


class OperatorSettings(BaseSettings):
    """Everything that one operator process is told."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    redis: LedgerUrl = SecretStr("redis://127.0.0.1:6379/0")
    """The ledger."""
    kubeconfig: Path | None = None
    """None: the service account inside a pod, else what kubectl would take."""
    context: str | None = None
    """A context of the kubeconfig; None: its current one."""
    namespaces: Annotated[list[Namespace], BeforeValidator(_names), NoDecode] = []
    """Namespaces to serve, separated by commas; empty: all."""
    install: Annotated[str, Field(pattern=NODE_NAME_PATTERN, max_length=63)] = "agentrun"
    """The installation's id in the ledger and in Lease names."""
    lease_namespace: Namespace | None = None
    """Where the leader's Lease stands; None: the pod's own namespace, or the kubeconfig context's."""
    lease_duration: Duration = timedelta(seconds=15)
    """How long a leader that cannot be reached stays the leader; it gives up itself after two thirds of it."""
    session_lease: Duration = SESSION_LEASE
    """How long the Lease of a session lasts without renewal; it is renewed at half of that."""
    sweep_every: Duration = timedelta(minutes=10)
    """How often everything that exists is compared with what is known."""
    retention_nodes: Kept = timedelta(hours=24)
    """How long the AgentNodes and AgentApprovals of an ended run are kept."""
    retention_max_finished_runs: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    """Ended runs of a namespace that keep their nodes; of more the oldest lose them earlier."""
    identity: Annotated[str, Field(max_length=200)] | None = None
    """This process's name in the Lease; None: the pod's (or host's) name with a random part."""
    durability: Durability = Durability.REQUIRE
    global_limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Attempts at once, over all namespaces."""
    reserved_slots: Annotated[
        dict[Priority, Annotated[int, Field(ge=0, le=100_000)]], BeforeValidator(_slots), NoDecode
    ] = {}
    """Slots of the global limit and of each pool that stay free for a priority and those above it: ``P0=2,P1=4``."""
    namespace_limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Attempts at once in each namespace; None: no limit of its own."""
    namespace_policies: dict[NamespaceOrEvery, PolicySettings] = {}
    """What the runs of a namespace may ask for, as JSON: ``{"shop": {"highestPriority": "P1"}}``; ``*``: all others."""
    listen: Annotated[ListenAddress | None, BeforeValidator(parse_address), NoDecode] = None
    """Where probes and scrapes are answered; None: nowhere."""
    webhook_listen: Annotated[ListenAddress | None, BeforeValidator(parse_address), NoDecode] = None
    """Where the API server reaches the admission webhook for approvals; None: there is none."""
    webhook_url: Annotated[str, Field(pattern=r"^https://[^/?#@]+/?$", max_length=512)] | None = None
    """Out of a cluster: the URL of ``webhook_listen`` as the API server knows it; the configurations are created."""
    webhook_name: ObjectName | None = None
    """Name of both webhook configurations; None: ``<install>-webhook``."""
    webhook_service: Namespace | None = None
    """The Service in front of the webhook, in the Lease's namespace; None: ``<install>-webhook``."""
    webhook_certificate_life: Duration = timedelta(days=90)
    """How long a certificate of the webhook lives; it is renewed after two thirds of that."""
    webhook_certificate_folder: Path | None = None
    """Folder with ``tls.crt`` and ``tls.key``, made and renewed by somebody else; None: the operator makes its own."""
    webhook_settle: Kept = timedelta(minutes=1)
    """How long API servers have to learn of a new authority before a certificate of it is served."""
    webhook_look: Kept = timedelta(seconds=15)
    """How often the webhook's certificates are looked at; well below ``webhook_settle``."""
    approvals_unverified: UnverifiedDecisions | None = None
    """What becomes of decisions that no webhook has sealed; None: refused where the webhook is on, else no more than
    approve and reject."""
    jobs_enabled: bool = False
    """Whether the operator makes a Job for each attempt of tools of mode Job; else their pools make the calls. What
    the settings of pools say about pods and their way to the ledger holds for Jobs as well."""
    jobs_starting: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Attempts of one tool whose Jobs may be starting at a time."""
    jobs_keep_ended: Duration = timedelta(hours=1)
    """How long a Job that has ended is left, with its pod and its logs."""
    pools_enabled: bool = False
    """Whether the operator starts the workers; else somebody does who runs ``agentrun-worker``."""
    pools_image: Annotated[str, Field(max_length=512)] = "agentrun-worker"
    """Image of workers whose tools name none."""
    pools_image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pools_image_pull_secrets: Annotated[list[ObjectName], BeforeValidator(_names), NoDecode] = []
    """Names of the registry's Secrets, in each namespace with pools."""
    pools_ledger_url: LedgerUrl | None = None
    """The ledger as workers reach it, without credentials; None: as the operator does."""
    pools_ledger_authority: Path | None = None
    """File with the certificate of the authority that signed the ledger's, for workers; None: those of their image."""
    pools_isolation: Isolation = Isolation.USERS
    """What keeps the workers of one namespace from another's keys: a user of the ledger's server each, or nothing."""
    pools_credentials_life: Kept = timedelta(days=30)
    """How old the password of a namespace's workers becomes; its pods are replaced then, a few at a time."""
    pools_service_accounts: Annotated[list[ObjectName], BeforeValidator(_names), NoDecode] = []
    """Service accounts that tools may name."""
    pools_slots: Annotated[int, Field(ge=1, le=1000)] = 4
    """Calls that one worker makes at once."""
    pools_scale_down_after: Kept = timedelta(minutes=1)
    """How long fewer workers must have sufficed before there are fewer."""
    pools_delete_after: Kept = timedelta(minutes=10)
    """How long no tool must have needed a pool before it is deleted."""
    pools_settle: Kept = timedelta(seconds=5)
    """How long a changed tool must stand before pods are replaced for it."""
    pools_grace_margin: Duration = timedelta(seconds=15)
    """What a pod that is to end is given beyond its tools' longest timeout."""
    pools_requests: Annotated[dict[str, ResourceQuantity], BeforeValidator(_pairs), NoDecode] = {
        "cpu": "100m",
        "memory": "128Mi",
        "ephemeral-storage": "64Mi",
    }
    """What a worker is promised where its tools say nothing: ``cpu=100m,memory=128Mi``."""
    pools_limits: Annotated[dict[str, ResourceQuantity], BeforeValidator(_pairs), NoDecode] = {
        "cpu": "1",
        "memory": "512Mi",
        "ephemeral-storage": "256Mi",
    }
    """What it gets at most."""
    pools_run_as_user: Annotated[int, Field(ge=0)] = 65532
    """User of the container; 0: whatever the cluster assigns (OpenShift)."""
    pools_run_as_group: Annotated[int, Field(ge=0)] = 65532
    """Its group; 0: whatever the cluster assigns."""
    pools_fs_group: Annotated[int, Field(ge=0)] = 65532
    """Group of its volumes; 0: whatever the cluster assigns."""
    pools_node_selector: Annotated[dict[str, str], BeforeValidator(_pairs), NoDecode] = {}
    """Labels of the machines that workers run on: ``disk=fast,zone=a``."""
    pools_priority_class: Annotated[str, Field(max_length=253)] = ""
    """PriorityClass of their pods."""
    pools_network_policy: bool = True
    """Whether a NetworkPolicy is put beside each pool."""
    log_level: LogLevel = LogLevel.INFO
    log_json: bool = False

    @model_validator(mode="after")
    def _pods_reach_the_ledger(self) -> OperatorSettings:
        url = self.pools_ledger_url or self.redis
        if (self.pools_enabled or self.jobs_enabled) and url.get_secret_value().startswith("unix:"):
            raise ValueError("pools_ledger_url must be given: no pod reaches the ledger's socket")
        return self

    @field_validator("webhook_url")
    @classmethod
    def _url_leads_to_webhook(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is not None and info.data.get("webhook_listen") is None:
            raise ValueError("goes with webhook_listen: say where the webhook listens as well")
        return url

    @field_validator("webhook_certificate_folder")
    @classmethod
    def _folder_serves_webhook(cls, folder: Path | None, info: ValidationInfo) -> Path | None:
        if folder is not None and info.data.get("webhook_listen") is None:
            raise ValueError("goes with webhook_listen: say where the webhook listens as well")
        # What is created with a URL has to name an authority, and that of these certificates is not known here.
        if folder is not None and info.data.get("webhook_url") is not None:
            raise ValueError("does not go with webhook_url: whoever makes the certificates writes the configurations")
        return folder

    @property
    def policies(self) -> NamespacePolicies:
        """What the runs of each namespace may ask for."""
        return NamespacePolicies(
            {
                name: NamespacePolicy(said.highest_priority, said.budget, said.share)
                for name, said in self.namespace_policies.items()
            }
        )

    @property
    def unverified_decisions(self) -> UnverifiedDecisions:
        """What becomes of decisions that no webhook has sealed."""
        if self.approvals_unverified is not None:
            return self.approvals_unverified
        sealed = self.webhook_listen is not None
        return UnverifiedDecisions.REFUSE if sealed else UnverifiedDecisions.APPROVE_AND_REJECT
