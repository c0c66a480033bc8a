"""Builds the tools and runs that are measured."""

from __future__ import annotations

from typing import Any

API_VERSION = "agentrun.dev/v1alpha1"


def build_tool(name: str, side_effect: str = "None") -> dict[str, Any]:
    """Return an AgentTool that calls the function of its name in the worker's own process."""
    python = {"entryPoint": f"bench_tools:{name}", "isolation": "Thread"}
    spec = {"type": "python", "python": python, "sideEffect": side_effect, "timeout": "15s"}
    return {"apiVersion": API_VERSION, "kind": "AgentTool", "metadata": {"name": name}, "spec": spec}


def build_run(name: str, nodes: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """Return an AgentRun."""
    return {
        "apiVersion": API_VERSION,
        "kind": "AgentRun",
        "metadata": {"name": name},
        "spec": {"intent": "a measurement", "nodes": nodes, **spec},
    }


def build_call(run: str, node: str, depends_on: str | None = None) -> dict[str, Any]:
    """Return a node that notes the moment under ``run/node``."""
    call: dict[str, Any] = {"name": node, "tool": "stamp", "params": {"word": f"{run}/{node}"}}
    return call if depends_on is None else {**call, "dependsOn": [depends_on]}


def build_tree(name: str, nodes: int) -> dict[str, Any]:
    """Return a run whose nodes form a tree: each but the first depends on one other, and three on each."""
    calls = [build_call(name, f"n{at}", f"n{(at - 1) // 3}" if at else None) for at in range(nodes)]
    return build_run(name, calls)


def build_chain(name: str, steps: int) -> dict[str, Any]:
    """Return a run whose nodes follow one another."""
    return build_run(name, [build_call(name, f"n{at}", f"n{at - 1}" if at else None) for at in range(steps)])


def build_fan_out(name: str, tool: str, params: dict[str, Any], instances: int, **spec: Any) -> dict[str, Any]:
    """Return a run of one node that fans out; ``${item}`` in its params is the instance's number."""
    fan_out = {"items": "${inputs.items}", "node": {"tool": tool, "params": params}}
    nodes = [{"name": "all", "type": "FanOut", "fanOut": fan_out}]
    return build_run(name, nodes, inputs={"items": list(range(instances))}, **spec)
