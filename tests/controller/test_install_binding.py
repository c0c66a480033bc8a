"""What the operator says while it cannot tell which cluster this is, and how often it asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from structlog.testing import capture_logs

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.install_binding import InstallBinding
from agentrun.engine.cluster_port import ForbiddenError


class Server:
    """Stands in for the API client; refuses as often as it is told to."""

    def __init__(self, refusals: int) -> None:
        self.asked = 0
        self._refusals = refusals

    async def request(self, verb: str, path: str) -> JsonObject:
        self.asked += 1
        if self.asked <= self._refusals:
            raise ForbiddenError("get namespaces", "the operator may not get namespaces")
        return {"metadata": {"uid": "c-1"}}


class Book:
    """Writes down what is bound."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, tuple[str, ...]]] = []

    async def bind_install(self, cluster: str, namespaces: Sequence[str]) -> tuple[str, str] | None:
        self.bound.append((cluster, tuple(namespaces)))
        return None


async def bind(server: Server, times: int) -> tuple[Book, list[Any]]:
    book = Book()
    binding = InstallBinding(server, book, "agentrun", ["shop"])  # type: ignore[arg-type]
    with capture_logs() as lines:
        for _ in range(times):
            await binding.bind()
    return book, list(lines)


async def test_a_missing_right_is_told_of_once_and_taken_up_when_it_is_given() -> None:
    book, lines = await bind(Server(refusals=5), 7)
    assert [line["event"] for line in lines] == ["install_not_bound"]
    assert book.bound == [("c-1", ("shop",))] * 2


async def test_which_cluster_this_is_is_asked_once_and_bound_each_time() -> None:
    server = Server(refusals=0)
    book, _ = await bind(server, 3)
    assert (server.asked, len(book.bound)) == (1, 3)
