"""A ledger that can be taken away and given back in a test on virtual time."""

from __future__ import annotations

import asyncio

from agentrun.ledger.port import LedgerUnavailableError


class Outage:
    """A ledger behind a door that can be shut; who knocks is told that it is away."""

    def __init__(self, target: object) -> None:
        self._target = target
        self.away = False

    def __getattr__(self, name: str) -> object:
        found = getattr(self._target, name)
        if not callable(found) or not asyncio.iscoroutinefunction(found):
            return found

        async def step(*arguments: object, **named: object) -> object:
            if self.away:
                raise LedgerUnavailableError("away")
            return await found(*arguments, **named)

        return step
