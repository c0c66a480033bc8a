"""Objects from short YAML texts, as a manifest's author would write them; what a test does not care about is filled in."""

from __future__ import annotations

from textwrap import dedent

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.local.yaml_documents import Reading, read_documents

API = "agentrun.dev/v1alpha1"


def read_yaml(text: str) -> JsonValue:
    """Return the one value of a YAML text; an empty text is an empty object."""
    documents = list(read_documents(dedent(text).encode(), Reading.YAML_1_2))
    return documents[0].value if documents else {}


def build_tools(text: str, namespace: str = "default") -> list[AgentTool]:
    """Return tools from a mapping of name to spec; a tool without a type is a Python function nobody loads."""
    specs = read_yaml(text)
    assert isinstance(specs, dict)
    return [build_tool(name, spec if isinstance(spec, dict) else {}, namespace) for name, spec in specs.items()]


def build_tool(name: str, spec: JsonObject, namespace: str = "default") -> AgentTool:
    """Return one tool."""
    filled = {"type": "python", **spec}
    if filled["type"] == "python":
        filled.setdefault("python", {"entryPoint": "scripted:answer"})
    return AgentTool.model_validate(
        {
            "apiVersion": API,
            "kind": "AgentTool",
            "metadata": {"name": name, "namespace": namespace},
            "spec": filled,
        }
    )


def build_run(text: str, name: str = "run", namespace: str = "default") -> AgentRun:
    """Return a run from its spec; a list alone is its nodes."""
    spec = read_yaml(text)
    filled = {"nodes": spec} if isinstance(spec, list) else spec
    assert isinstance(filled, dict)
    return AgentRun.model_validate(
        {
            "apiVersion": API,
            "kind": "AgentRun",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"intent": "test", **filled},
        }
    )
