"""etcd put back to an older copy in mid-run, under a leader that lives on and under one that starts anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster_site import ClusterSite
from support.control_plane import ControlPlane, find_assets, install_custom_resources
from support.ledger_server import DURABLE, LedgerServer


@pytest.fixture
def own_plane() -> Iterator[ControlPlane]:
    """A control plane that this test may turn back in time."""
    assets = find_assets()
    if assets is None:
        pytest.skip("needs a control plane of its own: run `make test-cluster`")
    with ControlPlane(assets) as started:
        install_custom_resources(started.kubeconfig)
        yield started


@pytest.mark.parametrize("restarts", [False, True], ids=["the leader lives on", "another leader starts"])
def test_dispatch_goes_on_and_nothing_happens_twice(own_plane: ControlPlane, tmp_path: Path, restarts: bool) -> None:
    with LedgerServer(DURABLE) as ledger:
        site = ClusterSite(own_plane.kubeconfig, ledger, tmp_path)
        try:
            live_through_it(site, own_plane, tmp_path / "copy", restarts)
        finally:
            site.close()


def live_through_it(site: ClusterSite, plane: ControlPlane, copy: Path, restarts: bool) -> None:
    site.apply_tools('{"act": {"timeout": "60s"}}')
    # A Lease that outlasts the server's outage: the leader itself is to live through it.
    site.start_operator(lease="60s")
    site.start_worker()
    chain = [
        {
            "name": f"n{at}",
            "tool": "act",
            "params": {"word": f"w{at}", "seconds": 4},
            **({"dependsOn": [f"n{at - 1}"]} if at else {}),
        }
        for at in range(6)
    ]
    site.apply_run("chain", chain, session="s")
    site.until(lambda: site.effects_of("w1") == 1)
    plane.copy_data(copy)
    site.until(lambda: site.effects_of("w3") == 1)
    epoch = site.get("agentrun", "chain")["status"]["epoch"]
    if restarts:
        for process in site.running("operator"):
            site.kill(process)
    plane.restore_data(copy)
    if restarts:
        site.start_operator(lease="60s")
    status = site.wait_ended("chain", 120)
    assert status["phase"] == "Succeeded"
    assert [site.effects_of(f"w{at}") for at in range(6)] == [1] * 6
    assert status["epoch"] >= epoch
