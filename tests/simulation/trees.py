"""Drawing one run: a short tree with nodes of every type, join rules, policies, limits and references.

Pure, called by ``simulation.plans``. What is drawn is valid: a run that is not admitted for its spec breaks a promise.
"""

from __future__ import annotations

import random

from agentrun.contract.exact_json import JsonObject, JsonValue
from simulation.shelf import CALLED

_RULES: tuple[JsonObject, ...] = (
    {"rule": "Any"},
    {"rule": "Always"},
    {"rule": "AtLeast", "count": 1},
    {"rule": "NoFailureOneSuccess"},
)
_WAITS: JsonObject = {"inbox": "40s", "queue": "90s", "dependencies": "3m", "recovery": "20s", "suspended": "5m"}


def draw_spec(chance: random.Random) -> JsonObject:
    """Return the spec of a run."""
    tree = _Tree(chance)
    for _ in range(chance.choice((1, 2, 2, 3, 3, 4, 5))):
        tree.add_node()
    if chance.random() < 0.3:
        tree.add_condition()
    spec: JsonObject = {
        "intent": "simulated",
        "timeout": chance.choice(("8s", "2m", "5m", "5m")),
        "waits": _WAITS,
        "onNodeFailure": chance.choice(("Abort", "Continue", "Suspend")),
        "inputs": {"items": [1, 2, 3][: chance.randint(0, 3)]},
        "nodes": tree.nodes,
    }
    if chance.random() < 0.6:
        spec["session"] = chance.choice(("s", "s", "t"))
    if chance.random() < 0.35:
        spec["budget"] = {"limit": chance.choice(("0", "0.01", "0.03", "0.06"))}
    if chance.random() < 0.2:
        spec["priority"] = chance.choice(("P0", "P1", "P3"))
    return spec


class _Tree:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.nodes: list[JsonValue] = []
        self._kinds: dict[str, str] = {}

    def add_node(self) -> None:
        chance = self._chance
        name = f"n{len(self._kinds)}"
        upstream = [known for known in self._kinds if chance.random() < 0.4]
        node: JsonObject = {"name": name}
        if upstream:
            node["dependsOn"] = list[JsonValue](upstream)
            if chance.random() < 0.5:
                node["join"] = chance.choice(_RULES)
        roll = chance.random()
        kind = "FanOut" if roll < 0.17 else "Approval" if roll < 0.24 else "Join" if roll < 0.3 and upstream else "Task"
        if kind == "Task":
            node |= self._draw_call(upstream)
            self._draw_policies(node, [known for known in upstream if self._kinds[known] == "Task"])
        else:
            node["type"] = kind
        if kind == "FanOut":
            node["fanOut"] = self._draw_fan_out()
        if kind == "Approval":
            node["approval"] = {"message": "go on?", "expiresAfter": chance.choice(("10s", "30s"))}
        self._draw_consequences(node)
        self._kinds[name] = kind
        self.nodes.append(node)

    def add_condition(self) -> None:
        """Add a switch over the first node, by how it ended or by what it gave, and one or two ways to go."""
        chance = self._chance
        first = next(iter(self._kinds))
        by_phase = chance.random() < 0.5 or self._kinds[first] != "Task"
        test: JsonObject = {"path": f"nodes.{first}.phase", "op": "eq", "value": "Succeeded"}
        if not by_phase:
            test = {"path": f"nodes.{first}.result.n", "op": "gt", "value": 2}
        condition: JsonObject = {"cases": [{"when": test, "goto": "left"}]}
        if chance.random() < 0.7:
            condition["default"] = "right"
        way: JsonObject = {"name": "way", "type": "Condition", "dependsOn": [first], "condition": condition}
        if by_phase:
            way["join"] = {"rule": "Always"}
        left: JsonObject = {"name": "left", **self._draw_call([])}
        right: JsonObject = {"name": "right", **self._draw_call([])}
        after: JsonObject = {"name": "after", "dependsOn": ["left", "right"], **self._draw_call([])}
        after["join"] = chance.choice(_RULES)
        self.nodes += [way, left, right]
        if "default" not in condition:
            right["dependsOn"] = ["left"]
        if chance.random() < 0.4:
            self.nodes.append(after)

    def _draw_call(self, upstream: list[str]) -> JsonObject:
        chance = self._chance
        params: JsonObject = {"n": chance.choice((1, 1, chance.randint(0, 9)))}
        given = [name for name in upstream if self._kinds[name] == "Task"]
        if given and chance.random() < 0.5:
            params["from"] = f"${{nodes.{chance.choice(given)}.result.token}}"
        lists = [name for name in upstream if self._kinds[name] == "FanOut"]
        if lists and chance.random() < 0.4:
            params["all"] = f"${{nodes.{chance.choice(lists)}.results}}"
        return {"tool": chance.choice(CALLED), "params": params}

    def _draw_policies(self, node: JsonObject, given: list[str]) -> None:
        """Draw what only a call carries; ``given``: upstream calls whose results it may refer to."""
        chance = self._chance
        if chance.random() < 0.5:
            node["defaults"] = {"result.token": "none"}
        if chance.random() < 0.15:
            after_last = chance.choice(("Human", "Ask", "Dead", "Drop"))
            node["retry"] = {"limit": chance.randint(0, 2), "backoff": {"initial": "1s"}, "afterLast": after_last}
        if chance.random() < 0.1:
            node["timeout"] = chance.choice(("1s", "3s"))
        if chance.random() < 0.12:
            # The same key in other nodes and runs: with the same params a duplicate, with others a conflict.
            node["idempotency"] = {"key": "k"}
        if chance.random() < 0.1:
            node["budget"] = {"limit": chance.choice(("0.01", "0.02"))}
        if given and chance.random() < 0.15:
            path = f"nodes.{chance.choice(given)}.result.token"
            node["priorityFrom"] = {"path": path, "map": {"none": "P3"}, "default": chance.choice(("P0", "P1"))}
        elif chance.random() < 0.15:
            node["priority"] = chance.choice(("P0", "P1", "P2", "P3"))

    def _draw_consequences(self, node: JsonObject) -> None:
        chance = self._chance
        if chance.random() < 0.12:
            node["optional"] = True
        if chance.random() < 0.25:
            node["onFailure"] = chance.choice(("Abort", "Continue", "Suspend"))

    def _draw_fan_out(self) -> JsonObject:
        chance = self._chance
        fan_out: JsonObject = {"items": chance.choice(("${inputs.items}", [1, 2], [1, 2, 2, 4], []))}
        if chance.random() < 0.5:
            fan_out["maxParallel"] = chance.choice((1, 2))
        if chance.random() < 0.4:
            fan_out["join"] = chance.choice(_RULES)
        call: JsonObject = {"tool": chance.choice(CALLED), "params": {"n": "${item}"}}
        if chance.random() < 0.7:
            fan_out["node"] = call
        else:
            second: JsonObject = {"tool": chance.choice(CALLED), "params": {"n": "${index}"}}
            roll = chance.random()
            if roll < 0.2:
                second = {"type": "Approval", "approval": {"message": "this one?", "expiresAfter": "20s"}}
            elif roll < 0.3:
                second = {"type": "Join"}
            fan_out["nodes"] = [{"name": "a", **call}, {"name": "b", "dependsOn": ["a"], **second}]
        if chance.random() < 0.06:
            # More items than it may have: the run ends Dead.
            fan_out["maxItems"] = 1
        return fan_out
