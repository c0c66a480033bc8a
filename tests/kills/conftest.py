"""The process that the workers of a test are forked from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kills.nursery import Hatchery


@pytest.fixture
def hatchery(tmp_path: Path) -> Iterator[Hatchery]:
    """Start workers; all of them end with the test."""
    with Hatchery(tmp_path, "kills.nursery") as hatchery:
        yield hatchery
