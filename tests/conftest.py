"""Fixtures that every test may ask for, and how the suite picks its random seeds."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping

import pytest
import redis
from hypothesis import HealthCheck, settings

from agentrun.telemetry.log_setup import LogLevel, set_up_logs
from support.ledger_server import DURABLE, IN_MEMORY, LedgerServer
from support.transition_coverage import TransitionCoverage

SEED_VARIABLE = "AGENTRUN_TEST_SEED"

# A loaded machine is no reason to fail: no deadlines, and slow generation is not an error.
_UNTIMED = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, max_examples=100, **_UNTIMED)
settings.register_profile("dev", max_examples=100, **_UNTIMED)
settings.register_profile("thorough", max_examples=5000, **_UNTIMED)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
settings.load_profile(_PROFILE)


def pytest_configure(config: pytest.Config) -> None:
    # Plain tracebacks: structlog's own default draws every local variable, which takes minutes for a large run.
    set_up_logs(LogLevel.WARNING)
    config.pluginmanager.register(TransitionCoverage(config), "transition-coverage")
    # The first process of the run chooses; the worker processes of xdist inherit the variable, so all agree.
    chosen = random.randrange(2**32) if _PROFILE == "thorough" else 1
    os.environ.setdefault(SEED_VARIABLE, str(chosen))


def pytest_report_header() -> str:
    return f"hypothesis profile: {_PROFILE}; seed: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


@pytest.fixture(scope="session")
def suite_seed() -> int:
    """The seed that simulations start from; printed in the header, 1 unless you set it; the thorough profile chooses anew."""
    return int(os.environ[SEED_VARIABLE])


@pytest.fixture(scope="session")
def ledger_server() -> Iterator[LedgerServer]:
    """One durable server for each worker process of the run; shared, so a test must not stop it."""
    with LedgerServer(DURABLE) as server:
        yield server


@pytest.fixture(scope="session")
def ledger_url(ledger_server: LedgerServer) -> str:
    """The URL of this worker process's server; keys of earlier tests may still stand in it."""
    return ledger_server.url


@pytest.fixture
def empty_ledger_url(ledger_url: str) -> str:
    """The URL of this worker process's server, without any key."""
    with redis.Redis.from_url(ledger_url) as client:
        client.flushdb()
    return ledger_url


@pytest.fixture
def start_ledger_server() -> Iterator[Callable[..., LedgerServer]]:
    """Start a server of the test's own, to be crashed, paused or given other options; stopped after the test."""
    servers: list[LedgerServer] = []

    def start(options: Mapping[str, str] = IN_MEMORY) -> LedgerServer:
        server = LedgerServer(options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()
