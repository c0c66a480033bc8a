"""Loads the Lua files and runs them: each operation is one script, made of its file and the libraries it mentions.

Used by the Redis ledger alone. Knows nothing of what the operations mean.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

from redis.exceptions import NoScriptError

_LIBRARIES = ("clock", "layout", "workers", "slots", "money", "reports", "records", "nodes", "fencing", "deliveries")
"""In the order in which they are put together: each may use those before it."""
_ALWAYS = ("clock", "layout")


class Send(Protocol):
    """Sends one command and gives its answer."""

    def __call__(self, *command: str | int) -> Awaitable[Any]:
        """Raises what the client's library raises."""
        ...


class LuaScripts:
    """The operations of the ledger as scripts of a server."""

    def __init__(self, libraries: Mapping[str, str] | None = None) -> None:
        """``libraries`` takes the place of shipped ones by name: a test puts its own clock there."""
        root = resources.files("agentrun.ledger") / "lua"
        replaced = libraries or {}
        self._libraries = {
            name: replaced.get(name) or (root / "lib" / f"{name}.lua").read_text(encoding="utf-8")
            for name in _LIBRARIES
        }
        self._root = root
        self._digests: dict[str, str] = {}

    async def run(self, send: Send, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """Run an operation by its digest; a server that does not know it (any more) is given it first."""
        digest = self._digests.get(name)
        if digest is not None:
            try:
                return await send("EVALSHA", digest, len(keys), *keys, *arguments)
            except NoScriptError:
                pass
        source = self._assemble((self._root / f"{name}.lua").read_text(encoding="utf-8"))
        digest = self._digests[name] = str(await send("SCRIPT", "LOAD", source))
        return await send("EVALSHA", digest, len(keys), *keys, *arguments)

    def _assemble(self, operation: str) -> str:
        needed = set(_ALWAYS)
        todo = [operation]
        while todo:
            text = todo.pop()
            for name in _LIBRARIES:
                if name not in needed and re.search(rf"\b{name}\.", text):
                    needed.add(name)
                    todo.append(self._libraries[name])
        return "\n".join([*(self._libraries[name] for name in _LIBRARIES if name in needed), operation])
