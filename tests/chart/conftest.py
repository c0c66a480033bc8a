"""Helm for the tests of this folder, and an API server of their own for those that install."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.control_plane import ControlPlane, find_assets, install_custom_resources
from support.helm import Helm, Manifest, find_helm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.chart)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real helm."""
    program = find_helm()
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("no helm on this machine: run `make test-chart`, which fetches it, or name it with HELM")
    return Helm(str(program), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def standard(helm: Helm) -> list[Manifest]:
    """What the operator's chart renders when nothing is said."""
    return helm.render()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane without nodes."""
    assets = find_assets()
    if assets is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("no control plane on this machine: run `make test-chart`")
    with ControlPlane(assets) as started:
        install_custom_resources(started.kubeconfig)
        yield started
