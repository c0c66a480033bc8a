"""Sessions on a real API server: one run at a time, whatever is deleted in mid-call."""

from datetime import datetime

import pytest

from support.cluster_site import ClusterSite


def act(word: str, seconds: float = 0) -> list[dict[str, object]]:
    return [{"name": "a", "tool": "act", "params": {"word": word, "seconds": seconds}}]


@pytest.fixture
def busy(site: ClusterSite) -> ClusterSite:
    """A site where run ``first`` is in mid-call in session ``s``."""
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    site.apply_run("first", act("x", 6), session="s")
    site.until(lambda: site.effects_of("x") == 1)
    return site


def leases(site: ClusterSite) -> list[dict[str, dict[str, object]]]:
    return [lease for lease in site.find_all("lease") if lease["metadata"]["name"].startswith("agentrun-session-")]


def test_a_second_run_of_a_busy_session_is_rejected_and_the_session_freed_at_the_end(busy: ClusterSite) -> None:
    (lease,) = leases(busy)
    uid = busy.get("agentrun", "first")["metadata"]["uid"]
    assert str(lease["spec"]["holderIdentity"]).startswith(f"{uid}/")
    renewed = str(lease["spec"]["renewTime"])
    assert datetime.fromisoformat(renewed).utcoffset() is not None
    assert len(renewed.partition(".")[2]) == len("123456Z")
    busy.apply_run("second", act("y"), session="s")
    status = busy.wait_ended("second")
    assert (status["phase"], status["reason"]) == ("Rejected", "SessionBusy")
    assert status["message"] == f"session s is held by run first ({uid})"
    assert busy.wait_ended("first")["phase"] == "Succeeded"
    busy.until(lambda: leases(busy) == [])
    busy.apply_run("third", act("z"), session="s")
    assert busy.wait_ended("third")["phase"] == "Succeeded"


def test_run_and_lease_deleted_in_mid_call_keep_the_session_until_the_attempt_has_ended(busy: ClusterSite) -> None:
    (lease,) = leases(busy)
    busy.kubectl("delete", "agentrun", "first", "--cascade=orphan")
    busy.kubectl("delete", "lease", str(lease["metadata"]["name"]), "--ignore-not-found")
    busy.apply_run("second", act("y"), session="s")
    status = busy.wait_ended("second")
    assert (status["phase"], status["reason"]) == ("Rejected", "SessionBusy")
    assert "first" in status["message"]

    def is_free() -> bool:
        busy.kubectl("delete", "agentrun", "later", "--ignore-not-found")
        busy.apply_run("later", act("z"), session="s")
        return bool(busy.wait_ended("later")["phase"] == "Succeeded")

    busy.until(is_free)
    assert (busy.effects_of("x"), busy.effects_of("y"), busy.effects_of("z")) == (1, 0, 1)


def test_an_operator_that_starts_again_keeps_the_sessions_of_its_runs(busy: ClusterSite) -> None:
    (before,) = leases(busy)
    busy.kubectl("delete", "lease", str(before["metadata"]["name"]))
    for process in busy.running("operator"):
        busy.kill(process)
    busy.apply_run("second", act("y"), session="s")
    busy.start_operator()
    assert busy.wait_ended("second")["reason"] == "SessionBusy"
    assert busy.wait_ended("first")["phase"] == "Succeeded"
    assert busy.effects_of("x") == 1
