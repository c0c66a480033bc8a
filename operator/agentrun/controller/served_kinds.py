"""Waiting for our kinds: kopf looks once for what the API server serves, so it must all be there before kopf starts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from agentrun.contract.object_meta import API_VERSION
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_objects import PLURALS
from agentrun.engine.cluster_port import ClusterUnavailableError, GoneError

_log = structlog.get_logger("agentrun.controller")
_PAUSE = timedelta(seconds=1)


async def wait_for_kinds(client: ApiClient) -> None:
    """Return once the API server serves every kind of ours with its status subresource; says what is missing."""
    said = ""
    while True:
        try:
            missing = await _find_missing(client)
        except (ClusterUnavailableError, GoneError) as error:
            missing = [str(error)]
        if not missing:
            return
        text = ", ".join(missing)
        if text != said:
            _log.warning("kinds_not_served", missing=text, remedy="kubectl apply -f crds/")
            said = text
        await asyncio.sleep(_PAUSE.total_seconds())


async def _find_missing(client: ApiClient) -> list[str]:
    answer = await client.request("GET", f"/apis/{API_VERSION}")
    resources = answer.get("resources")
    served = {found.get("name") for found in resources or () if isinstance(found, dict)}
    wanted = [name for plural in PLURALS.values() for name in (plural, f"{plural}/status")]
    # A tool's status is nobody's business yet.
    return [name for name in wanted if name not in served and name != "agenttools/status"]
