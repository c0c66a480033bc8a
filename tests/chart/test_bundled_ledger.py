"""A real server takes the configuration of the bundled ledger, and the operator finds its promises kept there."""

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from agentrun.local.embedded_ledger import find_server_binary
from support.helm import Helm, find_object

PASSWORD = "p-word"
KEPT = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": ""}


@pytest.fixture
def bundled(helm: Helm, tmp_path: Path) -> Iterator[redis.Redis]:
    """The server as the pod starts it, but for its folder and its port."""
    manifests = helm.render({"valkey": {"memory": "1Gi"}})
    (container,) = find_object(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    configuration = tmp_path / "valkey.conf"
    text = str(find_object(manifests, "ConfigMap")["data"][configuration.name])
    assert "\ndir /data\n" in text
    configuration.write_text(text.replace("\ndir /data\n", f"\ndir {tmp_path}\n"))
    given = [
        argument.replace("$(LEDGER_PASSWORD)", PASSWORD).replace("/etc/valkey/valkey.conf", str(configuration))
        for argument in container["args"]
    ]
    binary = find_server_binary()
    assert binary is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([binary, *given, "--port", str(port), "--bind", "127.0.0.1"], stdout=log, stderr=log)
    try:
        client = redis.Redis(port=port, password=PASSWORD, decode_responses=True)
        wait_until_ready(client, process, tmp_path / "log")
        yield client
        client.close()
    finally:
        process.kill()
        process.wait()


def wait_until_ready(client: redis.Redis, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            client.ping()
            return
        except redis.ConnectionError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


def test_a_server_takes_the_configuration(bundled: redis.Redis) -> None:
    found: dict[str, Any] = bundled.config_get()  # type: ignore[assignment]
    assert {name: found[name] for name in KEPT} == KEPT
    assert int(found["maxmemory"]) == 768 * 1024 * 1024


def test_nobody_comes_in_without_the_password(bundled: redis.Redis) -> None:
    with (
        redis.Redis(port=bundled.get_connection_kwargs()["port"]) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
