"""What the operator's settings say about the workers that it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from agentrun.decisions.pools.pool_step import PoolRules
from agentrun.decisions.pools.resource_amounts import ContainerAmounts
from agentrun.ledger.redis_connection import Durability


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Settings of all pools of one install."""

    install: str
    image: str
    """Of workers whose tools name none."""
    rules: PoolRules = field(default_factory=PoolRules)
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    """Names of the registry's Secrets, in each namespace with pools."""
    accounts: frozenset[str] = frozenset()
    """Service accounts that tools may name."""
    usual_amounts: ContainerAmounts = field(default_factory=ContainerAmounts)
    """What a worker gets where its tools say nothing."""
    user: int | None = 65532
    group: int | None = 65532
    volume_group: int | None = 65532
    """None, of each: whatever the cluster assigns."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    grace_margin: timedelta = timedelta(seconds=15)
    """Beyond the longest call: for a worker to say goodbye when it is told to end."""
    network_policy: bool = True
    """Put a NetworkPolicy beside each pool."""
    durability: Durability = Durability.REQUIRE
    log_level: str = "info"
