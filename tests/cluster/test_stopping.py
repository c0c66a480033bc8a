"""SIGTERM: what is waited for, for how long, and with which exit code, with everything there and with parts away."""

from __future__ import annotations

import time

import pytest

from support.cluster_site import ClusterSite
from support.control_plane import ControlPlane

GRACE_SECONDS = 30


def test_an_operator_whose_ledger_is_away_stops_within_its_grace_period_and_says_what_it_does(
    site: ClusterSite,
) -> None:
    site.apply_tools('{"act": {}}')
    operator = site.start_operator()
    site.start_worker()
    for number in range(4):
        site.apply_run(f"r{number}", [{"name": "a", "tool": "act", "params": {"word": f"w{number}", "seconds": 8}}])
    site.until(lambda: all(site.effects_of(f"w{number}") for number in range(4)))
    site.ledger.crash()
    try:
        site.until(lambda: "ledger_unavailable" in site.log("operator"))
        began = time.monotonic()
        assert site.terminate(operator) == 0
        took = time.monotonic() - began
    finally:
        site.ledger.start()
    assert took < GRACE_SECONDS / 3, site.log("operator")
    log = site.log("operator")
    assert "event='stopping'" in log
    assert "event='ledger_not_waited_for'" in log
    assert log.count("event='ledger_unavailable'") <= 2
    assert "Traceback" not in log
    # Nothing was lost: the next one takes everything up.
    site.start_operator(name="next")
    for number in range(4):
        assert site.wait_ended(f"r{number}")["phase"] == "Succeeded"
        assert site.effects_of(f"w{number}") == 1


def test_an_operator_that_never_reached_its_ledger_stops_at_once(site: ClusterSite) -> None:
    operator = site.start_operator(redis="redis://127.0.0.1:1/0")
    site.until(lambda: "ledger_unavailable" in site.log("operator"))
    began = time.monotonic()
    assert site.terminate(operator) == 0
    assert time.monotonic() - began < GRACE_SECONDS / 3


def test_an_operator_whose_api_server_is_away_as_well_stops_within_its_grace_period(
    site: ClusterSite, control_plane: ControlPlane | None
) -> None:
    if control_plane is None:
        pytest.skip("the API server of somebody else's cluster is not killed")
    operator = site.start_operator(lease="60s")
    site.until(lambda: "event='leading'" in site.log("operator"))
    site.ledger.crash()
    # Before the API server goes: an operator that is still taking the lead then waits for that alone.
    site.until(lambda: "ledger_unavailable" in site.log("operator"))
    control_plane.kill_part("kube-apiserver")
    try:
        site.until(lambda: "Cannot connect to host" in site.log("operator"))
        began = time.monotonic()
        assert site.terminate(operator) == 0
        assert time.monotonic() - began < GRACE_SECONDS / 2, site.log("operator")
    finally:
        control_plane.start_part("kube-apiserver")
        control_plane.wait_until_ready()
        site.ledger.start()
    assert "not_closed_in_time" not in site.log("operator") or "the Lease" in site.log("operator")


def test_a_worker_that_is_stopped_in_mid_call_commits_it_and_leaves_the_rest_to_the_next(site: ClusterSite) -> None:
    site.apply_tools('{"act": {"timeout": "20s"}}')
    site.start_operator()
    first = site.start_worker("--slots", "1", name="first")
    nodes = [{"name": f"n{at}", "tool": "act", "params": {"word": f"w{at}", "seconds": 3}} for at in range(3)]
    site.apply_run("r", nodes)
    site.until(lambda: site.effects.exists())
    began = time.monotonic()
    assert site.terminate(first) == 0
    assert time.monotonic() - began < GRACE_SECONDS
    assert sum(site.effects_of(f"w{at}") for at in range(3)) == 1
    site.start_worker(name="second")
    assert site.wait_ended("r")["phase"] == "Succeeded"
    assert [site.effects_of(f"w{at}") for at in range(3)] == [1, 1, 1]
    assert {node["attempt"] for node in site.nodes("r").values()} == {1}
