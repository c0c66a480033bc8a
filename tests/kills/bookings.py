"""A provider on loopback that books what it is asked to, every time, and strikes at an instant of its own work.

    POST /book/<case>        book; with ?deduplicates=1 an Idempotency-Key is booked once
    GET  /read/<case>        count the reading
    GET  /look/<case>/<key>  what became of a booking: done, running (the request is in hand) or unknown

What the strike is belongs to the test. A request that did not arrive whole is none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from support.loopback_server import LoopbackServer


class Moment(StrEnum):
    """When a provider strikes."""

    RECEIVED = "Received"
    """The request is there whole; nothing is booked."""
    BOOKED = "Booked"
    """It is booked; nothing is answered."""
    HALF_ANSWERED = "HalfAnswered"
    """Half of the answer is on its way."""
    LINGERS = "Lingers"
    """It never strikes: it answers when the test lets it."""


@dataclass(slots=True)
class Ledger:
    """What one case's requests have led to."""

    moment: Moment | None = None
    strike: Callable[[], Awaitable[None]] | None = None
    released: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0
    booked: list[str] = field(default_factory=list)
    """Keys, one for each booking."""
    read: int = 0
    in_hand: set[str] = field(default_factory=set)

    @property
    def effects(self) -> int:
        """How often the case's effect has happened."""
        return len(self.booked) + self.read


class BookingProvider(LoopbackServer):
    """A running provider; a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers: dict[str, Ledger] = {}

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.listens_at}"

    def open(
        self, case: str, moment: Moment | None = None, strike: Callable[[], Awaitable[None]] | None = None
    ) -> Ledger:
        """Begin a case."""
        self.ledgers[case] = Ledger(moment, strike)
        return self.ledgers[case]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        await reader.readexactly(int(headers.get("content-length", "0")))
        target, _, query = head[0].split(" ")[1].partition("?")
        _, what, case, *key = target.split("/")
        ledger = self.ledgers[case]
        match what:
            case "book":
                key = [headers["idempotency-key"]]
                await self._book(ledger, key[0], writer, deduplicates=query == "deduplicates=1")
            case "read":
                await self._read(ledger, writer)
            case _:
                await _answer(writer, _look(ledger, key[0]))

    async def _book(self, ledger: Ledger, key: str, writer: asyncio.StreamWriter, *, deduplicates: bool) -> None:
        ledger.requests += 1
        ledger.in_hand.add(key)
        moment = ledger.moment if ledger.requests == 1 else None
        await _strike(ledger, moment, Moment.RECEIVED)
        if not (deduplicates and key in ledger.booked):
            ledger.booked.append(key)
        ledger.in_hand.discard(key)
        await self._tell(ledger, moment, writer)

    async def _read(self, ledger: Ledger, writer: asyncio.StreamWriter) -> None:
        ledger.requests += 1
        moment = ledger.moment if ledger.requests == 1 else None
        await _strike(ledger, moment, Moment.RECEIVED)
        ledger.read += 1
        await self._tell(ledger, moment, writer)

    async def _tell(self, ledger: Ledger, moment: Moment | None, writer: asyncio.StreamWriter) -> None:
        await _strike(ledger, moment, Moment.BOOKED)
        if moment is Moment.LINGERS:
            await ledger.released.wait()
        if moment is not Moment.HALF_ANSWERED:
            await _answer(writer, {"id": 1})
            return
        data = _wire({"id": 1})
        writer.write(data[: len(data) // 2])
        await writer.drain()
        await _strike(ledger, moment, Moment.HALF_ANSWERED)
        writer.write(data[len(data) // 2 :])
        await writer.drain()


async def _strike(ledger: Ledger, moment: Moment | None, now: Moment) -> None:
    if moment is now and ledger.strike is not None:
        await ledger.strike()


def _look(ledger: Ledger, key: str) -> dict[str, Any]:
    if key in ledger.booked:
        return {"state": "done", "booking": {"id": 1}}
    return {"state": "running" if key in ledger.in_hand else "unknown"}


async def _answer(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(_wire(answer))
    await writer.drain()


def _wire(answer: dict[str, Any]) -> bytes:
    body = json.dumps(answer).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
