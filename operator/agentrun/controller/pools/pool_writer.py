"""Writes what was decided about a pool to the API server. Decides nothing; each request is made once.

Called by the pool keeper. What a request raises is the keeper's to explain; a step that was cut off in the middle is
taken again, and finds what is there.
"""

from __future__ import annotations

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_objects import path_inside
from agentrun.controller.event_poster import MERGE_PATCH
from agentrun.controller.pools.our_objects import OurObjects, merge_meta
from agentrun.controller.pools.pool_manifests import PoolManifests
from agentrun.controller.pools.pool_sights import DELETION_COST, KEPT_COST
from agentrun.decisions.pools.pool_wishes import PoolKey
from agentrun.engine.cluster_port import GoneError


class PoolWriter:
    """The requests about pools."""

    def __init__(self, client: ApiClient, budget_version: str) -> None:
        """``budget_version``: of the API group policy that the server serves."""
        self._client = client
        self._ours = OurObjects(client)
        self.budget_version = budget_version
        """Of the objects that are to be written."""

    async def create(self, key: PoolKey, wanted: PoolManifests, replicas: int | None) -> JsonObject:
        """Make the pool and return its Deployment as stored. Raises :class:`ForeignObjectError`."""
        await self.write_beside(key, wanted)
        # What was made by whoever led before is compared at the next look.
        return await self._ours.find_or_create(
            deployments_path(key.namespace), _with_replicas(wanted.deployment, replicas)
        )

    async def replace(self, key: PoolKey, wanted: PoolManifests, seen: JsonObject) -> JsonObject:
        """Make what exists what is wanted; its number of workers, and what others noted on it, stay."""
        await self.write_beside(key, wanted)
        spec = seen.get("spec")
        replicas = spec.get("replicas") if isinstance(spec, dict) else None
        body = _with_replicas(wanted.deployment, replicas if isinstance(replicas, int) else None)
        body["metadata"] = merge_meta(seen, wanted.deployment)
        return await self._client.request("PUT", f"{deployments_path(key.namespace)}/{wanted.name}", body)

    async def scale(self, key: PoolKey, name: str, replicas: int) -> JsonObject:
        """Set the number of workers."""
        path = f"{deployments_path(key.namespace)}/{name}"
        return await self._client.request("PATCH", path, {"spec": {"replicas": replicas}}, content_type=MERGE_PATCH)

    async def mark(self, key: PoolKey, pod: str, *, keep: bool) -> JsonObject | None:
        """Have Kubernetes end other pods first, or as it likes; None: the pod is gone."""
        notes: JsonObject = {DELETION_COST: KEPT_COST if keep else None}
        path = f"{pods_path(key.namespace)}/{pod}"
        try:
            return await self._client.request(
                "PATCH", path, {"metadata": {"annotations": notes}}, content_type=MERGE_PATCH
            )
        except GoneError:
            return None

    async def delete(self, key: PoolKey, name: str, uid: str) -> None:
        """Take the pool away, if it is still the one that was seen."""
        await self._ours.delete(deployments_path(key.namespace), name, uid)
        await self.delete_beside(key.namespace, name)

    async def delete_beside(self, namespace: str, name: str) -> None:
        """Take away what stands beside a pool that is gone."""
        for path in (policies_path(namespace), self._budgets_path(namespace)):
            await self._ours.delete(path, name)

    async def list_beside(self, namespace: str | None, selector: str) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the NetworkPolicies and the PodDisruptionBudgets of pools."""
        asked = {"labelSelector": selector}
        policies, _ = await self._client.list_all(policies_path(namespace), asked)
        budgets, _ = await self._client.list_all(self._budgets_path(namespace), asked)
        return policies, budgets

    async def write_beside(self, key: PoolKey, wanted: PoolManifests) -> None:
        """Have NetworkPolicy and PodDisruptionBudget as wanted: before the pods that they are for."""
        if wanted.policy is not None:
            await self._ours.write(policies_path(key.namespace), wanted.policy)
        await self._ours.write(self._budgets_path(key.namespace), wanted.budget)

    def _budgets_path(self, namespace: str | None) -> str:
        return f"/apis/policy/{self.budget_version}{path_inside(namespace)}/poddisruptionbudgets"


def deployments_path(namespace: str | None) -> str:
    """Return the URL path of the Deployments of one namespace, or of all (None)."""
    return f"/apis/apps/v1{path_inside(namespace)}/deployments"


def pods_path(namespace: str | None) -> str:
    """Return the URL path of the pods of one namespace, or of all (None)."""
    return f"/api/v1{path_inside(namespace)}/pods"


def policies_path(namespace: str | None) -> str:
    """Return the URL path of the NetworkPolicies of one namespace, or of all (None)."""
    return f"/apis/networking.k8s.io/v1{path_inside(namespace)}/networkpolicies"


def _with_replicas(deployment: JsonObject, replicas: int | None) -> JsonObject:
    spec = deployment.get("spec")
    if replicas is None or not isinstance(spec, dict):
        return dict(deployment)
    return {**deployment, "spec": {**spec, "replicas": replicas}}
