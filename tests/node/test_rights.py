"""What accounts may do, asked of the server that answers: with the roles that the chart wrote, and with no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.node_site import FULL, RELEASE, NodeRelease, NodeSite

Right = tuple[str, str, str, str]
"""(API group, resource, verb, name of the object or empty)."""
KINDS = ("agentruns", "agentnodes", "agentapprovals", "agenttools")
ASKED = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
         "approve", "release", "resolve", "redrive", "edit-params")  # fmt: skip
READ = {"get", "list", "watch"}
DECIDE = {"update", "patch", "approve", "release", "resolve", "redrive", "edit-params"}
WANT: dict[str, dict[str, set[str]]] = {
    "viewer": dict.fromkeys(KINDS, READ),
    "run-author": {**dict.fromkeys(KINDS, READ), "agentruns": READ | {"create", "update", "patch", "delete"}},
    "tool-author": {"agenttools": READ | {"create", "update", "patch", "delete"}},
    "approver": {"agentapprovals": READ | DECIDE, "agentruns": READ, "agentnodes": READ},
}


def expand(rules: list[dict[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule.get("apiGroups", []):
            for resource in rule.get("resources", []):
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield group, resource, verb, name


def may(site: NodeSite, who: str, verb: str, what: str) -> bool:
    kind, _, part = what.partition("/")
    of_part = [f"--subresource={part}"] if part else []
    return site.kubectl("auth", "can-i", verb, kind, *of_part, f"--as={who}", check=False).strip() == "yes"


def all_rights(site: NodeSite | NodeRelease, account: str) -> set[Right]:
    """Return everything that the server says a service account may do in a namespace."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": site.namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    said = site.kubectl("create", "--raw", path, "-f", "-", f"--as={account}", stdin=json.dumps(review), inside=False)
    status = json.loads(said)["status"]
    assert not status["incomplete"], status
    return set(expand(status["resourceRules"]))


@pytest.mark.parametrize("role", WANT)
def test_a_person_may_do_what_the_role_says_and_nothing_else(site: NodeSite, role: str) -> None:
    name = f"{site.release.namespace}.{FULL}-{role}"
    assert not may(site, role, "get", "agentruns.agentrun.dev")
    site.kubectl("create", "rolebinding", role, f"--clusterrole={name}", f"--user={role}")
    site.until(lambda: may(site, role, "get", f"{next(iter(WANT[role]))}.agentrun.dev"))
    for kind in KINDS:
        found = {verb for verb in ASKED if may(site, role, verb, f"{kind}.agentrun.dev")}
        assert found == WANT[role].get(kind, set()), kind
    for what in (
        "secrets",
        "pods",
        "pods/exec",
        "jobs.batch",
        "deployments.apps",
        "agentapprovals.agentrun.dev/status",
    ):
        assert not any(may(site, role, verb, what) for verb in ("get", "create", "update", "delete")), what
    elsewhere = site.release
    answer = elsewhere.kubectl("auth", "can-i", "get", "agentruns.agentrun.dev", f"--as={role}", check=False)
    assert answer.strip() == "no"


def test_the_operators_account_may_do_what_the_chart_lists_and_nothing_else(site: NodeSite) -> None:
    release = site.release
    account = f"system:serviceaccount:{release.namespace}:{FULL}"
    # Everybody has a few rights, such as to ask this question.
    site.kubectl("create", "serviceaccount", "nobody")
    of_everybody = all_rights(site, f"system:serviceaccount:{site.namespace}:nobody")
    manifests = [one for one in yaml.safe_load_all(release.helm("get", "manifest", RELEASE)) if one]
    bound: dict[str, set[str]] = {"Role": set(), "ClusterRole": set()}
    for one in manifests:
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            bound[one["roleRef"]["kind"]].add(one["roleRef"]["name"])

    def listed(kind: str) -> set[Right]:
        roles = [one for one in manifests if one["kind"] == kind and one["metadata"]["name"] in bound[kind]]
        assert {one["metadata"]["name"] for one in roles} == bound[kind]
        return {right for one in roles for right in expand(one["rules"])}

    everywhere = listed("ClusterRole")
    assert ("agentrun.dev", "agentruns", "watch", "") in everywhere
    assert all_rights(site, account) - of_everybody == everywhere - of_everybody
    assert all_rights(release, account) - of_everybody == (everywhere | listed("Role")) - of_everybody
    assert not may(site, account, "get", "secrets")
    assert not may(site, account, "create", "pods/exec")
    assert not may(site, account, "approve", "agentapprovals.agentrun.dev")
