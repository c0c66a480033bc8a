"""Puts the job keeper of an operator process together from its settings. Called by the composition root alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_cluster import ApiCluster
from agentrun.controller.jobs.job_keeper import JobBoard, JobKeeper
from agentrun.controller.jobs.job_manifests import JobSettings
from agentrun.controller.jobs.job_report import JobReport
from agentrun.controller.operator_settings import OperatorSettings
from agentrun.controller.pools.pool_keeper import AccessKeeper
from agentrun.controller.pools.pools_of_process import build_pool_settings
from agentrun.decisions.jobs.job_step import JobRules
from agentrun.decisions.jobs.job_wishes import JobKey
from agentrun.engine.clock import Clock


def build_job_keeper(
    settings: OperatorSettings,
    client: ApiClient,
    access: AccessKeeper,
    clock: Clock,
    board: JobBoard,
    cluster: ApiCluster,
    show: Callable[[Mapping[JobKey, JobReport]], None],
) -> JobKeeper:
    """Return the keeper of the Jobs that the settings ask for."""
    return JobKeeper(
        client,
        board,
        access,
        JobSettings(build_pool_settings(settings), JobRules(keep_ended=settings.jobs_keep_ended)),
        clock,
        settings.namespaces or (None,),
        show,
        lambda: cluster.listed,
    )
