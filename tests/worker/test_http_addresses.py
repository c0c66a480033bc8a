"""Where an http tool may go: judged by the address that is connected to, on every hop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from itertools import cycle

import pytest

from agentrun.contract.exact_json import JsonObject
from agentrun_worker.addresses import refuse_address
from agentrun_worker.http_executor import HttpExecutor
from support.provider import answer, serving
from support.tool_calls import FixedSecrets, build_http_tool, make_call, summary

REFUSED = ("NotExecuted", "Permanent", "AddressRefused")
READS: JsonObject = {"method": "GET", "body": None}


@pytest.mark.parametrize(
    "address, allow_private, want",
    [
        ("93.184.216.34", False, True),
        ("2606:2800:220:1:248:1893:25c8:1946", False, True),
        ("127.0.0.1", False, False),
        ("127.0.0.1", True, True),
        ("::1", False, False),
        ("::1", True, True),
        ("10.0.0.1", False, False),
        ("10.0.0.1", True, True),
        ("172.16.0.1", False, False),
        ("192.168.1.1", False, False),
        ("100.64.0.1", False, False),
        ("fd00::1", False, False),
        ("fd00::1", True, True),
        ("::ffff:10.0.0.1", False, False),
        ("::ffff:93.184.216.34", False, True),
        ("2002:a00:1::", False, False),
        ("64:ff9b::10.0.0.1", False, False),
        ("64:ff9b::93.184.216.34", False, True),
        # never, whatever the tool allows
        ("169.254.169.254", True, False),
        ("169.254.0.1", True, False),
        ("fe80::1%eth0", True, False),
        ("::ffff:169.254.169.254", True, False),
        ("64:ff9b::169.254.169.254", True, False),
        ("2002:a9fe:a9fe::", True, False),
        ("fd00:ec2::254", True, False),
        ("fd20:ce::254", True, False),
        ("168.63.129.16", True, False),
        ("100.100.100.200", True, False),
        ("192.0.0.192", True, False),
        ("0.0.0.0", True, False),
        ("::", True, False),
        ("224.0.0.1", True, False),
        ("ff02::1", True, False),
        ("255.255.255.255", True, False),
        ("::169.254.169.254", True, False),
    ],
)
def test_an_address_is_judged_by_what_it_leads_to(address: str, allow_private: bool, want: bool) -> None:
    assert (refuse_address(address, allow_private=allow_private) is None) is want


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "2852039166",  # 169.254.169.254 as one number
        "0xa9.254.169.254",
        "0251.0376.0251.0376",
        "[64:ff9b::a9fe:a9fe]",
    ],
)
async def test_the_metadata_service_is_out_of_reach_however_it_is_spelt(host: str) -> None:
    outcome = await make_call(HttpExecutor(FixedSecrets()), build_http_tool(f"http://{host}/latest/meta-data"))
    effect, failure_class, reason = summary(outcome)
    assert (effect, failure_class) == ("NotExecuted", "Permanent"), outcome.failure
    # A spelling that is no URL at all does not even get as far as an address.
    assert reason in ("AddressRefused", "ParamsInvalid")


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "localhost", "127.1"])
async def test_loopback_is_out_of_reach_unless_the_tool_allows_it(host: str) -> None:
    async with serving(answer(200, "{}")) as provider:
        tool = build_http_tool(f"http://{host}:{provider.port}/", {"allowPrivateAddresses": False})
        outcome = await make_call(HttpExecutor(FixedSecrets()), tool)
    assert summary(outcome) == REFUSED
    assert provider.requests == []
    assert outcome.failure is not None
    assert "allowPrivateAddresses" in outcome.failure.message


async def test_a_name_is_resolved_once_for_check_and_connection() -> None:
    """A name server that changes its mind between two questions is never asked the second one."""
    asked: list[str] = []
    answers: Iterator[str] = cycle(["127.0.0.1", "10.0.0.1"])

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return [next(answers)]

    async with serving(answer(200, "{}")) as provider:
        tool = build_http_tool(f"http://rebinding.test:{provider.port}/")
        outcome = await make_call(HttpExecutor(FixedSecrets(), resolve), tool)
    assert outcome.succeeded
    assert asked == ["rebinding.test"]


async def test_a_refused_address_among_others_is_passed_over() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["169.254.169.254", "127.0.0.1"]

    async with serving(answer(200, "{}")) as provider:
        tool = build_http_tool(f"http://mixed.test:{provider.port}/")
        outcome = await make_call(HttpExecutor(FixedSecrets(), resolve), tool)
    assert outcome.succeeded


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "//evil.test/",
        "http://[::ffff:a9fe:a9fe]/",
    ],
)
async def test_a_redirect_elsewhere_is_not_followed(location: str) -> None:
    async with serving(answer(302, Location=location)) as provider:
        outcome = await make_call(HttpExecutor(FixedSecrets()), build_http_tool(provider.url, READS))
    assert summary(outcome) == REFUSED
    assert len(provider.requests) == 1


async def test_every_hop_is_judged_by_its_address() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return {"public.test": ["127.0.0.1"], "inner.test": ["169.254.169.254"]}[host]

    async with serving(answer(302, Location="http://inner.test/")) as provider:
        tool = build_http_tool(
            f"http://public.test:{provider.port}/", {**READS, "allowedRedirectHosts": ["inner.test"]}
        )
        outcome = await make_call(HttpExecutor(FixedSecrets(), resolve), tool)
    assert summary(outcome) == REFUSED


async def test_an_allowed_redirect_is_followed_without_the_secrets() -> None:
    async with (
        serving(answer(200, '{"ok": true}')) as other,
        serving(answer(307, Location=f"{other.url}/there?q=1")) as provider,
    ):
        http = {
            **READS,
            "headers": {"X-Plain": "kept"},
            "headersFrom": [{"name": "X-Api-Key", "secretKeyRef": {"name": "shop", "key": "token"}}],
        }
        secrets = FixedSecrets({"shop/token": "canary-canary"})
        outcome = await make_call(HttpExecutor(secrets), build_http_tool(provider.url, http))
    assert outcome.succeeded
    assert provider.requests[0].headers["x-api-key"] == "canary-canary"
    assert other.requests[0].target == "/there?q=1"
    assert "x-api-key" not in other.requests[0].headers
    assert other.requests[0].headers["x-plain"] == "kept"


async def test_redirects_in_a_circle_end() -> None:
    async with serving(answer(302, Location="/again")) as provider:
        outcome = await make_call(HttpExecutor(FixedSecrets()), build_http_tool(provider.url, READS))
    assert summary(outcome) == REFUSED
    assert len(provider.requests) == 6


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answer(200, "{}")) as proxy, serving(answer(200, "{}")) as provider:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        outcome = await make_call(HttpExecutor(FixedSecrets()), build_http_tool(provider.url))
    assert outcome.succeeded
    assert (len(provider.requests), len(proxy.requests)) == (1, 0)


async def test_the_time_for_connecting_is_shared_between_the_addresses() -> None:
    """The first address swallows everything; the second one still gets its turn."""
    with socket.socket() as full:
        full.bind(("127.0.0.9", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.9", port))

        async def resolve(host: str, port: int) -> list[str]:
            return ["127.0.0.9", "127.0.0.1"]

        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            writer.close()

        try:
            async with await asyncio.start_server(reply, "127.0.0.1", port):
                tool = build_http_tool(f"http://two.test:{port}/")
                outcome = await make_call(HttpExecutor(FixedSecrets(), resolve), tool, seconds=1.0)
        finally:
            for filler in fillers:
                filler.close()
    assert outcome.succeeded, outcome.failure
