"""A worker's user reaches its namespace and nothing else, scripts of its own making included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote

import pytest
import redis.asyncio as aioredis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from agentrun.contract.ledger_keys import LedgerKeys
from agentrun.ledger.port import LedgerUnavailableError
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.ledger.worker_users import UsersForbiddenError, WorkerUsers, worker_user_name
from support.ledger_server import LedgerServer
from support.orders import build_order, build_registration, build_worker

A, B = LedgerKeys("agentrun", "a"), LedgerKeys("agentrun", "b")


def url_of(ledger_url: str, namespace: str, password: str, install: str = "agentrun") -> str:
    user = quote(worker_user_name(install, namespace), safe="")
    return ledger_url.replace("redis://", f"redis://{user}:{password}@")


@pytest.fixture
async def admin(empty_ledger_url: str) -> AsyncIterator[aioredis.Redis]:
    async with aioredis.Redis.from_url(empty_ledger_url, decode_responses=True) as client:
        users = WorkerUsers(client, "agentrun")
        await users.ensure("a", ["of-a"])
        await users.ensure("b", ["of-b"])
        for key in (A.node("n"), B.node("n"), A.meta):
            await client.hset(key, "field", "value")  # type: ignore[misc]
        await client.zadd(A.global_slots, {"n/1": 1})
        await client.set("agentrun-installs", "x")
        yield client


@pytest.fixture
async def worker(admin: aioredis.Redis, empty_ledger_url: str) -> AsyncIterator[aioredis.Redis]:
    """Whoever holds the credentials of namespace a."""
    async with aioredis.Redis.from_url(url_of(empty_ledger_url, "a", "of-a"), decode_responses=True) as client:
        yield client


FORBIDDEN = {
    "another's hash": ("HGET", B.node("n"), "field"),
    "write another's hash": ("HSET", B.node("n"), "field", "mine"),
    "another's queue": ("XADD", B.queue("shared", "t", "P2"), "*", "a", "b"),
    "another's bell": ("BLPOP", B.bell("shared"), "0.01"),
    "another install": ("HGET", "agentrun2:a:node:n", "field"),
    "the gate": ("HSET", A.meta, "open", "1"),
    "global slots": ("ZREM", A.global_slots, "n/1"),
    "who serves what": ("GET", "agentrun-installs"),
    "configuration": ("CONFIG", "GET", "requirepass"),
    "users": ("ACL", "LIST"),
    "all keys": ("KEYS", "*"),
    "scan": ("SCAN", "0"),
    "flush": ("FLUSHALL",),
    "others' scripts": ("SCRIPT", "FLUSH"),
    "what others send": ("MONITOR",),
    "messages": ("PUBLISH", "x", "y"),
    "functions": ("FUNCTION", "LIST"),
    "shut down": ("SHUTDOWN", "NOSAVE"),
    "copy": ("COPY", A.node("n"), B.node("n")),
    "rename": ("RENAME", A.node("n"), B.node("n")),
    "move to another database": ("MOVE", A.node("n"), "1"),
}


@pytest.mark.parametrize("command", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_what_is_not_its_namespaces_is_refused(worker: aioredis.Redis, command: tuple[str, ...]) -> None:
    with pytest.raises(NoPermissionError):
        await worker.execute_command(*command)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("declared", [True, False], ids=["declared key", "hidden key"])
async def test_a_script_of_its_own_reaches_no_further(
    admin: aioredis.Redis, worker: aioredis.Redis, declared: bool
) -> None:
    key = B.node("n")
    name = "KEYS[1]" if declared else f"'{key}'"
    for step in (f"redis.call('HGET', {name}, 'field')", f"redis.call('HSET', {name}, 'field', 'mine')"):
        digest = await worker.script_load(f"return {step}")
        with pytest.raises(ResponseError, match=r"(?i)permission|can't access"):
            await worker.evalsha(digest, *((1, key) if declared else (0,)))  # type: ignore[misc]
    assert await admin.hget(key, "field") == "value"  # type: ignore[misc]


async def test_its_own_namespace_is_open_to_it(worker: aioredis.Redis) -> None:
    assert await worker.hget(A.node("n"), "field") == "value"  # type: ignore[misc]
    assert await worker.hget(A.meta, "field") == "value"  # type: ignore[misc]
    digest = await worker.script_load("return redis.call('HGET', KEYS[1], 'field')")
    assert await worker.evalsha(digest, 1, A.node("n")) == "value"  # type: ignore[misc]


async def test_a_worker_of_a_claims_its_own_and_takes_nothing_of_b(
    admin: aioredis.Redis, empty_ledger_url: str
) -> None:
    scheduler = RedisLedger.connect(empty_ledger_url)
    await scheduler.take_epoch(0)
    own = RedisLedger.connect(url_of(empty_ledger_url, "a", "of-a"), LedgerSettings())
    for namespace in ("a", "b"):
        await scheduler.open([namespace])
        await scheduler.admit_run(build_registration(namespace=namespace))
        assert (await scheduler.dispatch(build_order(namespace=namespace), (), None)).refusal is None
    try:
        me, other = (replace(build_worker(), namespace=namespace) for namespace in ("a", "b"))
        (delivery,) = await own.take_orders(me, 5, 0)
        claim = await own.claim(me, delivery, "token")
        assert str(claim.verdict) == "Execute"
        with pytest.raises(LedgerUnavailableError, match="permission"):
            await own.take_orders(other, 5, 0)
        with pytest.raises(LedgerUnavailableError, match="permission"):
            await own.register_worker(other, 1)
    finally:
        await own.close()
        await scheduler.close()


async def test_both_passwords_count_until_one_is_taken_away(admin: aioredis.Redis, empty_ledger_url: str) -> None:
    users = WorkerUsers(admin, "agentrun")
    await users.ensure("a", ["new", "of-a"])
    for password in ("new", "of-a"):
        async with aioredis.Redis.from_url(url_of(empty_ledger_url, "a", password)) as client:
            assert await client.ping()  # type: ignore[misc]
    await users.ensure("a", ["newer", "new"])
    async with aioredis.Redis.from_url(url_of(empty_ledger_url, "a", "of-a")) as client:
        with pytest.raises(AuthenticationError):
            await client.ping()  # type: ignore[misc]


async def test_a_server_that_forgot_its_users_has_them_again(admin: aioredis.Redis, empty_ledger_url: str) -> None:
    users = WorkerUsers(admin, "agentrun")
    await users.ensure("a", ["of-a"])
    await admin.execute_command("ACL", "DELUSER", worker_user_name("agentrun", "a"))  # type: ignore[no-untyped-call]
    await users.ensure("a", ["of-a"])
    async with aioredis.Redis.from_url(url_of(empty_ledger_url, "a", "of-a")) as client:
        assert await client.ping()  # type: ignore[misc]


async def test_where_no_users_may_be_made_it_says_so(empty_ledger_url: str, admin: aioredis.Redis) -> None:
    await admin.execute_command("ACL", "SETUSER", "poor", "reset", "on", ">p", "~*", "+@all", "-acl")  # type: ignore[no-untyped-call]
    async with aioredis.Redis.from_url(empty_ledger_url.replace("redis://", "redis://poor:p@")) as client:
        with pytest.raises(UsersForbiddenError, match="acl"):
            await WorkerUsers(client, "agentrun").ensure("a", ["of-a"])


def test_names_of_installs_and_namespaces_never_meet() -> None:
    assert worker_user_name("a-b", "c") != worker_user_name("a", "b-c")


async def test_a_ledger_that_is_away_is_no_refusal() -> None:
    with LedgerServer() as server:
        url = server.url
    async with aioredis.Redis.from_url(url) as client:
        with pytest.raises(LedgerUnavailableError):
            await WorkerUsers(client, "agentrun").ensure("a", ["of-a"])
