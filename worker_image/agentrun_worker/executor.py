"""What an executor is: it makes one call and says what happened; it decides nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.orders import AttemptOutcome
from agentrun.contract.tool import AgentToolSpec


class SecretMissingError(Exception):
    """A referenced secret does not exist; the message names it (never its value)."""


class SecretSource(Protocol):
    """Where secret values are read from, at call time."""

    def fetch_secret(self, name: str, key: str) -> str:
        """Return the value of one key of a Secret. Raises :class:`SecretMissingError`."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call to make, already through the gate."""

    tool_name: str
    tool: AgentToolSpec
    params: JsonObject
    request_id: str
    idempotency_key: str
    """The record's key: sent to providers as Idempotency-Key, the same for every attempt."""
    deadline: float
    """On the running loop's clock (``loop.time()``): nothing is sent after it, nothing runs on past it."""
    send_before: float
    """On the running loop's clock: the send check. Past it nothing may be started (the claim may be another's)."""
    cancelled: asyncio.Event
    """Set when the call may not go on (cancelled and out of grace, or claim lost): end at once and say the truth."""
    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the run was cancelled: start nothing, and let what is under way end by itself; ``cancelled`` follows."""


class Executor(Protocol):
    """Makes one call."""

    async def execute(self, call: ToolCall) -> AttemptOutcome:
        """Make the call within its deadline; tell effect, class, result, usage. Never raises for a tool's failure."""
        ...


@runtime_checkable
class Lingering(Protocol):
    """An executor whose calls may outlive the attempt that gave them up."""

    def lingers(self) -> bool:
        """Return whether a call that was given up is still at work in this process."""
        ...
