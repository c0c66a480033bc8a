"""The address for probes and scrapes: what it answers, and that it answers when the event loop cannot."""

import asyncio
import socket
import time
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentrun.telemetry.listen_address import ListenAddress, parse_address
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.metric_book import MetricBook, build_registry
from agentrun.telemetry.metrics import Process
from agentrun.telemetry.probe_server import CannotListenError, ProbeAnswer, Probes, ProbeServer

LOOPBACK = ListenAddress("127.0.0.1", 0)


class Site:
    """A server and what its probes say."""

    def __init__(self) -> None:
        self.liveness = Liveness(timedelta(seconds=0.3))
        self.ready = ProbeAnswer(good=True, text="standby")
        registry = build_registry()
        MetricBook(Process.OPERATOR, registry)
        self.server = ProbeServer(LOOPBACK, registry, Probes(self.live, lambda: self.ready))
        self.url = f"http://{self.server.start()}"

    def live(self) -> ProbeAnswer:
        fault = self.liveness.find_fault()
        return ProbeAnswer(not fault, fault or "ok")

    def get(self, path: str) -> tuple[int, str]:
        with httpx.Client(trust_env=False) as client:
            answer = client.get(f"{self.url}{path}")
        return answer.status_code, answer.text.strip()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.server.stop()


def test_metrics_are_given_out_in_the_text_format(site: Site) -> None:
    status, text = site.get("/metrics")
    assert status == 200
    names = {family.name for family in text_string_to_metric_families(text + "\n")}
    assert "agentrun_turn_seconds" in names
    assert "process_resident_memory_bytes" in names


def test_each_probe_says_what_it_was_told(site: Site) -> None:
    assert site.get("/healthz") == (200, "ok")
    assert site.get("/readyz") == (200, "standby")
    site.ready = ProbeAnswer(good=False, text="stopping")
    assert site.get("/readyz?verbose") == (503, "stopping")
    assert site.get("/else")[0] == 404


async def test_a_loop_that_beats_is_alive_and_one_that_hangs_is_told_from_outside(site: Site) -> None:
    beating = asyncio.create_task(site.liveness.beat())
    asked = asyncio.get_running_loop().run_in_executor(None, ask_until, site, 503)
    await asyncio.sleep(0)
    time.sleep(1.0)  # noqa: ASYNC251 - the very hang that is to be found
    assert "the event loop has made no progress" in await asked
    await asyncio.sleep(0.01)
    assert await asyncio.to_thread(site.get, "/healthz") == (200, "ok")
    beating.cancel()


def ask_until(site: Site, wanted: int) -> str:
    while True:
        status, text = site.get("/healthz")
        if status == wanted:
            return text


async def test_a_task_that_ended_unasked_is_named() -> None:
    liveness = Liveness()
    over = asyncio.create_task(asyncio.sleep(0), name="scheduler")
    liveness.expect(over, asyncio.create_task(asyncio.sleep(60), name="lead"))
    assert liveness.find_fault() == ""
    await over
    assert liveness.find_fault() == "ended although nobody asked for it: scheduler"


def test_connections_that_are_too_many_are_closed_and_leave_the_rest_at_work(site: Site) -> None:
    place = ("127.0.0.1", int(site.url.rpartition(":")[2]))
    silent = [socket.create_connection(place) for _ in range(30)]
    try:
        closed = [one for one in silent if _was_closed(one)]
        assert len(closed) == 14
    finally:
        for one in silent:
            one.close()
    assert ask_until_served(site) == 200


def _was_closed(one: socket.socket) -> bool:
    one.settimeout(0.05)
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def ask_until_served(site: Site) -> int:
    while True:
        try:
            return site.get("/readyz")[0]
        except httpx.TransportError:
            time.sleep(0.01)


def test_an_address_that_is_taken_is_refused_with_its_name(site: Site) -> None:
    taken = parse_address(site.url.removeprefix("http://"))
    assert taken is not None
    unused = Probes(site.live, lambda: site.ready)
    with pytest.raises(CannotListenError, match=f"cannot listen on {taken}"):
        ProbeServer(taken, build_registry(), unused).start()


@pytest.mark.parametrize(
    "text, want",
    [
        ("127.0.0.1:8080", ListenAddress("127.0.0.1", 8080)),
        (":8080", ListenAddress("0.0.0.0", 8080)),
        ("[::1]:9", ListenAddress("::1", 9)),
        ("localhost:0", ListenAddress("localhost", 0)),
        ("", None),
        (None, None),
    ],
)
def test_addresses_are_read(text: object, want: ListenAddress | None) -> None:
    assert parse_address(text) == want
    assert want is None or parse_address(str(want)) == want


@pytest.mark.parametrize("text", ["8080", "host", "host:", "host:65536", "::1:80", "[::1]", "http://host:80", 8080])
def test_what_is_no_address_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_address(text)
