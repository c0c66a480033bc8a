"""Writes what was decided about a Job to the API server. Decides nothing; each request is made once.

Called by the job keeper. What a request raises is the keeper's to explain.
"""

from __future__ import annotations

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_objects import path_inside
from agentrun.controller.jobs.job_manifests import build_job_policy
from agentrun.controller.jobs.job_sights import find_creation_refusal
from agentrun.controller.pools.our_objects import OurObjects
from agentrun.controller.pools.pool_writer import policies_path
from agentrun.decisions.jobs.job_wishes import JobKey


class JobWriter:
    """The requests about Jobs."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._ours = OurObjects(client)

    async def create(self, wanted: JsonObject) -> JsonObject:
        """Make a Job and return it as stored; one that a former leader made is returned as it is.

        Raises :class:`~agentrun.controller.pools.our_objects.ForeignObjectError`.
        """
        meta = wanted["metadata"]
        namespace = str(meta["namespace"]) if isinstance(meta, dict) else ""
        return await self._ours.find_or_create(jobs_path(namespace), wanted)

    async def delete(self, key: JobKey, uid: str) -> None:
        """Take a Job away with its pod, if it is still the one that was seen."""
        await self._ours.delete(jobs_path(key.namespace), key.name, uid)

    async def write_policy(self, namespace: str, install: str) -> None:
        """Have the NetworkPolicy for the pods of Jobs, before there are any."""
        await self._ours.write(policies_path(namespace), build_job_policy(namespace, install))

    async def find_refusal(self, key: JobKey, uid: str) -> str:
        """Return why Kubernetes could make no pod for a Job; empty where it says nothing."""
        asked = {"fieldSelector": f"involvedObject.uid={uid}"}
        events, _ = await self._client.list_all(f"/api/v1{path_inside(key.namespace)}/events", asked)
        return find_creation_refusal(events)


def jobs_path(namespace: str | None) -> str:
    """Return the URL path of the Jobs of one namespace, or of all (None)."""
    return f"/apis/batch/v1{path_inside(namespace)}/jobs"
