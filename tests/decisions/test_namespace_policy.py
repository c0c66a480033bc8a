"""What a namespace may ask for: the bounds themselves, and what is found in a run that asks for more."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.contract.failures import Reason
from agentrun.contract.run import AgentRunSpec, Budget, Priority
from agentrun.decisions.admission import find_violations
from agentrun.decisions.namespace_policy import EVERYWHERE, UNBOUNDED, NamespacePolicies, NamespacePolicy

P1_AND_FIFTY = NamespacePolicy(Priority.P1, 50_000_000)


@pytest.mark.parametrize(
    "highest, priority, want",
    [
        pytest.param(None, Priority.P0, True, id="no bound"),
        pytest.param(Priority.P1, Priority.P0, False, id="more urgent"),
        pytest.param(Priority.P1, Priority.P1, True, id="as urgent"),
        pytest.param(Priority.P1, Priority.P3, True, id="less urgent"),
        pytest.param(Priority.P2, None, True, id="the default is P2"),
        pytest.param(Priority.P3, None, False, id="the default is above P3"),
    ],
)
def test_a_priority_is_allowed_up_to_the_highest(
    highest: Priority | None, priority: Priority | None, want: bool
) -> None:
    assert NamespacePolicy(highest).allows_priority(priority) is want


@pytest.mark.parametrize(
    "most, budget, want",
    [
        pytest.param(None, None, True, id="no bound"),
        pytest.param(50, None, False, id="no budget is unlimited"),
        pytest.param(50, Budget(tokens=5), False, id="no money's limit is unlimited"),
        pytest.param(50, Budget(limit="0.000050"), True, id="as much"),
        pytest.param(50, Budget(limit="0.000051"), False, id="a little more"),
        pytest.param(0, Budget(limit="0"), True, id="nothing may be spent"),
    ],
)
def test_a_budget_is_allowed_up_to_the_bound(most: int | None, budget: Budget | None, want: bool) -> None:
    assert NamespacePolicy(budget_micros=most).allows_budget(budget) is want


def test_a_namespace_has_its_own_policy_or_everybodys_or_none() -> None:
    own, every = NamespacePolicy(share=3), NamespacePolicy(Priority.P2)
    policies = NamespacePolicies({"shop": own, EVERYWHERE: every})
    assert (policies.find("shop"), policies.find("other")) == (own, every)
    assert NamespacePolicies({"shop": own}).find("other") is UNBOUNDED


def read(spec: dict[str, Any]) -> AgentRunSpec:
    """Return the spec, with an intent."""
    return AgentRunSpec.from_wire({"intent": "Try", **spec})


NODE: dict[str, Any] = {"name": "a", "tool": "t"}
RATED: dict[str, Any] = {"path": "inputs.u", "map": {"high": "P0", "low": "P2"}, "default": "P3"}


@pytest.mark.parametrize(
    "spec, want",
    [
        pytest.param({"nodes": [NODE], "budget": {"limit": "50.00"}}, [], id="within"),
        pytest.param({"nodes": [NODE]}, ["spec.budget.limit"], id="no budget"),
        pytest.param({"nodes": [NODE], "budget": {"limit": "50.01"}}, ["spec.budget.limit"], id="a larger budget"),
        pytest.param(
            {"nodes": [NODE], "budget": {"limit": "1"}, "priority": "P0"}, ["spec.priority"], id="the run's priority"
        ),
        pytest.param(
            {"nodes": [{**NODE, "priority": "P0"}], "budget": {"limit": "1"}},
            ["spec.nodes[0].priority"],
            id="a node's priority",
        ),
        pytest.param(
            {"nodes": [{**NODE, "priorityFrom": RATED}], "budget": {"limit": "1"}, "inputs": {"u": "high"}},
            ["spec.nodes[0].priorityFrom.map[high]"],
            id="a priority that a value may choose",
        ),
        pytest.param(
            {
                "nodes": [
                    {
                        "name": "a",
                        "type": "FanOut",
                        "fanOut": {"items": [1], "node": {"tool": "t", "priority": "P0"}},
                    }
                ],
                "budget": {"limit": "1"},
            },
            ["spec.nodes[0].fanOut.node.priority"],
            id="an instance's priority",
        ),
    ],
)
def test_what_a_run_asks_for_beyond_its_namespace_is_found(spec: dict[str, Any], want: list[str]) -> None:
    found = find_violations(read(spec), {}, policy=P1_AND_FIFTY)
    beyond = [violation for violation in found if violation.reason == Reason.BEYOND_POLICY]
    assert [violation.field for violation in beyond] == want
    assert not [v for v in find_violations(read(spec), {}) if v.reason == Reason.BEYOND_POLICY]


def test_what_is_beyond_the_bounds_is_lowered_to_them_where_it_cannot_be_refused_any_more() -> None:
    bounded = P1_AND_FIFTY.bound(read({"nodes": [NODE], "budget": {"limit": "80", "tokens": 7}, "priority": "P0"}))
    assert (bounded.priority, bounded.budget) == (Priority.P1, Budget(limit="50.00", tokens=7))
    assert P1_AND_FIFTY.bound(read({"nodes": [NODE]})).budget == Budget(limit="50.00")
    within = read({"nodes": [NODE], "budget": {"limit": "5"}, "priority": "P3"})
    assert P1_AND_FIFTY.bound(within) is within


def test_the_message_names_field_value_bound_and_remedy() -> None:
    spec = read({"nodes": [NODE], "budget": {"limit": "80"}, "priority": "P0"})
    said = [str(violation) for violation in find_violations(spec, {}, policy=P1_AND_FIFTY)][:2]
    assert said == [
        "spec.priority: is P0, above P1, the highest that this namespace may ask for; write P1 or less urgent",
        'spec.budget.limit: is 80.00; a run of this namespace may spend 50.00 at most; write "50.00" or less',
    ]
