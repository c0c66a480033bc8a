"""The product installed on a cluster that runs pods, once for all tests of this folder, and a namespace for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.control_plane import install_custom_resources
from support.helm import Helm, find_helm
from support.node_site import NodeRelease, NodeSite


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            # Pods are pulled, started and ended; a loaded machine takes its time.
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """The kubeconfig of the cluster under test, its custom resources installed."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.fail("no cluster is named: run `make test-node`, which starts one, or name one with KUBECONFIG")
    install_custom_resources(Path(named))
    return Path(named)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real helm."""
    program = find_helm()
    if program is None:
        pytest.fail("no helm on this machine: run `make test-node`, which fetches it, or name it with HELM")
    return Helm(str(program), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def release(kubeconfig: Path, helm: Helm) -> Iterator[NodeRelease]:
    """An installation that serves every namespace."""
    made = NodeRelease(kubeconfig, helm)
    try:
        made.install({"scope": {"mode": "Cluster"}})
        yield made
    finally:
        made.close()


@pytest.fixture
def site(kubeconfig: Path, release: NodeRelease) -> Iterator[NodeSite]:
    """A namespace with a provider in it."""
    made = NodeSite(kubeconfig, release)
    try:
        made.start_provider()
        yield made
    finally:
        made.close()
