"""large: one run of thousands of nodes, and how an operator takes over what ended runs have left behind."""

from __future__ import annotations

import json
import time
from typing import Any

from bench_cluster.api import GROUP, collection, work_off
from bench_cluster.bench_site import Site, describe_between
from bench_cluster.manifests import build_call, build_fan_out, build_run
from bench_cluster.part_tree import read_time

_NODES = 5000
_FAN_OUTS = 5
_SLOTS = 64
_WITHIN = 3600.0
_A_RUN = 100
_KINDS = ("agentruns", "agentnodes", "agentapprovals", "agenttools")


async def measure_large(site: Site, scale: float, terminal_nodes: int) -> dict[str, Any]:
    """Run one large run, then let new operators take over; ``terminal_nodes`` are there by then at least."""
    place = "large"
    await site.prepare(place)
    site.start_worker([place], _SLOTS)
    empty = await _take_over(site, place, "probe-empty")
    before = await site.look()
    each = max(1, round(_NODES * scale / _FAN_OUTS) - 1)
    nodes = _FAN_OUTS * (each + 1)
    began = await site.submit([(place, _build_large(each))])
    await site.until_ended(2, _WITHIN)
    after = await site.look()
    run = json.loads(await site.api.request("GET", f"{collection('agentruns', place)}/large"))
    seconds = read_time(run["status"]["finishedAt"]) - began
    sizes = dict.fromkeys(_KINDS, 0)
    for plural in _KINDS:
        async for item in site.api.list_pages(plural, place):
            sizes[plural] = max(sizes[plural], len(json.dumps(item, separators=(",", ":"))))
    large = {
        "nodes": nodes,
        "phase": run["status"]["phase"],
        "seconds": round(seconds, 1),
        "nodes_per_s": round(nodes / seconds, 1),
        "largest_object_bytes": sizes,
        "operator_rss_mb": round(after.use["operator"].rss_bytes / 2**20),
        **describe_between(before, after, nodes, seconds),
    }
    site.stop(site.operator)
    site.operator = None
    copied = await _leave_behind(site, place, max(0, terminal_nodes - nodes))
    full = await _take_over(site, place, "probe-full")
    return {
        "run": large,
        "empty_cluster": empty,
        "terminal_nodes": nodes + copied + 2,
        "with_terminal_nodes": full,
        "leader_killed": await _kill_leader(site, place),
    }


def _build_large(each: int) -> dict[str, Any]:
    one = build_fan_out("large", "stamp", {"word": "${item}"}, each)
    node = one["spec"]["nodes"][0]
    one["spec"]["nodes"] = [{**node, "name": f"all-{at}"} for at in range(_FAN_OUTS)]
    one["spec"]["timeout"] = "6h"
    one["spec"]["waits"] = {"queue": "6h", "dependencies": "6h"}
    return one


async def _take_over(site: Site, place: str, name: str) -> dict[str, Any]:
    """Start an operator that finds one new run, and see when its call is made and what the operator needs."""
    await site.submit([(place, build_run(name, [build_call(name, "call")]))])
    began = time.time()
    site.start_operator()
    called = await _until_word(site, f"{name}/call")
    await site.until_ended(1, 120)
    use = (await site.look()).use["operator"]
    return {
        "start_to_first_call_s": round(called - began, 2),
        "cpu_seconds": round(use.cpu_seconds, 2),
        "rss_mb": round(use.rss_bytes / 2**20),
        "peak_rss_mb": round(use.peak_rss_bytes / 2**20),
    }


async def _kill_leader(site: Site, place: str) -> dict[str, Any]:
    """Kill the leader beside a standby and see when the first call is made under the new one."""
    leader = site.operator
    site.start_operator(name="standby")

    async def stands_by() -> bool:
        return bool(await site.operator_metrics())

    await site.until("a standby", stands_by, 60)
    if leader is not None:
        leader.kill()
        leader.wait()
    killed = time.time()
    await site.submit([(place, build_run("probe-killed", [build_call("probe-killed", "call")]))])
    called = await _until_word(site, "probe-killed/call")
    return {"lease_duration_s": 15, "killed_to_first_call_s": round(called - killed, 2)}


async def _until_word(site: Site, word: str) -> float:
    async def holds() -> bool:
        return any(said == word for said, _ in site.read_clock())

    await site.until(word, holds, 600)
    return next(at for said, at in site.read_clock() if said == word)


async def _leave_behind(site: Site, place: str, count: int) -> int:
    """Create copies of ended runs and their nodes, 100 to a run, as an operator leaves them; return how many nodes."""
    model_run = json.loads(await site.api.request("GET", f"{collection('agentruns', place)}/probe-empty"))
    uid = model_run["metadata"]["uid"]
    model = next(node for node in await site.api.list_all("agentnodes", place) if node["spec"]["run"]["uid"] == uid)

    async def copy(plural: str, source: dict[str, Any], meta: dict[str, Any], spec: dict[str, Any]) -> str:
        body = {"apiVersion": source["apiVersion"], "kind": source["kind"], "metadata": meta, "spec": spec}
        made = await site.api.create(collection(plural, place), body)
        body["metadata"] = {**meta, "namespace": place, "resourceVersion": made["metadata"]["resourceVersion"]}
        body["status"] = source["status"]
        path = f"{GROUP}/namespaces/{place}/{plural}/{meta['name']}/status"
        await site.api.request("PUT", path, json.dumps(body).encode())
        return str(made["metadata"]["uid"])

    async def leave(at: int) -> None:
        name = f"ended-{at}"
        new = await copy("agentruns", model_run, {"name": name}, model_run["spec"])
        owner = {**model["metadata"]["ownerReferences"][0], "name": name, "uid": new}
        labels = {key: new if value == uid else value for key, value in model["metadata"]["labels"].items()}
        for number in range(_A_RUN):
            meta = {"name": f"{name}-{number}", "labels": labels, "ownerReferences": [owner]}
            await copy("agentnodes", model, meta, {**model["spec"], "run": {"name": name, "uid": new}})

    runs = -(-count // _A_RUN)
    await work_off(range(runs), 16, leave)
    return runs * _A_RUN
