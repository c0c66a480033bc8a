"""Deletion in every mode, with the operator up and down; and the same run again."""

import pytest
import redis

from support.cluster_site import ClusterSite

_COLLECTED_WITHIN = 120.0
"""The garbage collector looks for new kinds every half minute."""


def chain(seconds: float = 3) -> list[dict[str, object]]:
    return [
        {"name": "a", "tool": "act", "params": {"word": "x", "seconds": seconds}},
        {"name": "b", "tool": "act", "params": {"word": "y"}, "dependsOn": ["a"]},
    ]


def begin(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("gone", chain(), session="s")
    site.until(lambda: site.effects_of("x") == 1)


def nothing_left(site: ClusterSite) -> bool:
    leases = [lease for lease in site.find_all("lease") if "session" in lease["metadata"]["name"]]
    return not (site.find_all("agentnode") or site.find_all("agentapproval") or leases)


def ends_after_its_session_is_free(site: ClusterSite) -> None:
    """Submit the run until what was deleted no longer holds its session."""
    manifest = site.manifest("gone", chain(), session="s")

    def ends() -> bool:
        status = site.wait_ended("gone")
        if status["reason"] == "SessionBusy":
            site.kubectl("replace", "--force", "-f", "-", stdin=manifest)
            return False
        assert status["phase"] == "Succeeded"
        return True

    site.until(ends, 120)
    assert (site.effects_of("x"), site.effects_of("y")) == (1, 1)


@pytest.mark.parametrize("mode", ["background", "foreground", "orphan"])
@pytest.mark.parametrize("operator", ["up", "down"])
def test_a_deleted_run_leaves_nothing_behind_and_nothing_goes_on(site: ClusterSite, mode: str, operator: str) -> None:
    begin(site)
    if operator == "down":
        for process in site.running("operator"):
            site.kill(process)
    site.kubectl("delete", "agentrun", "gone", f"--cascade={mode}", "--wait=false")
    if operator == "down":
        site.start_operator()
    site.until(lambda: site.find_all("agentrun") == [], _COLLECTED_WITHIN)
    site.until(lambda: nothing_left(site), _COLLECTED_WITHIN)
    # The same content again goes on with what was executed.
    site.apply_run("gone", chain(), session="s")
    ends_after_its_session_is_free(site)


@pytest.mark.parametrize("operator", ["up", "down"])
def test_a_deleted_namespace_leaves_nothing_behind(site: ClusterSite, operator: str) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator(lease_namespace="default")
    site.start_worker()
    site.apply_run("gone", chain(), session="s")
    site.until(lambda: site.effects_of("x") == 1)
    if operator == "down":
        for process in site.running("operator"):
            site.kill(process)
    site.kubectl("delete", "namespace", site.namespace, "--wait=false", inside=False)
    spaces = ("get", "namespace", site.namespace, "--ignore-not-found", "-o", "name")
    site.until(lambda: site.kubectl(*spaces, inside=False) == "", _COLLECTED_WITHIN)
    if operator == "down":
        site.start_operator(lease_namespace="default")
    with redis.Redis.from_url(site.ledger.url, decode_responses=True) as ledger:
        key = f"{site.namespace}:{site.namespace}:runs"
        site.until(lambda: ledger.scard(key) == 0, 90)
    # The run goes on until the namespace's own deletion has come to it.
    assert site.effects_of("x") == 1
    assert site.effects_of("y") <= 1


def test_a_finished_run_that_is_deleted_and_applied_again_executes_nothing(site: ClusterSite) -> None:
    begin(site)
    assert site.wait_ended("gone")["phase"] == "Succeeded"
    site.kubectl("delete", "agentrun", "gone")
    site.apply_run("gone", chain(), session="s")
    status = site.wait_ended("gone")
    assert (status["phase"], status["reason"]) == ("Succeeded", "AlreadyFinished")
    assert (site.effects_of("x"), site.effects_of("y")) == (1, 1)


def test_a_run_that_is_replaced_by_force_in_mid_run_has_each_effect_once(site: ClusterSite) -> None:
    begin(site)
    manifest = site.manifest("gone", chain(), session="s")
    for _ in range(50):
        site.kubectl("replace", "--force", "-f", "-", stdin=manifest)

    ends_after_its_session_is_free(site)


def test_an_ended_run_goes_with_its_ttl(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("short", chain(0), ttlAfterFinished="1s")
    site.until(lambda: site.effects_of("y") == 1)
    site.until(lambda: site.find_all("agentrun") == [])
