"""Which pools the tools of all namespaces need, and what the pods of each are.

Asked by the operator's pool keeper. A tool whose attempts run in Jobs needs no pool. What is built of a wish, a
Deployment for example, is the keeper's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from agentrun.contract.execution import (
    EnvironmentVariable,
    Execution,
    ExecutionMode,
    Scaling,
    ScalingMode,
    Volume,
    find_ledger_pool,
)
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.deadlines import attempt_timeout
from agentrun.decisions.pools.resource_amounts import ContainerAmounts, find_largest


class PoolKey(NamedTuple):
    """Names one pool among all."""

    namespace: str
    queue: str
    """As the ledger names it."""


@dataclass(frozen=True, slots=True)
class ToolInUse:
    """A definition that somebody may still call: a tool as it stands now, or as an open run has pinned it."""

    namespace: str
    name: str
    spec: AgentToolSpec


@dataclass(frozen=True, slots=True)
class PoolWish:
    """What a pool's pods are, and how many there may be."""

    pool: str
    """As its tools' author named it."""
    image: str | None = None
    account: str | None = None
    env: tuple[EnvironmentVariable, ...] = ()
    volumes: tuple[Volume, ...] = ()
    secrets: tuple[str, ...] = ()
    """Names of the Secrets that calls may read, sorted."""
    amounts: ContainerAmounts = field(default_factory=ContainerAmounts)
    scaling: ScalingMode = ScalingMode.BACKLOG
    least: int = 0
    most: int = Scaling().max
    longest_call: timedelta = timedelta()
    concurrency: Mapping[str, int | None] = field(default_factory=dict)
    """By tool: how many of its calls may be made at once; None: any number."""


def build_wishes(tools: Iterable[ToolInUse]) -> dict[PoolKey, PoolWish]:
    """Return the pools that these tools need. The same tools in another order give the same wishes."""
    known = list(tools)
    by_name: dict[tuple[str, str], list[AgentToolSpec]] = {}
    for tool in known:
        by_name.setdefault((tool.namespace, tool.name), []).append(tool.spec)
    members: dict[PoolKey, list[ToolInUse]] = {}
    for tool in known:
        execution = tool.spec.execution
        if execution is None or execution.mode is ExecutionMode.POOL:
            members.setdefault(PoolKey(tool.namespace, find_ledger_pool(execution)), []).append(tool)
    return {key: build_wish(found, by_name) for key, found in members.items()}


def build_wish(tools: Sequence[ToolInUse], by_name: Mapping[tuple[str, str], Sequence[AgentToolSpec]]) -> PoolWish:
    """Return what pods are that serve these tools, of which there is one at least.

    ``by_name``: the definitions of other tools that the pods may have to call, by namespace and name.
    """
    # Image, account, environment and volumes are the same for all of them: others would be another queue.
    execution = tools[0].spec.execution or Execution()
    executions = [tool.spec.execution or Execution() for tool in tools]
    scalings = [found.scaling for found in executions if found.scaling is not None] or [Scaling()]
    resources = [found.resources for found in executions if found.resources is not None]
    external = any(found.mode is ScalingMode.EXTERNAL for found in scalings)
    return PoolWish(
        pool=execution.pool,
        image=execution.image,
        account=execution.service_account_name,
        env=tuple(sorted(execution.env, key=lambda variable: variable.name)),
        volumes=tuple(sorted(execution.volumes, key=lambda volume: volume.name)),
        secrets=tuple(sorted({name for tool in tools for name in _secrets_of(tool, by_name)})),
        amounts=ContainerAmounts(
            find_largest(found.requests for found in resources), find_largest(found.limits for found in resources)
        ),
        scaling=ScalingMode.EXTERNAL if external else ScalingMode.BACKLOG,
        least=max(found.min for found in scalings),
        most=max(found.max for found in scalings),
        longest_call=max(attempt_timeout(None, tool.spec) for tool in tools),
        concurrency=_concurrency_of(tools),
    )


def _secrets_of(tool: ToolInUse, by_name: Mapping[tuple[str, str], Sequence[AgentToolSpec]]) -> Iterator[str]:
    specs = [tool.spec]
    if tool.spec.recovery is not None:
        # A lookup is made by the worker that recovers, in the pool of the tool that it asks about.
        specs += by_name.get((tool.namespace, tool.spec.recovery.lookup.tool), ())
    for spec in specs:
        if spec.http is not None:
            yield from (header.secret_key_ref.name for header in spec.http.headers_from)
        if spec.execution is not None:
            yield from spec.execution.secrets


def _concurrency_of(tools: Iterable[ToolInUse]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for tool in tools:
        limit = tool.spec.limits.concurrency if tool.spec.limits else None
        before = found.get(tool.name, 0)
        found[tool.name] = None if limit is None or before is None else max(limit, before)
    return found
