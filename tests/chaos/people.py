"""The people of a round: they answer whatever is open, truthfully, by patches of the approvals."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

from chaos.api_server import GROUP, MERGE, ApiAwayError, ApiServer, RefusedError
from chaos.history import History
from chaos.plans import RoundPlan
from chaos.processes import Site
from chaos.tools.chaos_tools import read_effects

_LOOK_SECONDS = 0.4


class People:
    """Each answers after a moment of thought; what is answered depends on the seed and the question alone."""

    def __init__(self, api: ApiServer, site: Site, plan: RoundPlan, history: History) -> None:
        self._api = api
        self._site = site
        self._seed = plan.seed
        self._held_open = set(_find_held_open(plan))
        self._history = history
        self._thinking: dict[str, float] = {}

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            try:
                found, _ = await self._api.list_all(self._site.namespace, "agentapprovals")
                for approval in found:
                    await self._look_at(approval)
            except ApiAwayError:
                pass
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look_at(self, approval: dict[str, Any]) -> None:
        name, status = approval["metadata"]["name"], approval.get("status", {})
        request = status.get("request")
        if request is None or status["state"] != "Open" or approval.get("spec", {}).get("decision"):
            return
        question = f"{self._seed}/{request['run']['name']}/{request['node']}/{request['inboxId']}"
        chance = random.Random(question)
        now = asyncio.get_running_loop().time()
        if now < self._thinking.setdefault(name, now + chance.uniform(0, 1.5)):
            return
        decision = self._decide(chance, request)
        path = f"{GROUP}/namespaces/{self._site.namespace}/agentapprovals/{name}"
        try:
            await self._api.request("PATCH", path, {"spec": {"decision": decision}}, MERGE)
        except RefusedError as error:
            self._history.note(f"an answer to {question} was refused: {error}")
            return
        said = {key: value for key, value in decision.items() if key != "decidedBy"}
        self._history.note(f"{request['run']['name']}/{request['node']} {request['inboxId']}: answered {said}")

    def _decide(self, chance: random.Random, request: dict[str, Any]) -> dict[str, Any]:
        allowed = request["allowed"]
        preview = request.get("paramsPreview")
        params = json.loads(preview) if preview else {}
        word = params.get("word", "")
        happened = any(effect["word"] == word for effect in read_effects(self._site.effects))
        decision: dict[str, Any] = {"decidedBy": "Ada"}
        if "Approve" in allowed:
            return {**decision, "verdict": "Approve" if chance.random() < 0.9 else "Reject"}
        if "Redrive" in allowed:
            # Once, and within a run that is held open for it: after its end another run would come of it.
            held_open = (request["run"]["name"], request["node"].split(".")[0]) in self._held_open
            again = held_open and request["inboxId"].endswith("-1") and chance.random() < 0.3
            return {**decision, "verdict": "Redrive" if again else "Discard"}
        unknown = request.get("unknownOutcome", False)
        executed = happened if unknown else "Release" not in allowed
        if unknown:
            decision["effect"] = "Executed" if executed else "NotExecuted"
        if chance.random() < 0.2:
            return {**decision, "verdict": "Discard"}
        if executed:
            return {**decision, "verdict": "Resolve", "result": {"did": word, "number": params.get("number", 0)}}
        return {**decision, "verdict": "Release"}


def _find_held_open(plan: RoundPlan) -> Iterator[tuple[str, str]]:
    for run in plan.runs:
        for node in run["spec"]["nodes"]:
            if node.get("onFailure", run["spec"]["onNodeFailure"]) == "Suspend":
                yield run["metadata"]["name"], node["name"]
