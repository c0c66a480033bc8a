"""raw: how fast the API server itself takes AgentNodes and their statuses, with nobody watching."""

from __future__ import annotations

import json
import time
from typing import Any

from bench_cluster.api import JSON, MERGE, collection, work_off
from bench_cluster.bench_site import Site

WRITERS = 32
CREATE = "POST agentnodes"
UPDATE = "PUT agentnodes/status"
PATCH = "PATCH agentnodes/status"
_NODES = 2000


async def measure_raw(site: Site, scale: float) -> dict[str, Any]:
    """Create nodes, replace their statuses and patch them, with concurrent writers; the server's rates a second.

    The objects are copies of what an operator made: it is started for one run and stopped again.
    """
    place = "raw-template"
    await site.prepare(place)
    operator = site.start_operator()
    site.start_worker([place], 8)
    await site.warm_up(place)
    site.stop(operator)
    site.stop(site.worker)
    site.operator = site.worker = None
    model = next(node for node in await site.api.list_all("agentnodes", place) if node["spec"]["path"] == "n9")
    await site.api.create_namespace("raw")
    count = max(100, round(_NODES * scale))
    versions: dict[str, str] = {}
    bodies = {f"raw-{at}": {"spec": model["spec"]} for at in range(count)}
    path = collection("agentnodes", "raw")
    kind = {"apiVersion": model["apiVersion"], "kind": "AgentNode"}

    async def create(name: str) -> None:
        meta = {"name": name, "labels": model["metadata"].get("labels", {})}
        body = json.dumps({**kind, "metadata": meta, **bodies[name]}).encode()
        answer = json.loads(await site.api.request("POST", path, body))
        versions[name] = answer["metadata"]["resourceVersion"]

    async def update(name: str) -> None:
        meta = {"name": name, "namespace": "raw", "resourceVersion": versions[name]}
        body = json.dumps({**kind, "metadata": meta, **bodies[name], "status": model["status"]}).encode()
        await site.api.request("PUT", f"{path}/{name}/status", body)

    async def patch(name: str) -> None:
        body = json.dumps({"status": {**model["status"], "message": "patched"}}).encode()
        await site.api.request("PATCH", f"{path}/{name}/status", body, MERGE)

    rates = {}
    for what, act in ((CREATE, create), (UPDATE, update), (PATCH, patch)):
        began = time.perf_counter()
        await work_off(bodies, WRITERS, act)
        rates[what] = round(count / (time.perf_counter() - began), 1)
    await site.api.request("DELETE", path, None, JSON)
    return {
        "objects": count,
        "writers": WRITERS,
        "object_bytes": len(json.dumps(model, separators=(",", ":"))),
        "per_s": rates,
    }
