"""Events on a real API server: what matters to people, and nothing about single steps."""

from support.cluster_site import ClusterSite


def test_a_run_tells_of_its_phases_and_questions_and_of_nothing_else(site: ClusterSite) -> None:
    site.apply_tools('{"act": {"approval": {"required": "Always"}}, "fail": {"sideEffect": "None"}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("asks", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    site.apply_run("fails", [{"name": "a", "tool": "fail", "priority": "P3"}])
    assert site.wait_ended("fails")["phase"] == "Failed"

    def told(run: str) -> set[tuple[str, str]]:
        events = site.find_all("event")
        return {(event["type"], event["reason"]) for event in events if event["involvedObject"]["name"] == run}

    site.until(lambda: ("Warning", "NodeFailed") in told("fails"))
    site.until(lambda: ("Normal", "WaitingForHuman") in told("asks"))
    assert told("fails") <= {("Normal", "Admitted"), ("Warning", "NodeFailed"), ("Warning", "WaitingForHuman")}
    described = site.kubectl("describe", "agentrun", "asks")
    assert "waits for an answer in AgentApproval" in described
