"""What the cluster port asks of the API server."""

from __future__ import annotations

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes import client

from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.run import AgentRun, AgentRunSpec, AgentRunStatus, RunNode
from agentrun.controller.api_access import ApiAccess
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_cluster import ApiCluster


async def test_a_stored_status_is_answered_with_metadata_alone() -> None:
    accepted: list[str] = []

    async def store(request: web.Request) -> web.Response:
        accepted.append(request.headers["Accept"])
        sent = await request.json()
        return web.json_response({"metadata": {**sent["metadata"], "resourceVersion": "8", "generation": 3}})

    app = web.Application()
    app.router.add_put("/apis/agentrun.dev/v1alpha1/namespaces/shop/agentruns/tidy/status", store)
    spec = AgentRunSpec(intent="tidy up", nodes=(RunNode(name="call", tool="tidy"),))
    meta = ObjectMeta(name="tidy", namespace="shop", uid="u-1", resource_version="7")
    run = AgentRun(metadata=meta, spec=spec, status=AgentRunStatus())
    async with TestServer(app) as server:
        configuration = client.Configuration(host=str(server.make_url("")))
        async with ApiClient(ApiAccess(configuration)) as api:
            stored = await ApiCluster(api).replace_status(run)

    assert accepted == ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"]
    assert (stored.metadata.resource_version, stored.metadata.generation) == ("8", 3)
    assert stored.spec is run.spec
