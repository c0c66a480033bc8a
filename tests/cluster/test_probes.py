"""What operators and workers tell probes and scrapes: while they lead, stand by, and while the ledger is away."""

import re
from functools import partial

import httpx

from support.cluster_site import ClusterSite

LISTEN = ("--listen", "127.0.0.1:0")


def ask(site: ClusterSite, name: str, path: str) -> tuple[int, str]:
    """Ask a process that listens; its log says where."""
    found = re.search(r"event='listening' address='([^']+)'", site.log(name))
    if found is None:
        return 0, ""
    with httpx.Client(trust_env=False) as client:
        answer = client.get(f"http://{found[1]}{path}")
    return answer.status_code, answer.text.strip()


def value(site: ClusterSite, name: str, metric: str) -> float:
    """Return the sum of a metric's samples."""
    lines = ask(site, name, "/metrics")[1].splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{metric}(\{{| )", line))


def is_counted(site: ClusterSite, name: str, metric: str) -> bool:
    return value(site, name, metric) > 0


def test_leader_and_standby_are_ready_and_an_outage_of_the_ledger_ends_no_life(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator(*LISTEN, name="first")
    site.until(lambda: ask(site, "first", "/readyz") == (200, "leader"))
    site.start_operator(*LISTEN, name="second")
    site.until(lambda: ask(site, "second", "/readyz") == (200, "standby"))
    site.start_worker(*LISTEN)
    site.until(lambda: ask(site, "worker", "/readyz") == (200, "working"))
    site.apply_run("one", [{"name": "a", "tool": "act", "params": {"word": "x"}}])
    assert site.wait_ended("one", within=60)["phase"] == "Succeeded"
    assert value(site, "first", "agentrun_runs_ended_total") == 1
    assert value(site, "first", "agentrun_attempts_ended_total") == 1
    assert value(site, "first", "agentrun_api_requests_total") > 5
    assert value(site, "first", "agentrun_leader") == 1
    assert value(site, "second", "agentrun_leader") == 0
    assert value(site, "worker", "agentrun_worker_call_seconds_count") == 1
    site.ledger.crash()
    try:
        for name, of in (("first", ""), ("second", ""), ("worker", "worker_")):
            site.until(partial(is_counted, site, name, f"agentrun_{of}ledger_unavailable_total"))
            assert ask(site, name, "/healthz") == (200, "ok")
        assert ask(site, "first", "/readyz") == (200, "leader")
        assert ask(site, "second", "/readyz") == (200, "standby")
    finally:
        site.ledger.start()
