"""Puts the pool keeper of an operator process together from its settings. Called by the composition root alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_cluster import ApiCluster
from agentrun.controller.operator_settings import OperatorSettings
from agentrun.controller.pools.pool_keeper import AccessKeeper, PoolBoard, PoolKeeper
from agentrun.controller.pools.pool_report import PoolReport
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.controller.pools.worker_access import AccessSettings, WorkerAccess
from agentrun.decisions.pools.pool_step import PoolRules
from agentrun.decisions.pools.pool_wishes import PoolKey
from agentrun.decisions.pools.resource_amounts import ContainerAmounts
from agentrun.engine.clock import Clock
from agentrun.ledger.redis_ledger import RedisLedger


def build_worker_access(
    settings: OperatorSettings, client: ApiClient, ledger: RedisLedger, clock: Clock
) -> WorkerAccess:
    """Return what gives workers their way to the ledger, those of pools and those of Jobs."""
    url = settings.pools_ledger_url or settings.redis
    access = AccessSettings(
        settings.install,
        url.get_secret_value(),
        settings.pools_isolation,
        settings.pools_credentials_life,
        settings.pools_ledger_authority,
    )
    return WorkerAccess(client, ledger.worker_users(), access, clock)


def build_pool_keeper(
    settings: OperatorSettings,
    client: ApiClient,
    access: AccessKeeper,
    clock: Clock,
    board: PoolBoard,
    cluster: ApiCluster,
    show: Callable[[Mapping[PoolKey, PoolReport]], None],
) -> PoolKeeper:
    """Return the keeper of the pools that the settings ask for."""
    return PoolKeeper(
        client,
        board,
        access,
        build_pool_settings(settings),
        clock,
        settings.namespaces or (None,),
        show,
        lambda: cluster.listed,
    )


def build_pool_settings(settings: OperatorSettings) -> PoolSettings:
    """Return what the settings say about pools."""
    return PoolSettings(
        install=settings.install,
        image=settings.pools_image,
        rules=PoolRules(
            settings.pools_slots, settings.pools_scale_down_after, settings.pools_delete_after, settings.pools_settle
        ),
        pull_policy=settings.pools_image_pull_policy,
        pull_secrets=tuple(settings.pools_image_pull_secrets),
        accounts=frozenset(settings.pools_service_accounts),
        usual_amounts=ContainerAmounts(settings.pools_requests, settings.pools_limits),
        user=settings.pools_run_as_user or None,
        group=settings.pools_run_as_group or None,
        volume_group=settings.pools_fs_group or None,
        node_selector=settings.pools_node_selector,
        priority_class=settings.pools_priority_class,
        grace_margin=settings.pools_grace_margin,
        network_policy=settings.pools_network_policy,
        durability=settings.durability,
        log_level=settings.log_level.value,
    )
