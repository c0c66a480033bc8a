"""A folder that keeps what local mode knows over its death: objects as a journal, the ledger's files beside it.

Every change is on disk before it counts, as on an API server; a line that a crash tore off had not counted. One process
at a time: a second one is refused. The journal is written anew, without its past, each time the folder is opened.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pydantic import ValidationError

from agentrun.contract.approval import AgentApproval
from agentrun.contract.exact_json import JsonObject, JsonRefusedError, canonical_json, parse_json
from agentrun.contract.node import AgentNode
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.engine.cluster_port import ChangeKind, ClusterChange, ClusterObject

_MODELS: dict[str, type[AgentTool | AgentRun | AgentNode | AgentApproval]] = {
    "AgentTool": AgentTool,
    "AgentRun": AgentRun,
    "AgentNode": AgentNode,
    "AgentApproval": AgentApproval,
}


class StateFolderError(Exception):
    """The folder cannot be used; the message says why and what to do."""


class StateFolder:
    """One folder, held by this process while it is open; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: IO[str] | None = None
        self._journal: IO[str] | None = None
        self.objects: list[ClusterObject] = []
        """What was there when it was opened, in order of their last change."""

    @property
    def ledger(self) -> Path:
        """Where the ledger's server keeps its files."""
        return self._folder / "ledger"

    def __enter__(self) -> Self:
        """Open the folder. Raises :class:`StateFolderError`."""
        try:
            self.ledger.mkdir(parents=True, exist_ok=True)
            self._lock = (self._folder / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateFolderError(f"--state {self._folder}: another process works in it; wait for its end") from None
        except OSError as error:
            raise StateFolderError(f"--state {self._folder}: {error.strerror}; name a folder to write in") from error
        self.objects = self._read()
        self._write_anew()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._journal, self._lock):
            if file is not None:
                file.close()

    def record(self, change: ClusterChange) -> None:
        """Have a change on disk."""
        if self._journal is None:
            raise RuntimeError("the state folder is not open")
        _append(self._journal, change)
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def _read(self) -> list[ClusterObject]:
        path = self._folder / "objects.jsonl"
        found: dict[tuple[str, str, str], ClusterObject] = {}
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                gone, read = _parse(line)
            except (JsonRefusedError, ValidationError, KeyError, TypeError) as error:
                if number == len(lines):
                    break  # torn off by a crash: it had not counted
                raise StateFolderError(
                    f"{path}:{number} cannot be read ({error}); restore the file, or begin with another folder"
                ) from error
            key = (read.kind, read.metadata.namespace, read.metadata.name)
            found.pop(key, None)
            if not gone:
                found[key] = read
        return list(found.values())

    def _write_anew(self) -> None:
        path, fresh = self._folder / "objects.jsonl", self._folder / "objects.jsonl.new"
        with fresh.open("w", encoding="utf-8") as journal:
            for found in self.objects:
                _append(journal, ClusterChange(ChangeKind.SEEN, found))
            journal.flush()
            os.fsync(journal.fileno())
        fresh.replace(path)
        self._journal = path.open("a", encoding="utf-8")


def _append(journal: IO[str], change: ClusterChange) -> None:
    wire: JsonObject = {"gone": change.kind is ChangeKind.GONE, "object": change.object.to_wire()}
    journal.write(canonical_json(wire) + "\n")


def _parse(line: bytes) -> tuple[bool, ClusterObject]:
    entry = parse_json(line)
    if not isinstance(entry, dict) or not isinstance(entry["object"], dict):
        raise TypeError("not an object")
    wire = entry["object"]
    return bool(entry["gone"]), _MODELS[str(wire["kind"])].from_wire(wire)
