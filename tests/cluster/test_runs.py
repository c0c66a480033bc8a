"""Runs from kubectl apply to their end on a real API server, with real operators, workers and ledgers."""

import json

from support.cluster_site import ClusterSite


def test_a_tree_runs_from_apply_to_its_end(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}, "read": {"sideEffect": "None"}}')
    site.start_operator()
    site.start_worker()
    site.apply_run(
        "tree",
        [
            {"name": "a", "tool": "read", "params": {"word": "x"}},
            {"name": "b", "tool": "act", "params": {"word": "${nodes.a.result.text}"}, "dependsOn": ["a"]},
            {
                "name": "fan",
                "type": "FanOut",
                "dependsOn": ["a"],
                "fanOut": {"items": ["p", "q", "r"], "node": {"tool": "act", "params": {"word": "${item}"}}},
            },
            {
                "name": "route",
                "type": "Condition",
                "dependsOn": ["b"],
                "condition": {
                    "cases": [{"when": {"path": "nodes.b.result.did", "op": "eq", "value": "x"}, "goto": "yes"}],
                    "default": "no",
                },
            },
            {"name": "yes", "tool": "act", "params": {"word": "yes"}},
            {"name": "no", "tool": "act", "params": {"word": "no"}},
            {"name": "all", "type": "Join", "dependsOn": ["fan", "yes"]},
        ],
    )
    site.kubectl("wait", "--for=condition=Complete", "agentrun/tree", "--timeout=60s")
    status = site.get("agentrun", "tree")["status"]
    assert (status["phase"], status["reason"]) == ("Succeeded", "AllNodesEnded")
    assert status["observedGeneration"] == 1
    phases = {path: node["phase"] for path, node in site.nodes("tree").items()}
    assert phases == {
        **dict.fromkeys(("a", "b", "fan", "fan.0", "fan.1", "fan.2", "route", "yes", "all"), "Succeeded"),
        "no": "Skipped",
    }
    assert sorted(site.effects.read_text().split()) == ["p", "q", "r", "x", "yes"]


def test_an_approval_is_decided_with_one_patch(site: ClusterSite) -> None:
    site.apply_tools('{"act": {"approval": {"required": "Always"}}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("asked", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    site.until(lambda: any(found.get("status", {}).get("state") == "Open" for found in site.find_all("agentapproval")))
    (question,) = site.find_all("agentapproval")
    assert question["status"]["request"]["paramsPreview"] == '{"word":"x"}'
    assert site.get("agentrun", "asked")["status"]["inbox"] == ["a"]
    assert site.effects_of("x") == 0
    decision = json.dumps({"spec": {"decision": {"verdict": "Approve", "decidedBy": "Ada"}}})
    site.kubectl("patch", "agentapproval", question["metadata"]["name"], "--type=merge", "-p", decision)
    assert site.wait_ended("asked")["phase"] == "Succeeded"
    assert site.effects_of("x") == 1
    (question,) = site.find_all("agentapproval")
    assert question["status"]["state"] == "Applied"
    # An API server that knows no CEL rules takes a second verdict; it is shown nowhere.
    other = json.dumps({"spec": {"decision": {"verdict": "Reject", "decidedBy": "Eve"}}})
    site.kubectl("patch", "agentapproval", question["metadata"]["name"], "--type=merge", "-p", other, check=False)
    shown = site.kubectl("get", "agentapproval", question["metadata"]["name"])
    assert "Approve" in shown
    assert "Reject" not in shown


def test_a_run_that_the_models_refuse_is_rejected_with_the_fault(site: ClusterSite) -> None:
    site.start_operator()
    site.apply_run("wrong", [{"name": "a", "type": "Condition"}])
    status = site.wait_ended("wrong")
    assert (status["phase"], status["reason"]) == ("Rejected", "InvalidSpec")
    assert "condition" in status["message"]


def test_a_run_waits_for_its_tool_and_for_the_operator(site: ClusterSite) -> None:
    site.apply_run("early", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    site.start_operator()
    site.start_worker()
    site.until(lambda: site.get("agentrun", "early").get("status", {}).get("reason") == "ToolNotFound")
    site.apply_tools('{"act": {}}')
    assert site.wait_ended("early")["phase"] == "Succeeded"


def test_a_deleted_run_takes_everything_with_it(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    nodes = [{"name": "a", "tool": "act", "params": {"word": "x", "seconds": 2}}]
    site.apply_run("gone", [*nodes, {"name": "b", "tool": "act", "params": {"word": "y"}, "dependsOn": ["a"]}])
    site.until(lambda: site.effects_of("x") == 1)
    site.kubectl("delete", "agentrun", "gone")
    # The garbage collector looks for new kinds every half minute.
    site.until(lambda: site.find_all("agentnode") == [], within=120)
    assert site.effects_of("y") == 0


def test_an_operator_that_is_killed_in_mid_run_goes_on_where_it_was(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    first = site.start_operator()
    site.start_worker()
    chain = [
        {"name": f"n{at}", "tool": "act", "params": {"word": f"w{at}"}, **({"dependsOn": [f"n{at - 1}"]} if at else {})}
        for at in range(8)
    ]
    site.apply_run("chain", chain)
    for at in (1, 3, 5):
        site.until(lambda: site.effects_of(f"w{at}") == 1)  # noqa: B023
        site.kill(first)
        first = site.start_operator()
    assert site.wait_ended("chain")["phase"] == "Succeeded"
    assert [site.effects_of(f"w{at}") for at in range(8)] == [1] * 8


def test_a_worker_that_is_killed_in_mid_call_leaves_a_question_and_no_second_effect(site: ClusterSite) -> None:
    site.apply_tools('{"act": {"timeout": "5s"}}')
    site.start_operator()
    worker = site.start_worker()
    site.apply_run("cut", [{"name": "a", "tool": "act", "params": {"word": "x", "seconds": 30}}])
    site.until(lambda: site.effects_of("x") == 1)
    site.kill(worker)
    site.start_worker(name="second")
    site.until(lambda: site.nodes("cut")["a"].get("phase") == "Quarantined", within=90)
    assert site.effects_of("x") == 1
