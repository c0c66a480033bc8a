"""Calls of one tool, made straight through an executor and the gate of its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.orders import Amount, AttemptOutcome
from agentrun.contract.tool import AgentToolSpec, ToolType
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.attempt import AttemptMaker, CallWindow
from agentrun_worker.executor import Executor, SecretMissingError


class FixedSecrets:
    """Secrets out of a mapping of ``name/key``."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = values or {}

    def fetch_secret(self, name: str, key: str) -> str:
        """Return the value. Raises :class:`SecretMissingError`."""
        try:
            return self._values[f"{name}/{key}"]
        except KeyError:
            raise SecretMissingError(f"secret {name} has no key {key}") from None


def build_http_tool(url: str, http: JsonObject | None = None, **spec: object) -> AgentToolSpec:
    """Return an http tool that may reach loopback; it posts all params unless told otherwise."""
    call = {"url": url, "method": "POST", "body": "{params}", "allowPrivateAddresses": True, **(http or {})}
    return AgentToolSpec.model_validate({"type": "http", "http": call, **spec})


def build_python_tool(entry_point: str, isolation: str = "Subprocess", **spec: object) -> AgentToolSpec:
    """Return a Python tool."""
    return AgentToolSpec.model_validate(
        {"type": "python", "python": {"entryPoint": entry_point, "isolation": isolation}, **spec}
    )


async def make_call(
    executor: Executor,
    tool: AgentToolSpec,
    params: JsonObject | None = None,
    *,
    seconds: float = 10.0,
    window: CallWindow | None = None,
    cost: Amount | None = None,
) -> AttemptOutcome:
    """Make one call, as a worker does once the gate has let it through."""
    now = asyncio.get_running_loop().time()
    maker = AttemptMaker(dict.fromkeys(ToolType, executor), SchemaValidator())
    return await maker.make(
        "tool",
        tool,
        params if params is not None else {},
        "tool-request",
        "record-key",
        window or CallWindow(deadline=now + seconds, send_before=now + seconds),
        cost or Amount(),
    )


def summary(outcome: AttemptOutcome) -> tuple[str, str, str]:
    """Return effect, class and reason; of a success ``Succeeded`` in the place of both."""
    failure = outcome.failure
    if failure is None:
        return str(outcome.effect), "Succeeded", "Succeeded"
    return str(outcome.effect), str(failure.failure_class), str(failure.reason)
