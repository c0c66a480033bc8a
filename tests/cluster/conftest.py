"""A real API server for the tests of this folder, and what lives on it: operators, workers and a ledger as processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster_site import ClusterSite
from support.control_plane import ControlPlane, find_assets, install_custom_resources
from support.ledger_server import DURABLE, LedgerServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.apiserver)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane | None]:
    """A control plane of our own; None where KUBECONFIG names another cluster."""
    if os.environ.get("KUBECONFIG"):
        yield None
        return
    assets = find_assets()
    if assets is None:
        pytest.fail("no control plane on this machine: run `make test-cluster`, or name a cluster with KUBECONFIG")
    with ControlPlane(assets) as started:
        yield started


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane | None) -> Path:
    """The kubeconfig of the cluster under test, its custom resources installed."""
    path = control_plane.kubeconfig if control_plane else Path(os.environ["KUBECONFIG"])
    install_custom_resources(path)
    return path


@pytest.fixture
def site(kubeconfig: Path, tmp_path: Path) -> Iterator[ClusterSite]:
    """A namespace with a ledger of its own; everything started on it is ended after the test."""
    with LedgerServer(DURABLE) as ledger:
        made = ClusterSite(kubeconfig, ledger, tmp_path)
        try:
            yield made
        finally:
            made.close()
