"""Which pools the tools need, and what their pods are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.execution import ScalingMode
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.pools.pool_wishes import PoolKey, ToolInUse, build_wishes
from agentrun.decisions.pools.resource_amounts import ContainerAmounts, fit_amounts, read_quantity


def build_tool(name: str = "t", namespace: str = "shop", **spec: Any) -> ToolInUse:
    given = {"type": "python", "python": {"entryPoint": "m:f"}, **spec}
    return ToolInUse(namespace, name, AgentToolSpec.from_wire(given))


def http_tool(name: str, secret: str, **spec: Any) -> ToolInUse:
    header = {"name": "Authorization", "secretKeyRef": {"name": secret, "key": "token"}}
    call = {"method": "GET", "url": "https://h.example/", "headersFrom": [header]}
    return build_tool(name, type="http", http=call, python=None, **spec)


def executed(**execution: Any) -> dict[str, Any]:
    return {"execution": execution}


def test_tools_without_a_word_share_one_plain_pool() -> None:
    wishes = build_wishes([build_tool("a"), build_tool("b")])
    (key,) = wishes
    assert key == PoolKey("shop", "shared")
    assert (wishes[key].least, wishes[key].most, wishes[key].image) == (0, 10, None)


@pytest.mark.parametrize(
    "execution, want_pools",
    [
        pytest.param({"pool": "other"}, 2, id="another pool"),
        pytest.param({"image": "mine:1"}, 2, id="another image"),
        pytest.param({"serviceAccountName": "robot"}, 2, id="another account"),
        pytest.param({"env": [{"name": "A", "value": "b"}]}, 2, id="another environment"),
        pytest.param(
            {"volumes": [{"name": "v", "kind": "ConfigMap", "source": "c", "mountPath": "/c"}]}, 2, id="another volume"
        ),
        pytest.param({"secrets": ["s"]}, 1, id="a Secret"),
        pytest.param({"resources": {"limits": {"memory": "1Gi"}}}, 1, id="more memory"),
        pytest.param({"scaling": {"max": 3}}, 1, id="scaling"),
        pytest.param({"mode": "Job"}, 1, id="a Job needs no pool"),
    ],
)
def test_what_makes_another_pod_makes_another_pool(execution: dict[str, Any], want_pools: int) -> None:
    assert len(build_wishes([build_tool("a"), build_tool("b", **executed(**execution))])) == want_pools


def test_namespaces_never_share_a_pool() -> None:
    assert len(build_wishes([build_tool("a"), build_tool("a", namespace="billing")])) == 2


def test_the_largest_wishes_count() -> None:
    tools = [
        build_tool(
            "a",
            timeout="10s",
            **executed(
                scaling={"min": 1, "max": 3},
                resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            ),
        ),
        build_tool(
            "b",
            timeout="3m",
            **executed(scaling={"max": 7}, resources={"requests": {"cpu": "1", "memory": "900Mi"}}),
        ),
        build_tool("c"),
    ]
    (wish,) = build_wishes(tools).values()
    assert (wish.least, wish.most, wish.scaling) == (1, 7, ScalingMode.BACKLOG)
    assert wish.amounts == ContainerAmounts({"cpu": "1", "memory": "1Gi"}, {"memory": "2Gi"})
    assert wish.longest_call == timedelta(minutes=3)


def test_one_tool_that_is_scaled_by_others_makes_its_pool_so() -> None:
    (wish,) = build_wishes([build_tool("a"), build_tool("b", **executed(scaling={"mode": "External"}))]).values()
    assert wish.scaling is ScalingMode.EXTERNAL


def test_secrets_are_those_of_the_tools_and_of_their_lookups() -> None:
    recovery = {
        "lookup": {"tool": "ask"},
        "outcome": {"completed": {"when": {"path": "result.state", "op": "eq", "value": "done"}}},
    }
    tools = [
        http_tool("pay", "provider", recovery=recovery),
        http_tool("ask", "auditor", **executed(pool="lookups")),
        build_tool("report", **executed(secrets=["mail"])),
    ]
    wishes = build_wishes(tools)
    assert wishes[PoolKey("shop", "shared")].secrets == ("auditor", "mail", "provider")
    assert wishes[PoolKey("shop", "lookups")].secrets == ("auditor",)


def test_two_definitions_of_one_tool_are_both_served() -> None:
    former = build_tool("a", limits={"concurrency": 2}, **executed(secrets=["old"]))
    (wish,) = build_wishes([former, build_tool("a", limits={"concurrency": 5}, **executed(secrets=["new"]))]).values()
    assert wish.secrets == ("new", "old")
    assert wish.concurrency == {"a": 5}
    (unlimited,) = build_wishes([former, build_tool("a")]).values()
    assert unlimited.concurrency == {"a": None}


TOOLS = [
    build_tool("a", **executed(secrets=["x"], scaling={"max": 3})),
    build_tool("b", **executed(env=[{"name": "B", "value": "1"}, {"name": "A", "value": "2"}])),
    build_tool("c", **executed(env=[{"name": "A", "value": "2"}, {"name": "B", "value": "1"}])),
    http_tool("d", "y"),
]


@given(st.permutations(TOOLS))
def test_the_order_of_tools_changes_no_wish(tools: list[ToolInUse]) -> None:
    assert build_wishes(tools) == build_wishes(TOOLS)


@pytest.mark.parametrize(
    "text, want", [("250m", "0.25"), ("1.5", "1.5"), ("1Ki", "1024"), ("1k", "1000"), ("2Gi", "2147483648")]
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, want: str) -> None:
    assert read_quantity(text) == read_quantity(want)


@pytest.mark.parametrize("text", ["", "1e3", "-1", "1 Gi", "Gi", "1KB"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        read_quantity(text)


@pytest.mark.parametrize(
    "wished, want",
    [
        pytest.param(ContainerAmounts(), ({"memory": "128Mi"}, {"memory": "512Mi"}), id="usual"),
        pytest.param(
            ContainerAmounts({"memory": "1Gi"}), ({"memory": "1Gi"}, {"memory": "1Gi"}), id="a request lifts the limit"
        ),
        pytest.param(
            ContainerAmounts({}, {"memory": "64Mi"}),
            ({"memory": "64Mi"}, {"memory": "64Mi"}),
            id="a limit lowers the request",
        ),
        pytest.param(
            ContainerAmounts({"memory": "1Gi"}, {"memory": "512Mi"}),
            ({"memory": "1Gi"}, {"memory": "1Gi"}),
            id="of two that contradict each other the request counts",
        ),
    ],
)
def test_no_request_is_above_its_limit(wished: ContainerAmounts, want: tuple[dict[str, str], dict[str, str]]) -> None:
    fitted = fit_amounts(wished, ContainerAmounts({"memory": "128Mi"}, {"memory": "512Mi"}))
    assert (fitted.requests, fitted.limits) == want
