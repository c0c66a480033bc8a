"""The ValidatingAdmissionPolicy says of an approval what the webhook says; each expression is evaluated.

A CEL library stands in for the API server. Its ``authorizer`` is made of functions here; what the API server's does is
told in https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.approval import Verdict
from agentrun.contract.exact_json import JsonObject
from agentrun.controller.webhook.approval_admission import ApprovalAdmission, Stage
from agentrun.engine.clock import SystemClock
from support.approval_reviews import FixedKey, Roles, a_review, an_approval, patched
from support.helm import Helm, Manifest, find_object

VERBS = ("approve", "release", "resolve", "redrive", "edit-params", "status:update")
APPROVE = {"verdict": "Approve"}


@dataclass
class Policy:
    """A policy as it was rendered."""

    spec: Manifest

    def find_refusals(self, before: JsonObject, after: JsonObject, user: str, granted: frozenset[str]) -> list[str]:
        """Return the messages of the validations that fail."""
        context = cel.Context()
        context.add_variable("object", after)
        context.add_variable("oldObject", before)
        context.add_variable("request", {"namespace": "shop", "name": "a-1", "userInfo": {"username": user}})
        context.add_variable("authorizer", {})
        for part in ("group", "resource", "subresource", "namespace", "name", "check"):
            context.add_function(part, lambda asked, value, part=part: {**asked, part: value})
        context.add_function("allowed", lambda asked: _is_granted(asked, granted))
        variables: dict[str, Any] = {}
        for variable in self.spec["variables"]:
            context.add_variable("variables", variables)
            variables[variable["name"]] = cel.evaluate(variable["expression"], context)
        # What the library makes of an object of functions is a plain map: the chain goes on with it.
        context.add_variable("variables", variables)
        return [
            rule["message"]
            for rule in self.spec["validations"]
            if cel.evaluate(rule["expression"], context) is not True
        ]


def _is_granted(asked: Mapping[str, Any], granted: frozenset[str]) -> bool:
    assert (asked["group"], asked["resource"], asked["namespace"]) == ("agentrun.dev", "agentapprovals", "shop")
    verb = f"{asked['subresource']}:{asked['check']}" if "subresource" in asked else asked["check"]
    return verb in granted


@pytest.fixture(scope="module")
def policy(helm: Helm) -> Policy:
    return Policy(find_object(helm.render(), "ValidatingAdmissionPolicy")["spec"])


async def ask_webhook(before: JsonObject, after: JsonObject, granted: frozenset[str]) -> tuple[bool, JsonObject]:
    """What both stages of the webhook say, and the object as the first one leaves it."""
    admission = ApprovalAdmission(Roles(granted), FixedKey(), SystemClock())
    first = await admission.review(Stage.MUTATE, a_review(before, after))
    if not first["response"]["allowed"]:  # type: ignore[index, call-overload]
        return False, after
    stamped = deepcopy(after)
    if "patch" in first["response"]:  # type: ignore[operator]
        stamped["spec"] = {"decision": patched(after, first)}
    second = await admission.review(Stage.VALIDATE, a_review(before, stamped))
    return bool(second["response"]["allowed"]), stamped  # type: ignore[index, call-overload]


DECISIONS = st.one_of(
    st.none(),
    st.sampled_from(list(Verdict)).map(lambda verdict: {"verdict": verdict.value}),
    st.sampled_from(["Approve", "Release", "Redrive"]).map(lambda verdict: {"verdict": verdict, "params": {"x": 1}}),
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.sampled_from([{}, {"team": "a"}, {"agentrun.dev/run-uid": "u"}, {"agentrun.dev/run-uid": "v"}]),
        "annotations": st.sampled_from([{}, {"agentrun.dev/x": "y"}, {"note": "z"}]),
        "ownerReferences": st.sampled_from([[], [{"uid": "u"}], [{"uid": "v"}]]),
        "finalizers": st.sampled_from([[], ["a/b"]]),
    },
)


@dataclass
class Case:
    """One update."""

    before: JsonObject
    after: JsonObject
    granted: frozenset[str] = field(default_factory=frozenset)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    state = draw(st.sampled_from(["Open", "Applied", "Refused", "Expired", "Withdrawn"]))
    asked = draw(st.booleans())
    given_before = draw(st.one_of(st.none(), DECISIONS))
    wanted = given_before if draw(st.booleans()) else draw(DECISIONS)
    before = an_approval(given_before, state=state, asked=asked, **draw(METADATA))
    after = an_approval(wanted, state=state, asked=asked, **draw(METADATA))
    return Case(before, after, draw(st.frozensets(st.sampled_from(VERBS))))


@given(case=cases())
async def test_policy_and_webhook_say_the_same(policy: Policy, case: Case) -> None:
    admitted, stored = await ask_webhook(case.before, case.after, case.granted)
    assert (policy.find_refusals(case.before, stored, "bob", case.granted) == []) == admitted


@pytest.mark.parametrize(
    "before, after, granted, want",
    [
        pytest.param(an_approval(), an_approval(APPROVE), "approve", "", id="approved"),
        pytest.param(an_approval(), an_approval(APPROVE), "", "the right to decide", id="no right"),
        pytest.param(an_approval(), an_approval({"verdict": "Release"}), "approve", "the right", id="another right"),
        pytest.param(
            an_approval(), an_approval({**APPROVE, "params": {"x": 1}}), "approve", "edit-params", id="params edited"
        ),
        pytest.param(an_approval(APPROVE), an_approval(), "approve", "given once", id="taken back"),
        pytest.param(
            an_approval(APPROVE), an_approval({"verdict": "Reject"}), "approve", "given once", id="decided anew"
        ),
        pytest.param(an_approval(asked=False), an_approval(APPROVE), "approve", "not stand yet", id="no question"),
        pytest.param(an_approval(state="Expired"), an_approval(APPROVE), "approve", "not open", id="over"),
        pytest.param(an_approval(), an_approval(ownerReferences=[{"uid": "z"}]), "approve", "operator's", id="owner"),
        pytest.param(
            an_approval(labels={"agentrun.dev/a": "b"}), an_approval(labels={}), "approve", "operator's", id="label off"
        ),
        pytest.param(an_approval(), an_approval(labels={"team": "a"}), "", "", id="a label of theirs"),
        pytest.param(
            an_approval(), an_approval({**APPROVE, "decidedBy": "eve"}), "approve", "decidedBy", id="another's name"
        ),
        pytest.param(an_approval(), an_approval({**APPROVE, "decidedBy": "bob"}), "approve", "", id="their own name"),
    ],
)
def test_each_rule_speaks(policy: Policy, before: JsonObject, after: JsonObject, granted: str, want: str) -> None:
    refusals = policy.find_refusals(before, after, "bob", frozenset(granted.split()))
    assert len(refusals) == bool(want)
    assert want in "".join(refusals)


def test_an_unknown_verdict_takes_a_right_that_nobody_has(policy: Policy) -> None:
    after = an_approval({"verdict": "Agree"})
    assert policy.find_refusals(an_approval(), after, "bob", frozenset(VERBS)) == [
        "the right to decide this is missing"
    ]


def test_the_policy_is_asked_about_what_the_webhook_is_asked_about(helm: Helm) -> None:
    for values in ({}, {"scope": {"mode": "Cluster"}}):
        manifests = helm.render(values)
        asked = find_object(manifests, "ValidatingAdmissionPolicy")
        (hook,) = find_object(manifests, "MutatingWebhookConfiguration")["webhooks"]
        matched = asked["spec"]["matchConstraints"]
        assert matched["resourceRules"] == hook["rules"]
        assert matched.get("namespaceSelector") == hook.get("namespaceSelector")
        assert asked["spec"]["failurePolicy"] == hook["failurePolicy"] == "Fail"
        binding = find_object(manifests, "ValidatingAdmissionPolicyBinding")["spec"]
        assert binding == {"policyName": asked["metadata"]["name"], "validationActions": ["Deny"]}
