"""Params that the gate will stop whatever the run brings: literal values that miss their tool's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.run import AgentRunSpec
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.references import ReferenceSyntaxError, parse_template
from agentrun.decisions.value_paths import format_path
from agentrun.schemas.validator import SchemaValidator


def find_misfits(
    spec: AgentRunSpec, tools: Mapping[str, AgentToolSpec], validator: SchemaValidator
) -> Iterator[tuple[str, str]]:
    """Give (field, message) for each literal value that misses its tool's schema.

    Values that references will bring are not judged, nor what stands around them.
    """
    for field, tool_name, params in _calls(spec):
        tool = tools.get(tool_name or "")
        if tool is None or tool.params is None:
            continue
        try:
            open_places = [format_path(placed.at) for placed in parse_template(params).placed]
        except ReferenceSyntaxError:
            continue
        for problem in validator.validate(tool.params.schema_, params):
            if not any(_touches(problem.path, place) for place in open_places):
                yield f"{field}.params{_below(problem.path)}", problem.message


def _calls(spec: AgentRunSpec) -> Iterator[tuple[str, str | None, JsonObject]]:
    for at, node in enumerate(spec.nodes):
        field = f"spec.nodes[{at}]"
        yield field, node.tool, node.params
        if node.fan_out is None:
            continue
        if node.fan_out.node is not None:
            yield f"{field}.fanOut.node", node.fan_out.node.tool, node.fan_out.node.params
        for inner_at, inner in enumerate(node.fan_out.nodes):
            yield f"{field}.fanOut.nodes[{inner_at}]", inner.tool, inner.params


def _touches(problem: str, place: str) -> bool:
    """Tell whether a problem lies at, above or below a place that is still open."""
    if problem in ("", place):
        return True
    return place.startswith((f"{problem}.", f"{problem}[")) or problem.startswith((f"{place}.", f"{place}["))


def _below(path: str) -> str:
    return path if not path or path.startswith("[") else f".{path}"
