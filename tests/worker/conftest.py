"""Fixtures of the worker's tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Everything that is logged meanwhile, whatever its level."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET))
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**before)
