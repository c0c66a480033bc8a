"""Which Job an attempt wants, and what the pod of that Job is.

Said by the engine, for attempts of tools of mode ``Job``; read by the operator's job keeper. What is built of a wish
is the keeper's matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from agentrun.contract.execution import DEFAULT_POOL
from agentrun.contract.run import Priority
from agentrun.contract.tool import AgentToolSpec, ContainerCall
from agentrun.decisions.pools.pool_wishes import PoolWish, ToolInUse, build_wish


class JobKey(NamedTuple):
    """Names one Job among all; the name follows from node, order and definition, and from nothing else."""

    namespace: str
    name: str


class JobStage(StrEnum):
    """What the attempt wants of its Job."""

    START = "Start"
    """A pod that waits for the order: it is sent once one does, so nothing is at stake before."""
    OUT = "Out"
    """Nothing: the order is out, or a worker has it. What becomes of it the ledger says, never the Job."""
    RECOVER = "Recover"
    """A pod: an order that merely asks what happened is out, and any pod may take it."""


@dataclass(frozen=True, slots=True)
class JobWish:
    """One attempt's Job."""

    key: JobKey
    stage: JobStage
    queue: str
    """That its order goes to, and nobody else reads."""
    node: str
    """Name of the AgentNode, who owns the Job."""
    node_uid: str
    seq: int
    run_uid: str
    tool: str
    priority: Priority
    spec: AgentToolSpec
    lookup: tuple[str, AgentToolSpec] | None
    """The tool that says what became of a call, whose Secrets the pod needs as well."""
    longest_call: timedelta
    """How long a worker of this Job may be at work on its order."""
    patience: timedelta
    """How long its pod waits for the order, from its start."""


def find_container(wish: JobWish) -> ContainerCall | None:
    """Return the program that the Job's pod has to start; None where its worker does everything."""
    # Whoever asks what became of a call starts nothing.
    return None if wish.stage is JobStage.RECOVER else wish.spec.container


def build_job_pod(wish: JobWish) -> PoolWish:
    """Return what the Job's pod is: what a worker of the tool's pool would be, and alone.

    Of a tool of type container: what its container gets; for the recovery, what a worker that asks the lookup needs.
    """
    tools = [ToolInUse(wish.key.namespace, wish.tool, wish.spec)]
    by_name = {(wish.key.namespace, wish.lookup[0]): [wish.lookup[1]]} if wish.lookup else {}
    if wish.spec.container is not None:
        asks = wish.stage is JobStage.RECOVER
        if asks and wish.lookup is None:
            pool = wish.spec.execution.pool if wish.spec.execution else DEFAULT_POOL
            return PoolWish(pool, longest_call=wish.longest_call)
        if asks and wish.lookup is not None:
            tools = [ToolInUse(wish.key.namespace, *wish.lookup)]
        by_name = {}
    return replace(build_wish(tools, by_name), longest_call=wish.longest_call)
