"""The operator process's settings: environment variables ``AGENTRUN_OPERATOR_…``, overridden by the command line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from agentrun.contract.durations import parse_duration
from agentrun.contract.model_base import NODE_NAME_PATTERN, ObjectName
from agentrun.contract.run import Priority
from agentrun.controller.session_leases import SESSION_LEASE
from agentrun.decisions.decision_authority import UnverifiedDecisions
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


def _slots(value: object) -> object:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError("must be written as P0=2 or P0=2,P1=4")
    return {priority.strip(): count.strip() for priority, _, count in pairs}


Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_long_enough)]
Kept = Annotated[timedelta, BeforeValidator(_duration)]
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


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
    log_level: LogLevel = LogLevel.INFO
    log_json: bool = False

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
    def unverified_decisions(self) -> UnverifiedDecisions:
        """What becomes of decisions that no webhook has sealed."""
        if self.approvals_unverified is not None:
            return self.approvals_unverified
        sealed = self.webhook_listen is not None
        return UnverifiedDecisions.REFUSE if sealed else UnverifiedDecisions.APPROVE_AND_REJECT
