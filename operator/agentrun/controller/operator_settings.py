"""The operator process's settings: environment variables ``AGENTRUN_OPERATOR_…``, overridden by the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from agentrun.contract.model_base import NODE_NAME_PATTERN
from agentrun.ledger.redis_connection import Durability
from agentrun.telemetry.log_setup import LogLevel

ENVIRONMENT_PREFIX = "AGENTRUN_OPERATOR_"


def _names(value: object) -> object:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class OperatorSettings(BaseSettings):
    """Everything that one operator process is told."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    redis: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """The ledger; the URL may hold a password, so it is never shown."""
    kubeconfig: Path | None = None
    """None: the service account inside a pod, else what kubectl would take."""
    context: str | None = None
    """A context of the kubeconfig; None: its current one."""
    namespaces: Annotated[list[Namespace], BeforeValidator(_names), NoDecode] = []
    """Namespaces to serve, separated by commas; empty: all."""
    install: Annotated[str, Field(pattern=NODE_NAME_PATTERN, max_length=63)] = "agentrun"
    """The installation's id in the ledger and in Lease names."""
    durability: Durability = Durability.REQUIRE
    global_limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Attempts at once, over all namespaces."""
    log_level: LogLevel = LogLevel.INFO
    log_json: bool = False
