"""What GitOps tools compare: applied examples show no difference, before and after their runs have ended."""

import re
from pathlib import Path

import pytest

from support.cluster_site import ClusterSite

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFESTS = sorted(path for path in EXAMPLES.glob("*/*.yaml") if path.name != "script.yaml")


@pytest.mark.parametrize("manifest", MANIFESTS, ids=[f"{path.parent.name}/{path.name}" for path in MANIFESTS])
def test_an_applied_example_shows_no_difference(site: ClusterSite, manifest: Path) -> None:
    text = re.sub(r"(?m)^  namespace: .*\n", "", manifest.read_text())
    site.kubectl("apply", "-f", "-", stdin=text)
    assert site.kubectl("diff", "-f", "-", stdin=text) == ""
    again = site.kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-", stdin=text)
    assert again.count("serverside-applied (server dry run)") == text.count("apiVersion: agentrun.dev")
    repeated = site.kubectl("apply", "-f", "-", stdin=text)
    assert repeated.count("unchanged") == text.count("apiVersion: agentrun.dev")


def test_the_operator_leaves_what_was_applied_as_it_is(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    manifest = site.manifest("plain", [{"name": "a", "tool": "act", "params": {"word": "x"}}], session="s")
    site.apply(manifest)
    assert site.wait_ended("plain")["phase"] == "Succeeded"
    assert site.kubectl("diff", "-f", "-", stdin=manifest) == ""
    meta = site.get("agentrun", "plain")["metadata"]
    assert "finalizers" not in meta
    assert set(meta["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
    (node,) = site.find_all("agentnode")
    assert set(node["metadata"].get("labels", {})) == {"agentrun.dev/run-uid"}


def test_what_a_person_reads_first(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("plain", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    site.wait_ended("plain")
    lines = site.kubectl("get", "ar,an,at").splitlines()
    assert any(re.match(r"agentrun\S*/plain\s+Succeeded", line) for line in lines)
    assert any(re.match(r"agentnode\S*/plain-a-\S+\s", line) and "Succeeded" in line for line in lines)
    explained = site.kubectl("explain", "agentrun.spec.nodes", inside=False)
    assert "dependsOn" in explained
    site.kubectl("wait", "--for=condition=Complete", "ar/plain", "--timeout=5s")
    assert "deleted" in site.kubectl("delete", "ar", "plain")
