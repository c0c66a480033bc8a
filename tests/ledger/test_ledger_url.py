"""Which URLs of a ledger are taken, and how one that cannot be used is explained."""

import pytest

from agentrun.ledger.ledger_url import check_ledger_url


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://localhost",
        "rediss://user:p%40ss@ledger.example:6380/2",
        "unix:///run/valkey.sock",
        "unix://:secret@/run/valkey.sock?db=1",
        "redis://[::1]:6379/0?protocol=3",
    ],
)
def test_a_url_that_redis_py_can_use_is_taken(url: str) -> None:
    assert check_ledger_url(url) == url


@pytest.mark.parametrize(
    "url, want",
    [
        pytest.param("localhost:6379", "'localhost:6379' has no scheme", id="no scheme"),
        pytest.param("ledger", "such as redis://ledger", id="host alone"),
        pytest.param("http://h:1", "such as redis://h:1", id="scheme of the web"),
        pytest.param("", "'' has no scheme", id="empty"),
        pytest.param("redis://h:port", "'redis://h:port' cannot be read", id="port that is none"),
        pytest.param("redis://h:99999", "cannot be read", id="port too high"),
        pytest.param("redis://h/first", "names no database by its number", id="database by name"),
        pytest.param("redis://h?db=x", "cannot be read", id="database that is none"),
        pytest.param("redis://h?bogus=1", "cannot be read", id="option that nobody knows"),
        pytest.param("unix://", "names no socket", id="no socket"),
    ],
)
def test_a_url_that_cannot_be_used_is_named_with_the_remedy(url: str, want: str) -> None:
    with pytest.raises(ValueError, match="write redis://HOST:PORT/DB") as refused:
        check_ledger_url(url)
    assert want in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://:hunter2@h:x", ":hunter2@h:1", "redis://:hunter2/more@h", "redis://u:hunter2@h/name"]
)
def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"\*\*\*@") as refused:
        check_ledger_url(url)
    assert "hunter2" not in str(refused.value)
