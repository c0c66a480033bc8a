"""What keeps a call from being made on a real cluster, what is shown of it, and that it goes on when that has ended."""

from __future__ import annotations

import hashlib
from typing import Any

from support.node_site import PULLED_AND_STARTED, NodeRelease, NodeSite


def call(tool: str, **params: Any) -> dict[str, Any]:
    return {"name": "a", "tool": tool, "params": params}


def test_an_image_that_cannot_be_pulled_is_what_the_run_shows_and_nothing_was_called(site: NodeSite) -> None:
    site.apply_tool("act", execution={"image": "registry.invalid/nothing:1"})
    site.apply_run("r", [call("act", word="w")], session="s")
    site.until(lambda: "ErrImagePull" in site.wait_messages("r") or "ImagePullBackOff" in site.wait_messages("r"))
    assert "check execution.image" in site.wait_messages("r")
    assert site.nodes("r")["a"].get("attempt", 0) == 0
    site.kubectl("patch", "agentrun", "r", "--type=merge", "-p", '{"spec": {"cancel": true}}')
    assert site.wait_ended("r")["phase"] == "Cancelled"
    # The same call of the same session: were anything recorded of it, this one would not be made.
    site.apply_tool("act")
    site.apply_run("again", [call("act", word="w")], session="s")
    assert site.wait_ended("again", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert site.did("w") == 1


def test_a_secret_is_read_by_who_is_not_root_and_one_that_is_missing_fails_the_call_alone(site: NodeSite) -> None:
    site.apply_tool("act", execution={"scaling": {"min": 1}, "secrets": ["mail"]})
    site.apply_tool("tell", sideEffect="None", execution={"secrets": ["mail"]}, retry={"limit": 0})
    site.apply_run("without", [call("tell", name="mail", key="token")], onNodeFailure="Abort")
    assert site.wait_ended("without", within=PULLED_AND_STARTED)["phase"] == "Failed"
    failure = site.nodes("without")["a"]["failure"]
    assert failure["reason"] == "SecretMissing"
    assert "mail" in failure["message"]
    site.apply_run("beside", [call("act", word="w")])
    assert site.wait_ended("beside")["phase"] == "Succeeded"
    (pod,) = site.workers()
    site.kubectl("create", "secret", "generic", "mail", "--from-literal=token=of-this-namespace")
    # A kubelet brings a mounted Secret up to date within its own minute or two: a new call each time.
    tries = iter(range(100))

    def is_there() -> bool:
        run = f"with-{next(tries)}"
        site.apply_run(run, [call("tell", name="mail", key="token")], onNodeFailure="Abort")
        return bool(site.wait_ended(run)["phase"] == "Succeeded")

    site.until(is_there, within=180)
    found = site.nodes(f"with-{next(tries) - 1}")["a"]
    assert found["result"] == {"digest": digest("of-this-namespace"), "user": 65532, "root": "read-only"}
    assert found["worker"] == pod["metadata"]["name"], "no pod was replaced for it"


def test_two_namespaces_with_the_same_names_never_see_each_others_values(site: NodeSite, release: NodeRelease) -> None:
    other = NodeSite(site.kubeconfig, release)
    try:
        for one in (site, other):
            one.kubectl("create", "secret", "generic", "mail", f"--from-literal=token=of-{one.namespace}")
            one.apply_tool("tell", sideEffect="None", execution={"secrets": ["mail"]})
            one.apply_run("r", [call("tell", name="mail", key="token")], session="same")
        for one in (site, other):
            assert one.wait_ended("r", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
            found = one.nodes("r")["a"]
            assert found["result"]["digest"] == digest(f"of-{one.namespace}")
            assert found["worker"] in [pod["metadata"]["name"] for pod in one.workers()]
        ledgers = [
            one.get("secret", f"agentrun-{release.namespace}-worker-ledger")["data"]["url"] for one in (site, other)
        ]
        assert ledgers[0] != ledgers[1]
    finally:
        other.close()


def test_a_worker_that_ran_out_of_memory_is_replaced_and_its_call_is_asked_about(site: NodeSite) -> None:
    site.apply_tool(
        "swell",
        python={"entryPoint": "node_tools:swell", "isolation": "Thread"},
        execution={"resources": {"requests": {"memory": "96Mi"}, "limits": {"memory": "160Mi"}}},
    )
    site.apply_run("r", [call("swell", word="w", mebibytes=400)])
    # Nobody can tell whether it was done: a person is asked, and nothing is tried again.
    site.until(
        lambda: site.nodes("r").get("a", {}).get("phase") == "Quarantined",
        within=PULLED_AND_STARTED,
        say=lambda: str(site.nodes("r")),
    )
    assert site.did("w") == 1
    assert ended_by(site) & {"OOMKilled"}
    site.apply_tool("act", execution={"resources": {"limits": {"memory": "160Mi"}}})
    site.apply_run("next", [call("act", word="v")])
    assert site.wait_ended("next", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert site.did("w") == 1


def test_a_quota_is_waited_for_and_uses_no_attempt(site: NodeSite) -> None:
    site.kubectl("create", "quota", "narrow", "--hard=pods=1")
    site.until(lambda: site.get("resourcequota", "narrow").get("status", {}).get("used", {}).get("pods") == "1")
    site.apply_tool("act")
    site.apply_run("r", [call("act", word="w")])
    site.until(lambda: "exceeded quota: narrow" in site.wait_messages("r"))
    site.kubectl("delete", "quota", "narrow")
    assert site.wait_ended("r", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert (site.nodes("r")["a"]["attempt"], site.did("w")) == (1, 1)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def ended_by(site: NodeSite) -> set[str]:
    """How containers of workers ended the last time."""
    statuses = [status for pod in site.workers() for status in pod["status"].get("containerStatuses", [])]
    return {
        str(one.get(at, {}).get("terminated", {}).get("reason")) for one in statuses for at in ("lastState", "state")
    }
