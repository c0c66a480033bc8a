"""A real server that dies, or loses everything, in mid-run: nothing twice, nothing lost, nobody restarts."""

import json
import shutil

import pytest
import redis

from support.cluster_site import ClusterSite


def begin(site: ClusterSite, seconds: float) -> None:
    site.apply_tools(
        '{"act": {"timeout": "20s"}, "again": {"sideEffect": "Idempotent", "python": {"entryPoint": "cluster_tools:act"}}}'
    )
    site.start_operator()
    site.start_worker()
    for number in range(4):
        nodes = [
            {"name": "a", "tool": "act", "params": {"word": f"once{number}", "seconds": seconds}},
            {"name": "b", "tool": "again", "params": {"word": f"more{number}"}, "dependsOn": ["a"]},
        ]
        site.apply_run(f"r{number}", nodes, session=f"s{number}")


def effects(site: ClusterSite) -> list[int]:
    return [site.effects_of(f"once{number}") for number in range(4)]


def all_ended(site: ClusterSite) -> bool:
    answer_questions(site)
    return all(site.phase(f"r{number}") == "Succeeded" for number in range(4))


def answer_questions(site: ClusterSite) -> None:
    """A person looks, and says of each call what the effects file says."""
    for question in site.find_all("agentapproval"):
        status = question.get("status", {})
        if status.get("state") != "Open" or question["spec"].get("decision"):
            continue
        word = json.loads(status["request"]["paramsPreview"])["word"]
        said: dict[str, object] = {"verdict": "Release", "effect": "NotExecuted"}
        if site.effects_of(word):
            said = {"verdict": "Resolve", "effect": "Executed", "result": {"did": word}}
        decision = {**said, "decidedBy": "Ada"}
        patch = json.dumps({"spec": {"decision": decision}})
        site.kubectl("patch", "agentapproval", question["metadata"]["name"], "--type=merge", "-p", patch)


@pytest.fixture(autouse=True)
def people_may_say_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no webhook here, and the person is known."""
    monkeypatch.setenv("AGENTRUN_OPERATOR_APPROVALS_UNVERIFIED", "All")


def test_a_ledger_that_is_killed_and_comes_back_interrupts_nothing(site: ClusterSite) -> None:
    begin(site, 4)
    site.until(lambda: effects(site) == [1, 1, 1, 1])
    site.ledger.crash()
    site.ledger.start()
    site.until(lambda: all_ended(site), 90)
    assert effects(site) == [1, 1, 1, 1]
    assert len(site.running("operator")) == len(site.running("worker")) == 1


def test_a_ledger_that_comes_back_empty_is_rebuilt_and_nothing_happens_twice(site: ClusterSite) -> None:
    begin(site, 4)
    site.until(lambda: effects(site) == [1, 1, 1, 1])
    site.ledger.crash()
    for found in site.ledger.directory.iterdir():
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink()
    site.ledger.start()
    site.until(lambda: all_ended(site), 90)
    assert effects(site) == [1, 1, 1, 1]
    assert "ledger_rebuilt" in site.log("operator")
    assert len(site.running("operator")) == len(site.running("worker")) == 1
    # What was there before the loss is there again: the same run is not executed.
    site.kubectl("delete", "agentrun", "r0")
    nodes = [
        {"name": "a", "tool": "act", "params": {"word": "once0", "seconds": 4}},
        {"name": "b", "tool": "again", "params": {"word": "more0"}, "dependsOn": ["a"]},
    ]
    site.apply_run("r0", nodes, session="s0")
    assert site.wait_ended("r0")["reason"] == "AlreadyFinished"
    assert effects(site) == [1, 1, 1, 1]


def test_a_ledger_that_is_emptied_while_the_operator_is_down_is_rebuilt_at_its_start(site: ClusterSite) -> None:
    begin(site, 4)
    site.until(lambda: effects(site) == [1, 1, 1, 1])
    for process in (*site.running("operator"), *site.running("worker")):
        site.kill(process)
    with redis.Redis.from_url(site.ledger.url) as client:
        client.flushall()
    site.start_operator()
    site.start_worker()
    site.until(lambda: all_ended(site), 90)
    assert effects(site) == [1, 1, 1, 1]
