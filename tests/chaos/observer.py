"""Watches the nodes and runs of a round on the API server and judges each change of a status as it comes."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import Any

from agentrun.contract.node import TIMELINE_LENGTH, NodePhase
from agentrun.contract.run import TERMINAL_RUN_PHASES
from agentrun.decisions.node_states import TRANSITIONS, IllegalTransitionError, find_row
from chaos.api_server import ApiAwayError, ApiServer

_PAUSE_SECONDS = 0.2


def find_reachable() -> dict[str, frozenset[str]]:
    """Return for each phase those that some row of moves leads to, in any number of steps."""
    found = {}
    for start in NodePhase:
        seen: set[NodePhase] = set()
        ahead = deque([start])
        while ahead:
            phase = ahead.popleft()
            for row in TRANSITIONS:
                if row.from_phase is phase and row.to_phase not in seen:
                    seen.add(row.to_phase)
                    ahead.append(row.to_phase)
        found[str(start)] = frozenset(str(phase) for phase in seen)
    return found


REACHABLE = find_reachable()


class Observer:
    """Sees every version of a status that the API server shows; a restart of the server hides none for good."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self.runs: dict[str, dict[str, Any]] = {}
        """The runs that exist, by name."""
        self.nodes: dict[str, dict[str, Any]] = {}
        """Every node that was ever seen, by uid, as it was seen last."""
        self.violations: list[str] = []
        self.changes_total = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        await asyncio.gather(self._watch("agentruns"), self._watch("agentnodes"))

    async def _watch(self, plural: str) -> None:
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list(plural)
                async for event in self._api.watch(self._namespace, plural, version):
                    if event["type"] == "ERROR":
                        # Too old: what lies between is judged by its ends.
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._see(plural, event["object"], gone=event["type"] == "DELETED")
            except ApiAwayError:
                pass
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _list(self, plural: str) -> str:
        found, version = await self._api.list_all(self._namespace, plural)
        if plural == "agentruns":
            self.runs = {name: run for name, run in self.runs.items() if name in {r["metadata"]["name"] for r in found}}
        for item in found:
            self._see(plural, item, gone=False)
        return version

    def _see(self, plural: str, seen: dict[str, Any], *, gone: bool) -> None:
        self.changes_total += 1
        meta = seen["metadata"]
        if plural == "agentruns":
            known = self.runs.get(meta["name"])
            if known is not None and known["metadata"]["uid"] == meta["uid"]:
                self._judge_run(known, seen)
            if gone:
                self.runs.pop(meta["name"], None)
            else:
                self.runs[meta["name"]] = seen
            return
        known = self.nodes.get(meta["uid"])
        self._judge_node(known, seen)
        self.nodes[meta["uid"]] = seen

    def _judge_run(self, known: dict[str, Any], seen: dict[str, Any]) -> None:
        before, after = known.get("status", {}), seen.get("status", {})
        was, phase = before.get("phase"), after.get("phase")
        if was in TERMINAL_RUN_PHASES and phase != was:
            self._say(f"run {seen['metadata']['name']} went from {was} to {phase}")
        if after.get("epoch", 0) < before.get("epoch", 0):
            self._say(f"run {seen['metadata']['name']} went back from epoch {before['epoch']} to {after.get('epoch')}")

    def _judge_node(self, known: dict[str, Any] | None, seen: dict[str, Any]) -> None:
        name = f"node {seen['spec']['run']['name']}/{seen['spec']['path']}"
        before, after = (known or {}).get("status", {}), seen.get("status", {})
        was, phase = before.get("phase", "Pending"), after.get("phase", "Pending")
        if was != phase and phase not in REACHABLE[was]:
            self._say(f"{name} went from {was} to {phase} ({after.get('reason')}), which no moves lead to")
        for counted in ("attempt", "seq", "epoch", "questions"):
            if counted == "seq" and _was_refused(before, after):
                continue
            if after.get(counted, 0) < before.get(counted, 0):
                self._say(f"{name}: {counted} went back from {before[counted]} to {after.get(counted, 0)}")
        if before.get("result") is not None and was == phase == "Succeeded" and before["result"] != after.get("result"):
            self._say(f"{name}: the result changed after the end")
        self._judge_timeline(name, before.get("timeline", []), after.get("timeline", []), phase)

    def _judge_timeline(self, name: str, before: list[Any], after: list[Any], phase: str) -> None:
        for earlier, later in itertools.pairwise(after):
            if earlier["toPhase"] != later["fromPhase"]:
                self._say(f"{name}: the timeline jumps from {earlier['toPhase']} to {later['fromPhase']}")
        for move in after:
            try:
                find_row(NodePhase(move["fromPhase"]), NodePhase(move["toPhase"]), move["reason"])
            except IllegalTransitionError as error:
                self._say(f"{name}: {error}")
        if after and after[-1]["toPhase"] != phase:
            self._say(f"{name} is {phase}, but its timeline ends with {after[-1]['toPhase']}")
        if before and before[-1] not in after and len(after) < TIMELINE_LENGTH:
            self._say(f"{name}: {before[-1]} vanished from the timeline")

    def _say(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)


def _was_refused(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Tell whether the ledger refused the order that was on record ahead of it: its number is given to the next one."""
    moves = after.get("timeline", [])
    number = before.get("seq", 0) - after.get("seq", 0)
    return number == 1 and any(move["reason"] == "HandedBack" for move in moves[len(before.get("timeline", [])) :])
