"""The rights that the documentation lists for the operator are enough, and it has no others here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.cluster_site import ClusterSite
from support.control_plane import ControlPlane

OPERATOR_PAGE = Path(__file__).parents[2] / "docs" / "operator.md"


def documented_role(name: str) -> str:
    found = re.search(r"<!-- rights: operator -->\n```yaml\n(.*?)```", OPERATOR_PAGE.read_text(), re.DOTALL)
    assert found
    return found[1].replace("name: agentrun-operator", f"name: {name}")


def test_an_operator_with_the_documented_rights_alone_runs_a_run_to_its_end(
    site: ClusterSite, control_plane: ControlPlane | None, tmp_path: Path
) -> None:
    if control_plane is None:
        pytest.skip("needs a kubeconfig for a token of its own")
    name = site.namespace
    site.kubectl("create", "serviceaccount", "operator")
    site.kubectl("apply", "-f", "-", stdin=documented_role(name), inside=False)
    site.kubectl("create", "rolebinding", "operator", f"--clusterrole={name}", f"--serviceaccount={name}:operator")
    path = f"/api/v1/namespaces/{name}/serviceaccounts/operator/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = json.loads(site.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(asked), inside=False))
    kubeconfig = tmp_path / "operator.kubeconfig"
    kubeconfig.write_text(control_plane.kubeconfig_for(token["status"]["token"]))

    site.apply_tools('{"act": {"approval": {"required": "Always"}}}')
    site.start_operator(kubeconfig=kubeconfig)
    site.start_worker()
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}], session="s", ttlAfterFinished="1s")
    site.until(lambda: any(found.get("status", {}).get("state") == "Open" for found in site.find_all("agentapproval")))
    (question,) = site.find_all("agentapproval")
    decision = json.dumps({"spec": {"decision": {"verdict": "Approve", "decidedBy": "Ada"}}})
    site.kubectl("patch", "agentapproval", question["metadata"]["name"], "--type=merge", "-p", decision)
    site.until(lambda: site.effects_of("x") == 1)
    # Its time to live over, the operator deletes it; so the Events were posted as well.
    site.until(lambda: not site.get("agentrun", "asked"))
    assert site.kubectl("get", "events", "-o", "name").strip()
    assert "forbidden" not in site.log("operator").lower()
