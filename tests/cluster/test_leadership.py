"""Two operators of one install: one leads, the other stands by, and nothing happens twice when the lead changes hands."""

import signal
import time
from typing import Any

import pytest

from support.cluster_site import ClusterSite

LENGTH = 12


@pytest.fixture
def chain(site: ClusterSite) -> ClusterSite:
    """A long chain of Once calls, with a worker, and nobody who decides yet."""
    site.apply_tools('{"act": {}}')
    site.start_worker()
    nodes = [
        {
            "name": f"n{at}",
            "tool": "act",
            "params": {"word": f"w{at}", "seconds": 0.3},
            **({"dependsOn": [f"n{at - 1}"]} if at else {}),
        }
        for at in range(LENGTH)
    ]
    site.apply_run("chain", nodes)
    return site


def lease(site: ClusterSite) -> dict[str, Any]:
    return site.get("lease", f"{site.namespace}-operator")


def holder(site: ClusterSite) -> str:
    return str(lease(site).get("spec", {}).get("holderIdentity", ""))


def epoch(site: ClusterSite) -> int:
    return int(lease(site)["metadata"]["annotations"]["agentrun.dev/epoch"])


def assert_each_effect_once(site: ClusterSite) -> None:
    assert site.wait_ended("chain", within=90)["phase"] == "Succeeded"
    assert [site.effects_of(f"w{at}") for at in range(LENGTH)] == [1] * LENGTH


def test_a_standby_takes_over_from_a_leader_that_was_killed(chain: ClusterSite) -> None:
    first = chain.start_operator(name="first")
    chain.until(lambda: holder(chain) == "first")
    second = chain.start_operator(name="second")
    chain.until(lambda: "standing_by" in chain.log("second"))
    chain.until(lambda: chain.effects_of("w2") == 1)
    chain.until(lambda: epoch(chain) == 1)
    chain.kill(first)
    chain.until(lambda: holder(chain) == "second")
    assert_each_effect_once(chain)
    chain.until(lambda: epoch(chain) == 2)
    assert lease(chain)["spec"]["leaseTransitions"] == 1
    assert second.poll() is None


def test_a_leader_that_stood_still_longer_than_its_lease_is_fenced(chain: ClusterSite) -> None:
    first = chain.start_operator(name="first")
    chain.until(lambda: holder(chain) == "first")
    chain.start_operator(name="second")
    chain.until(lambda: chain.effects_of("w2") == 1)
    first.send_signal(signal.SIGSTOP)
    chain.until(lambda: holder(chain) == "second")
    chain.until(lambda: chain.effects_of("w4") == 1)
    first.send_signal(signal.SIGCONT)
    assert first.wait(30) == 1
    assert "the lead was lost" in chain.log("first")
    assert_each_effect_once(chain)
    assert holder(chain) == "second"


def test_a_leader_that_is_asked_to_stop_hands_the_lead_over_at_once(chain: ClusterSite) -> None:
    first = chain.start_operator(name="first")
    chain.until(lambda: holder(chain) == "first")
    chain.start_operator(name="second")
    chain.until(lambda: "standing_by" in chain.log("second"))
    chain.until(lambda: chain.effects_of("w2") == 1)
    began = time.monotonic()
    assert chain.terminate(first) == 0, chain.log("first")
    chain.until(lambda: holder(chain) == "second")
    assert time.monotonic() - began < 30
    assert_each_effect_once(chain)


def test_a_deleted_lease_stops_nothing_and_the_epoch_does_not_go_backward(chain: ClusterSite) -> None:
    chain.start_operator(name="first")
    chain.until(lambda: chain.effects_of("w1") == 1)
    chain.until(lambda: epoch(chain) == 1)
    chain.kubectl("delete", "lease", f"{chain.namespace}-operator")
    chain.until(lambda: holder(chain) == "first")
    assert epoch(chain) == 1
    assert_each_effect_once(chain)
