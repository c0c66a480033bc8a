"""The servers that other tests rely on do what they say."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import redis

from support.ledger_server import DURABLE, LedgerServer, LedgerServerStartError


def test_the_shared_server_writes_to_disk_before_it_replies(ledger_url: str) -> None:
    with redis.Redis.from_url(ledger_url) as client:
        assert client.config_get("appendonly", "appendfsync") == {"appendonly": "yes", "appendfsync": "always"}


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_that_asks_for_it_finds_the_ledger_empty(turn: str, empty_ledger_url: str) -> None:
    with redis.Redis.from_url(empty_ledger_url) as client:
        assert client.dbsize() == 0
        client.set("left-behind", turn)


def test_a_durable_server_keeps_an_acknowledged_write_across_a_crash(
    start_ledger_server: Callable[..., LedgerServer],
) -> None:
    server = start_ledger_server(DURABLE)
    with redis.Redis.from_url(server.url) as client:
        client.set("written", "1")
        server.crash()
        server.start()
        assert client.get("written") == b"1"


def test_stopping_ends_the_process_and_removes_its_data() -> None:
    server = LedgerServer()
    server.start()
    pid = server.pid
    assert pid is not None
    server.stop()
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not server.directory.exists()


def test_a_wrong_option_fails_with_the_servers_own_words(start_ledger_server: Callable[..., LedgerServer]) -> None:
    with pytest.raises(LedgerServerStartError, match="no-such-option"):
        start_ledger_server({"no-such-option": "1"})
