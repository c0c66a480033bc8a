"""A worker process's settings: environment variables ``AGENTRUN_WORKER_…``, overridden by the command line.

Durations are Go-style texts (``25s``). What stands here is the process's alone; what a call may do is its tool's.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from agentrun.contract.durations import parse_duration
from agentrun.contract.model_base import NODE_NAME_PATTERN
from agentrun.ledger.ledger_url import LedgerUrl
from agentrun.ledger.redis_connection import Durability
from agentrun.telemetry.listen_address import ListenAddress, parse_address
from agentrun_worker.log_setup import LogLevel
from agentrun_worker.worker_settings import WorkerSettings

ENVIRONMENT_PREFIX = "AGENTRUN_WORKER_"
_PACE = WorkerSettings()


def _duration(value: object) -> timedelta:
    return value if isinstance(value, timedelta) else parse_duration(value)  # type: ignore[arg-type]


def _folder(value: Path) -> Path:
    if not value.is_dir():
        raise ValueError("is no folder" if value.exists() else "is not there: check the path")
    return value


def _paths(value: object) -> object:
    return [part for part in value.split(":") if part] if isinstance(value, str) else value


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than 0s")
    return value


Folder = Annotated[Path, AfterValidator(_folder)]
Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_positive)]


class ProcessSettings(BaseSettings):
    """Everything that one worker process is told."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    redis: LedgerUrl = SecretStr("redis://127.0.0.1:6379/0")
    """The ledger."""
    install: Annotated[str, Field(pattern=NODE_NAME_PATTERN, max_length=63)] = "agentrun"
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] = "default"
    pool: Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?(\.[0-9a-f]{16,64})?$")] = "shared"
    """As the ledger names it: with a digest behind a dot where the pod is not the plain one."""
    name: Annotated[str, Field(max_length=253)] | None = None
    slots: Annotated[int, Field(ge=1, le=1000)] = 4
    import_paths: Annotated[list[Folder], BeforeValidator(_paths), NoDecode] = []
    secrets_directory: Folder | None = None
    call_directory: Folder | None = None
    """With a tool's container beside this one: where it is told what to do."""
    answer_directory: Folder | None = None
    """And where it answers."""
    durability: Durability = Durability.REQUIRE
    heartbeat: Duration = _PACE.heartbeat
    cancel_grace: Duration = _PACE.cancel_grace
    drain_grace: Duration = _PACE.drain_grace
    idle_patience: Duration = _PACE.idle_patience
    order_patience: Duration = timedelta(minutes=30)
    """How long a worker of a single order waits for it."""
    listen: Annotated[ListenAddress | None, BeforeValidator(parse_address), NoDecode] = None
    """Where probes and scrapes are answered; None: nowhere."""
    log_level: LogLevel = LogLevel.INFO
    log_json: bool = False

    def pace(self) -> WorkerSettings:
        """Return the part that is the worker's own."""
        return WorkerSettings(
            heartbeat=self.heartbeat,
            cancel_grace=self.cancel_grace,
            drain_grace=self.drain_grace,
            idle_patience=self.idle_patience,
        )
