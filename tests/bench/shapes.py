"""The runs and the tool that are measured, as the product's own models. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from bench_cluster.manifests import build_chain, build_run, build_tool

NAMESPACE = "default"
ITEMS_MAX = 1000
"""What one fan-out may have."""
LIST_MAX = 500
"""What ``spec.nodes`` may have."""


def stamp_tool() -> AgentTool:
    """Return a tool that notes the moment of its call, in a thread of the worker's process."""
    return AgentTool.model_validate(_placed(build_tool("stamp")))


def process_tool() -> AgentTool:
    """Return the same tool as a new Python process for each call, which is what a tool gets that asks for nothing."""
    tool = build_tool("stamp")
    del tool["spec"]["python"]["isolation"]
    return AgentTool.model_validate(_placed(tool))


def chain(name: str, steps: int) -> AgentRun:
    """Return a run whose nodes follow one another."""
    return AgentRun.model_validate(_placed(build_chain(name, steps)))


def fan_outs(name: str, calls: int) -> AgentRun:
    """Return a run of so many calls side by side, in as few fan-outs as they go into."""
    widths = [min(ITEMS_MAX, calls - begun) for begun in range(0, calls, ITEMS_MAX)]
    nodes = [
        {
            "name": f"f{at}",
            "type": "FanOut",
            "fanOut": {
                "items": f"${{inputs.items{at}}}",
                "node": {"tool": "stamp", "params": {"word": f"{name}/f{at}/${{item}}"}},
            },
        }
        for at in range(len(widths))
    ]
    inputs = {f"items{at}": list(range(width)) for at, width in enumerate(widths)}
    return AgentRun.model_validate(_placed(build_run(name, nodes, inputs=inputs)))


def wide_list(name: str, calls: int) -> AgentRun:
    """Return a run of so many calls side by side, each written down in the manifest."""
    nodes = [{"name": f"n{at}", "tool": "stamp", "params": {"word": f"{name}/n{at}"}} for at in range(calls)]
    return AgentRun.model_validate(_placed(build_run(name, nodes)))


SHAPES: Mapping[str, Callable[[str, int], AgentRun]] = {"fan-outs": fan_outs, "chain": chain}
"""Ways in which the calls of a run stand to each other: side by side, or each after the one before it."""


def _placed(manifest: dict[str, Any]) -> dict[str, Any]:
    manifest["metadata"]["namespace"] = NAMESPACE
    return manifest
