"""Calls with a pod of their own: by a worker's function, and by a program in an image that nothing of ours need be in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.node_site import PULLED_AND_STARTED, NodeSite

JOB = {"mode": "Job"}
PROGRAM = """
import json, os, sys, urllib.request
params = json.load(open(os.environ["AGENTRUN_PARAMS"]))
ask = lambda path: urllib.request.urlopen(f"http://provider:8000/{path}", timeout=300).read()
how = params.get("how", "")
if how == "nothing":
    sys.exit(91)
ask(("hold/" if how == "hold" else "did/") + params["word"])
if how == "swell":
    block = b"x" * (400 << 20)
if how == "fall":
    sys.exit(5)
secret = "/run/agentrun/secrets/mail/token"
told = {
    "did": params["word"],
    "key": os.environ["AGENTRUN_IDEMPOTENCY_KEY"],
    "user": os.getuid(),
    "secret": os.path.exists(secret) and open(secret).read(),
    "ledger": [name for name in os.environ if "REDIS" in name] + os.listdir("/run/agentrun"),
}
json.dump(told, open(os.environ["AGENTRUN_OUTPUT"], "w"))
"""


def call(tool: str, **params: Any) -> dict[str, Any]:
    return {"name": "a", "tool": tool, "params": params}


def apply_program(site: NodeSite, name: str = "program", *, image: str = "greeting-worker:1", **spec: Any) -> None:
    """Apply a tool of type container; its image is one with Python in it, and otherwise as good as any."""
    command = spec.pop("command", ["/opt/agentrun/bin/python", "-c", PROGRAM])
    execution = {**JOB, **spec.pop("execution", {})}
    site.apply_tool(name, type="container", container={"image": image, "command": command}, execution=execution, **spec)


def job_pods(site: NodeSite) -> list[dict[str, Any]]:
    return site.find_all("pods", "-l", "agentrun.dev/job")


def wait_phase(site: NodeSite, phase: str) -> dict[str, Any]:
    """Wait for the phase of node a of run r, and return the node's status."""
    site.until(
        lambda: site.nodes("r").get("a", {}).get("phase") == phase,
        within=PULLED_AND_STARTED,
        say=lambda: f"{site.nodes('r')} {site.wait_messages('r')}",
    )
    found: dict[str, Any] = site.nodes("r")["a"]
    return found


def test_a_function_is_called_in_a_job_of_its_own(site: NodeSite) -> None:
    site.apply_tool("act", execution=JOB)
    site.apply_run("r", [call("act", word="w")])
    assert site.wait_ended("r", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    (pod,) = job_pods(site)
    assert site.nodes("r")["a"]["worker"] == pod["metadata"]["name"]
    site.until(lambda: job_pods(site)[0]["status"]["phase"] == "Succeeded")
    (job,) = site.find_all("jobs")
    assert job["metadata"]["ownerReferences"][0]["kind"] == "AgentNode"
    assert site.did("w") == 1
    site.kubectl("delete", "agentrun", "r")
    site.until(lambda: not job_pods(site) and not site.find_all("jobs"), within=120)


def test_a_program_of_any_image_is_run_once_with_what_its_author_names(site: NodeSite) -> None:
    site.kubectl("create", "secret", "generic", "mail", "--from-literal=token=abc")
    apply_program(site, execution={"secrets": ["mail"]})
    site.apply_run("r", [call("program", word="w")])
    assert site.wait_ended("r", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    node = site.nodes("r")["a"]
    result = node["result"]
    assert (result["did"], result["secret"]) == ("w", "abc")
    assert result["user"] == 65532
    assert result["key"]
    assert set(result["ledger"]) == {"answer", "call", "helper", "secrets"}, "nothing that leads to the ledger"
    assert site.did("w") == 1
    site.until(lambda: job_pods(site)[0]["status"]["phase"] == "Succeeded", say=lambda: json.dumps(job_pods(site)))


@pytest.mark.parametrize("kind", ["python", "container"])
def test_an_image_that_cannot_be_pulled_shows_before_anything_is_on_record(site: NodeSite, kind: str) -> None:
    image = "registry.invalid/nothing:1"
    if kind == "python":
        site.apply_tool("act", execution={**JOB, "image": image})
    else:
        apply_program(site, "act", image=image)
    site.apply_run("r", [call("act", word="w")], session="s")
    site.until(
        lambda: "ErrImagePull" in site.wait_messages("r") or "ImagePullBackOff" in site.wait_messages("r"),
        within=PULLED_AND_STARTED,
        say=lambda: f"{site.wait_messages('r')} {job_pods(site)}",
    )
    assert "Job(act)" in site.wait_messages("r")
    assert site.nodes("r")["a"].get("attempt", 0) == 0
    site.kubectl("patch", "agentrun", "r", "--type=merge", "-p", '{"spec": {"cancel": true}}')
    assert site.wait_ended("r")["phase"] == "Cancelled"
    # The same call of the same session: were anything recorded of it, this one would not be made.
    site.apply_tool("act", execution=JOB)
    site.apply_run("again", [call("act", word="w")], session="s")
    assert site.wait_ended("again", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert site.did("w") == 1


def test_a_program_that_is_not_in_its_image_shows_before_anything_is_on_record(site: NodeSite) -> None:
    apply_program(site, command=["/no/such/program"])
    site.apply_run("r", [call("program", word="w")])
    site.until(
        lambda: "/no/such/program: no such program" in site.wait_messages("r"),
        within=PULLED_AND_STARTED,
        say=lambda: f"{site.wait_messages('r')} {job_pods(site)}",
    )
    assert site.nodes("r")["a"].get("attempt", 0) == 0


def test_a_missing_secret_keeps_a_program_from_its_start_until_it_is_there(site: NodeSite) -> None:
    apply_program(site, execution={"secrets": ["mail"]})
    site.apply_run("r", [call("program", word="w")])
    site.until(lambda: "Volume" in site.wait_messages("r") or "volume" in site.wait_messages("r"), within=180)
    assert (site.nodes("r")["a"].get("attempt", 0), site.did("w")) == (0, 0)
    site.kubectl("create", "secret", "generic", "mail", "--from-literal=token=abc")
    assert site.wait_ended("r", within=180)["phase"] == "Succeeded"
    assert site.did("w") == 1


def test_a_function_whose_secret_is_missing_fails_alone_and_is_called_once_it_is_there(site: NodeSite) -> None:
    site.apply_tool("tell", sideEffect="None", execution={**JOB, "secrets": ["mail"]}, retry={"limit": 0})
    ask = {"name": "a", "tool": "tell", "params": {"name": "mail", "key": "token"}}
    site.apply_run("without", [ask], onNodeFailure="Abort")
    assert site.wait_ended("without", within=PULLED_AND_STARTED)["phase"] == "Failed"
    failure = site.nodes("without")["a"]["failure"]
    assert failure["reason"] == "SecretMissing"
    assert "mail" in failure["message"]
    site.kubectl("create", "secret", "generic", "mail", "--from-literal=token=abc")
    site.apply_run("with", [ask])
    assert site.wait_ended("with", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
    assert site.nodes("with")["a"]["result"]["user"] == 65532


def test_a_function_that_ran_out_of_memory_in_its_job_is_asked_about_and_not_called_again(site: NodeSite) -> None:
    site.apply_tool(
        "swell",
        python={"entryPoint": "node_tools:swell", "isolation": "Thread"},
        execution={**JOB, "resources": {"requests": {"memory": "96Mi"}, "limits": {"memory": "160Mi"}}},
    )
    site.apply_run("r", [{"name": "a", "tool": "swell", "params": {"word": "w", "mebibytes": 400}}])
    wait_phase(site, "Quarantined")
    assert site.did("w") == 1
    # A second pod finds the claim of the first, and that nobody can tell: it calls nothing.
    ended = [one for pod in job_pods(site) for one in pod["status"].get("containerStatuses", [])]
    assert "OOMKilled" in [one["state"].get("terminated", {}).get("reason") for one in ended]


@pytest.mark.parametrize("how", ["fall", "swell"])
def test_nobody_knows_what_a_program_did_that_fell_and_nothing_is_tried_again(site: NodeSite, how: str) -> None:
    limits = {"resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}}}
    apply_program(site, execution=limits)
    site.apply_run("r", [call("program", word="w", how=how)])
    node = wait_phase(site, "Quarantined")
    assert ("exit code 5" if how == "fall" else "memory") in node["failure"]["message"]
    assert site.did("w") == 1
    assert len(job_pods(site)) == 1


def test_a_program_that_says_it_did_nothing_is_believed(site: NodeSite) -> None:
    apply_program(site)
    site.apply_run("r", [call("program", word="w", how="nothing")], onNodeFailure="Abort")
    assert site.wait_ended("r", within=PULLED_AND_STARTED)["phase"] == "Failed"
    assert site.nodes("r")["a"]["failure"]["effect"] == "NotExecuted"
    assert site.did("w") == 0


def test_a_pod_that_is_deleted_lets_its_program_come_to_its_end(site: NodeSite) -> None:
    apply_program(site, timeout="2m")
    site.apply_run("r", [call("program", word="w", how="hold")])
    site.until(lambda: site.did("w") == 1, within=PULLED_AND_STARTED)
    (pod,) = [one["metadata"]["name"] for one in job_pods(site)]
    site.kubectl("delete", "pod", pod, "--wait=false")
    site.until(lambda: "deletionTimestamp" in site.get("pod", pod)["metadata"])
    site.ask("release/w")
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert (site.nodes("r")["a"]["worker"], site.did("w")) == (pod, 1)


def test_a_quota_is_waited_for_and_uses_no_attempt(site: NodeSite) -> None:
    site.kubectl("create", "quota", "narrow", "--hard=pods=1")
    site.until(lambda: site.get("resourcequota", "narrow").get("status", {}).get("used", {}).get("pods") == "1")
    site.apply_tool("act", execution=JOB)
    site.apply_run("r", [call("act", word="w")])
    site.until(lambda: "exceeded quota: narrow" in site.wait_messages("r"), within=120)
    site.kubectl("delete", "quota", "narrow")
    assert site.wait_ended("r", within=300)["phase"] == "Succeeded"
    assert (site.nodes("r")["a"]["attempt"], site.did("w")) == (1, 1)
