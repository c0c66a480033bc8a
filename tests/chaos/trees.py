"""Generates the runs of a round: every node type, tools of every side effect, some of which misbehave."""

from __future__ import annotations

import json
import random
from typing import Any

API_VERSION = "agentrun.dev/v1alpha1"
_OFTEN = {"limit": 12, "backoff": {"initial": "100ms", "factor": 1, "max": "500ms"}}
_RESULT = {"schema": {"type": "object", "required": ["did"]}}
_FIND = {
    "lookup": {"tool": "find", "params": {"key": "${key}", "word": "${params.word}", "number": "${params.number}"}},
    "outcome": {
        "completed": {"when": {"path": "result.state", "op": "eq", "value": "done"}, "result": "result.result"},
        "running": {"when": {"path": "result.state", "op": "eq", "value": "running"}},
        "notExecuted": {"when": {"path": "result.state", "op": "eq", "value": "none"}},
    },
}
TOOLS: dict[str, dict[str, Any]] = {
    "read": {"function": "read", "sideEffect": "None", "retry": _OFTEN, "isolation": "Thread"},
    "measure": {"function": "read", "sideEffect": "None", "retry": _OFTEN},
    "put": {"function": "act", "sideEffect": "Idempotent", "retry": _OFTEN, "result": _RESULT},
    "book": {
        "function": "act",
        "sideEffect": "Once",
        "retry": _OFTEN,
        "result": _RESULT,
        "cost": {"perCall": "0.01"},
        "limits": {"concurrency": 2},
    },
    "note": {"function": "act", "sideEffect": "Once", "retry": _OFTEN, "result": _RESULT, "isolation": "Thread"},
    "transfer": {
        "function": "act",
        "sideEffect": "Once",
        "retry": _OFTEN,
        "result": _RESULT,
        "recovery": _FIND,
        "cost": {"perCall": "0.02"},
    },
    "pay": {
        "function": "act",
        "sideEffect": "Once",
        "retry": _OFTEN,
        "result": _RESULT,
        "recovery": _FIND,
        "approval": {"required": "Always"},
    },
    "find": {"function": "find", "sideEffect": "None", "retry": _OFTEN, "isolation": "Thread"},
}
_CALLED = ("read", "measure", "put", "book", "book", "note", "transfer", "transfer", "pay")
_IN_THREAD = ("read", "note")


def build_tool_manifests() -> list[dict[str, Any]]:
    """Return the AgentTools that every run may call."""
    manifests = []
    for name, tool in TOOLS.items():
        spec = {key: value for key, value in tool.items() if key not in ("function", "isolation")}
        spec |= {"type": "python", "timeout": "5s"}
        spec["python"] = {
            "entryPoint": f"chaos_tools:{tool['function']}",
            "isolation": tool.get("isolation", "Subprocess"),
        }
        manifests.append({"apiVersion": API_VERSION, "kind": "AgentTool", "metadata": {"name": name}, "spec": spec})
    return manifests


def build_run(chance: random.Random, name: str, session: str | None) -> dict[str, Any]:
    """Return one AgentRun with four to eight nodes and what they bring with them."""
    tree = _Tree(chance, name)
    for number in range(chance.randint(4, 8)):
        tree.grow(f"n{number}")
    spec: dict[str, Any] = {
        "intent": "a round of chaos",
        "timeout": "15m",
        "onNodeFailure": chance.choices(("Abort", "Continue", "Suspend"), (5, 3, 2))[0],
        "nodes": tree.nodes,
    }
    if session is not None:
        spec["session"] = session
    if chance.random() < 0.5:
        spec["budget"] = {"limit": "10.00"}
    return {"apiVersion": API_VERSION, "kind": "AgentRun", "metadata": {"name": name}, "spec": spec}


class _Tree:
    def __init__(self, chance: random.Random, run: str) -> None:
        self.nodes: list[dict[str, Any]] = []
        self._chance = chance
        self._run = run

    def grow(self, name: str) -> None:
        chance = self._chance
        known = [node["name"] for node in self.nodes]
        upstream = [other for other in known[-5:] if chance.random() < 0.4]
        node: dict[str, Any] = {"name": name}
        kind = chance.random()
        if kind < 0.16:
            node |= {"type": "FanOut", "fanOut": self._fan_out(name)}
        elif kind < 0.26:
            node |= {"type": "Approval", "approval": {"message": f"may {name} go on?"}}
        elif kind < 0.36 and upstream:
            node["type"] = "Join"
        elif kind < 0.5 and self._decidable():
            self._branch(name, chance.choice(self._decidable()))
            return
        else:
            node |= self._task(f"{self._run}.{name}")
        if upstream:
            node["dependsOn"] = upstream
            rule = chance.choices(("All", "Any", "Always"), (7, 2, 2))[0]
            if rule != "All":
                node["join"] = {"rule": rule}
            readable = [other for other in upstream if other in self._decidable()]
            if rule == "All" and readable and node.get("tool"):
                node["params"]["seen"] = f"${{nodes.{chance.choice(readable)}.result.did}}"
        node |= chance.choices(
            ({}, {"optional": True}, {"onFailure": "Continue"}, {"onFailure": "Suspend"}, {"priority": "P0"}),
            (10, 1, 2, 1, 1),
        )[0]
        self.nodes.append(node)

    def _decidable(self) -> list[str]:
        """Return the tasks whose result is there whenever they have not been skipped."""
        return [
            node["name"]
            for node in self.nodes
            if node.get("tool") in ("read", "measure")
            and node["params"]["how"] != "refuse"
            and not node.get("optional")
            and "onFailure" not in node
            and "join" not in node
        ]

    def _task(self, word: str) -> dict[str, Any]:
        chance = self._chance
        tool = chance.choice(_CALLED)
        ways = ["well", "stumble", "refuse"]
        weights = [16, 2, 1]
        if TOOLS[tool]["function"] == "act":
            ways += ["unknown", "useless"]
            weights += [1, 1]
            if tool not in _IN_THREAD:
                ways.append("crash")
                weights.append(1)
        how = chance.choices(ways, weights)[0]
        params = {"word": word, "ms": chance.choice((0, 50, 150, 300)), "how": how, "number": chance.randint(0, 2)}
        if TOOLS[tool]["function"] == "act":
            params["tool"] = tool
        return {"tool": tool, "params": params}

    def _fan_out(self, name: str) -> dict[str, Any]:
        chance = self._chance
        word = f"{self._run}.{name}.${{item}}"
        fan_out: dict[str, Any] = {"items": list(range(chance.choice((0, 1, 2, 3, 4))))}
        if chance.random() < 0.3:
            fan_out["maxParallel"] = 2
        if chance.random() < 0.6:
            fan_out["node"] = self._task(word)
        else:
            first, second = self._task(f"{word}.a"), self._task(f"{word}.b")
            fan_out["nodes"] = [{"name": "a", **first}, {"name": "b", "dependsOn": ["a"], **second}]
        return fan_out

    def _branch(self, name: str, asked: str) -> None:
        value = self._chance.randint(0, 2)
        test = {"path": f"nodes.{asked}.result.number", "op": "eq", "value": value}
        condition = {"cases": [{"when": test, "goto": f"{name}-yes"}], "default": f"{name}-no"}
        self.nodes.append({"name": name, "type": "Condition", "dependsOn": [asked], "condition": condition})
        for branch in ("yes", "no"):
            self.nodes.append({"name": f"{name}-{branch}", **self._task(f"{self._run}.{name}-{branch}")})


def describe_run(manifest: dict[str, Any]) -> str:
    """Return a run's tree as text, a node on a line."""
    spec = manifest["spec"]
    head = {key: value for key, value in spec.items() if key not in ("nodes", "intent")}
    return "\n".join([json.dumps(head), *(f"  {json.dumps(node)}" for node in spec["nodes"])])
