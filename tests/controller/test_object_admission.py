"""What is refused when a run or a tool is applied, and what the author of a tool needs to be allowed."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.webhook.access_reviews import Access, Requester, build_review
from agentrun.controller.webhook.object_admission import ObjectAdmission
from agentrun.decisions.facts import Problem
from agentrun.decisions.namespace_policy import NamespacePolicies, NamespacePolicy
from support.approval_reviews import Roles

PODS = "create pods"


def a_run(*nodes: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a run whose name is still to be generated."""
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"generateName": "r-"},
        "spec": {"intent": "x", "nodes": [dict(node) for node in nodes], **spec},
    }


def a_tool(*secrets: str, **spec: Any) -> dict[str, Any]:
    """Return an HTTP tool that reads a header from each Secret."""
    headers = [{"name": f"X-{at}", "secretKeyRef": {"name": secret, "key": "k"}} for at, secret in enumerate(secrets)]
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentTool",
        "metadata": {"name": "t"},
        "spec": {"type": "http", "http": {"url": "https://shop.example/", "headersFrom": headers}, **spec},
    }


def check_schema(schema: JsonObject) -> tuple[Problem, ...]:
    """Refuse one schema."""
    return (Problem("type", "unknown type"),) if schema == {"type": "wrong"} else ()


def review(
    after: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    roles: Roles | None = None,
    policies: Mapping[str, NamespacePolicy] | None = None,
) -> str:
    """Return why the change is refused; empty when it is admitted."""
    request = {
        "uid": "req-1",
        "namespace": "shop",
        "userInfo": {"username": "bob"},
        "object": after,
        "oldObject": before,
    }
    admission = ObjectAdmission(roles or Roles(frozenset({PODS})), check_schema, NamespacePolicies(policies or {}))
    body: Any = {"apiVersion": "admission.k8s.io/v1", "request": request}
    answer: Any = asyncio.run(admission.review(body))
    assert answer["response"]["uid"] == "req-1"
    assert answer["response"]["allowed"] is ("status" not in answer["response"])
    return str(answer["response"].get("status", {}).get("message", ""))


A = {"name": "a", "tool": "t"}
CONDITION = {"name": "a", "type": "Condition"}
CIRCLE = ({**A, "dependsOn": ["b"]}, {"name": "b", "tool": "t", "dependsOn": ["a"]})


@pytest.mark.parametrize(
    "run, want",
    [
        pytest.param(a_run(A), "", id="right, with a tool that may still come"),
        pytest.param(a_run(CONDITION), "condition", id="what the models refuse"),
        pytest.param(a_run(*CIRCLE), "spec.nodes", id="a circle"),
        pytest.param(a_run({**A, "dependsOn": ["z"]}), "spec.nodes[0].dependsOn[0]", id="an unknown node"),
        pytest.param(a_run({**A, "params": {"x": "${inputs.y}"}}), "spec.nodes[0].params.x", id="a missing input"),
        pytest.param(a_run({**A, "params": {"x": "${"}}), "spec.nodes[0].params.x", id="a malformed reference"),
    ],
)
def test_a_run_that_could_never_begin_is_refused_with_the_field(run: dict[str, Any], want: str) -> None:
    refusal = review(run)
    assert want in refusal
    assert bool(refusal) is bool(want)


@pytest.mark.parametrize(
    "tool, want",
    [
        pytest.param(a_tool(), "", id="right"),
        pytest.param(a_tool(recovery={"lookup": {"tool": "l"}, "outcome": {}}), "spec.recovery.outcome", id="recovery"),
        pytest.param(a_tool(degradeTo=["later"]), "", id="with a tool that may still come"),
        pytest.param(a_tool(degradeTo=["t"]), "spec.degradeTo[0]", id="replaced by itself"),
        pytest.param(a_tool(params={"schema": {"type": "wrong"}}), "spec.params.schema.type", id="schema"),
        pytest.param(a_tool(http={"url": "https://{host}/"}), "spec.http.url", id="host is a param"),
        pytest.param(a_tool(type="python"), "python", id="what the models refuse"),
    ],
)
def test_a_tool_that_no_run_could_use_is_refused_with_the_field(tool: dict[str, Any], want: str) -> None:
    refusal = review(tool)
    assert want in refusal
    assert bool(refusal) is bool(want)


def test_what_was_wrong_before_is_no_obstacle_to_cancelling_a_run() -> None:
    wrong = a_run(*CIRCLE)
    assert review({**wrong, "metadata": {"finalizers": []}}, wrong) == ""
    assert review(a_run(*CIRCLE, cancel=True), wrong) == ""
    assert "condition" in review(a_run(CONDITION), wrong)
    assert "condition" in review(a_run(CONDITION), a_run(A))


def test_a_run_beyond_its_namespaces_policy_is_refused_where_it_is_stored_and_where_it_is_changed() -> None:
    most = {"shop": NamespacePolicy(budget_micros=50_000_000)}
    within, beyond = a_run(A, budget={"limit": "50.00"}), a_run(A, budget={"limit": "50.01"})
    assert review(within, policies=most) == ""
    assert "spec.budget.limit: is 50.01" in review(beyond, policies=most)
    assert "spec.budget.limit: is 50.01" in review(beyond, within, policies=most)
    assert review({**beyond, "spec": {**beyond["spec"], "cancel": True}}, beyond, policies=most) == ""
    assert review(beyond, policies={"other": NamespacePolicy(budget_micros=0)}) == ""


def test_an_object_of_another_kind_is_nothing_to_judge() -> None:
    assert review({**a_run(CONDITION), "kind": "Other"}) == ""


def test_an_author_needs_every_secret_that_the_tool_names_and_pods() -> None:
    everything = Roles(frozenset({PODS, "get secrets/one", "get secrets/two"}))
    assert review(a_tool("one", "two", "one"), roles=everything) == ""
    assert everything.asked == [("bob", PODS), ("bob", "get secrets/one"), ("bob", "get secrets/two")]


def test_an_author_needs_the_secrets_that_the_worker_mounts_as_well() -> None:
    volumes = [
        {"name": "keys", "kind": "Secret", "source": "two", "mountPath": "/keys"},
        {"name": "texts", "kind": "ConfigMap", "source": "three", "mountPath": "/texts"},
    ]
    tool = a_tool("one", execution={"volumes": volumes, "secrets": ["one", "four"]})
    everything = Roles(frozenset({PODS, "get secrets/one", "get secrets/two", "get secrets/four"}))
    assert review(tool, roles=everything) == ""
    needs = [PODS, "get secrets/one", "get secrets/two", "get secrets/four"]
    assert everything.asked == [("bob", need) for need in needs]
    assert "spec.execution.volumes[0].source" in review(tool, roles=Roles(frozenset({PODS, "get secrets/one"})))


@pytest.mark.parametrize(
    "missing, wants",
    [
        pytest.param(
            "get secrets/two",
            [
                'spec.http.headersFrom[1].secretKeyRef.name: user "bob" may not get Secret two in namespace shop',
                'grant verb "get" on secrets with the name two',
            ],
            id="a Secret",
        ),
        pytest.param(
            PODS, ['spec: user "bob" may not create pods in namespace shop', 'grant verb "create" on pods'], id="pods"
        ),
    ],
)
def test_what_the_author_may_not_is_refused_with_field_name_and_remedy(missing: str, wants: list[str]) -> None:
    granted = {PODS, "get secrets/one", "get secrets/two"} - {missing}
    refusal = review(a_tool("one", "two"), roles=Roles(frozenset(granted)))
    for want in wants:
        assert want in refusal
    assert ("one" in refusal) is False


def test_the_author_of_a_change_is_asked_about_what_the_tool_says_now() -> None:
    nobody = Roles()
    assert review({**a_tool("one"), "metadata": {"name": "t", "labels": {"a": "b"}}}, a_tool("one"), nobody) == ""
    assert nobody.asked == []
    assert "Secret two" in review(a_tool("two"), a_tool("one"), Roles(frozenset({PODS, "get secrets/one"})))
    assert "create pods" in review(a_tool(timeout="5s"), a_tool(), Roles())


def test_the_author_of_a_run_needs_nothing_more() -> None:
    nobody = Roles()
    assert review(a_run(A), roles=nobody) == ""
    assert nobody.asked == []


def test_a_right_about_secrets_is_asked_as_the_api_server_knows_it() -> None:
    asked: Any = build_review(Requester("bob"), "shop", "one", Access("get", resource="secrets", group=""))
    want = {"group": "", "resource": "secrets", "namespace": "shop", "name": "one", "verb": "get"}
    assert asked["spec"]["resourceAttributes"] == want
    asked = build_review(Requester("bob"), "shop", "", Access("create", resource="pods", group=""))
    assert "name" not in asked["spec"]["resourceAttributes"]
