"""``make dev-cluster``: what it prints leads to an API server with our kinds and to a durable ledger, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import redis

TESTS = Path(__file__).parents[1]


def test_a_cluster_of_ones_own_serves_our_kinds_until_it_is_interrupted() -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "own_cluster"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert started.stdout is not None
    try:
        lines = [started.stdout.readline() for _ in range(3)]
        said = dict(part.split("=", 1) for line in lines[:2] for part in line.removeprefix("export ").split())
        got = subprocess.run(
            ["kubectl", "--kubeconfig", said["KUBECONFIG"], "get", "agentrun-all", "--all-namespaces"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (got.returncode, got.stderr.strip()) == (0, "No resources found")
        assert said["AGENTRUN_OPERATOR_REDIS"] == said["AGENTRUN_WORKER_REDIS"]
        with redis.Redis.from_url(said["AGENTRUN_WORKER_REDIS"]) as client:
            assert client.config_get("appendonly", "appendfsync") == {"appendonly": "yes", "appendfsync": "always"}
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == 0
        assert not Path(said["KUBECONFIG"]).parent.exists()
    finally:
        started.kill()
        started.wait()
        started.stdout.close()
