"""What a tool says about its pods and local mode does not do, in sentences for whoever starts a run.

Called by ``agentrun local run`` before it begins. Refuses nothing: the calls are made all the same, in this process.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentrun.contract.execution import Execution, ExecutionMode
from agentrun.contract.tool import AgentTool

_OF_A_POD = {
    "image": "image",
    "service_account_name": "serviceAccountName",
    "resources": "resources",
    "scaling": "scaling",
    "env": "env",
    "volumes": "volumes",
}


def find_ignored_executions(tools: Iterable[AgentTool]) -> tuple[str, ...]:
    """Return a sentence for each tool whose ``execution`` asks for more than a process on this machine gives."""
    said = []
    for tool in tools:
        fields = _ignored(tool.spec.execution) if tool.spec.execution else []
        if fields:
            said.append(
                f"AgentTool {tool.metadata.name}: local mode has no pods and ignores execution.{', '.join(fields)}"
            )
    return tuple(said)


def _ignored(execution: Execution) -> list[str]:
    fields = ["mode"] if execution.mode is ExecutionMode.JOB else []
    return fields + [wire for field, wire in _OF_A_POD.items() if getattr(execution, field)]
