"""What local mode says about pods that it does not have."""

from typing import Any

import pytest

from agentrun.contract.tool import AgentTool
from agentrun.local.ignored_execution import find_ignored_executions


def a_tool(execution: dict[str, Any] | None) -> AgentTool:
    """Return a tool named t with this execution."""
    spec = {
        "type": "python",
        "python": {"entryPoint": "a:b"},
        **({} if execution is None else {"execution": execution}),
    }
    return AgentTool.from_wire(
        {"apiVersion": "agentrun.dev/v1alpha1", "kind": "AgentTool", "metadata": {"name": "t"}, "spec": spec}
    )


@pytest.mark.parametrize("execution", [None, {}, {"pool": "reports"}, {"mode": "Pool", "secrets": ["shop"]}])
def test_nothing_is_said_about_what_local_mode_does(execution: dict[str, Any] | None) -> None:
    assert find_ignored_executions([a_tool(execution)]) == ()


def test_everything_that_is_ignored_is_named() -> None:
    execution = {"mode": "Job", "image": "shop/tools:1", "env": [{"name": "REGION"}]}
    (said,) = find_ignored_executions([a_tool(execution), a_tool(None)])
    assert said == "AgentTool t: local mode has no pods and ignores execution.mode, image, env"
