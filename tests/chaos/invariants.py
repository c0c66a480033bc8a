"""What must hold at the end of a round, whatever was struck: judged from the objects and the effects alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentrun.contract.node import TERMINAL_NODE_PHASES
from agentrun.contract.run import TERMINAL_RUN_PHASES
from chaos.trees import TOOLS

_GRANTS = ("Release", "Redrive")
_NOES = ("Reject", "Discard")


@dataclass(slots=True)
class RoundEnd:
    """What is there when everything has ended."""

    runs: Sequence[dict[str, Any]]
    nodes: Sequence[dict[str, Any]]
    """Of the runs that exist."""
    approvals: Sequence[dict[str, Any]]
    effects: Sequence[dict[str, Any]]
    applied: frozenset[str]
    """Names of the runs that were applied."""
    deleted: frozenset[str]
    cancelled: frozenset[str]


def find_violations(end: RoundEnd) -> Iterator[str]:
    """Give what does not hold, a sentence each."""
    by_name = {run["metadata"]["name"]: run for run in end.runs}
    for name in sorted(end.applied - end.deleted - by_name.keys()):
        yield f"run {name} is lost"
    decisions: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for approval in end.approvals:
        request, decision = approval.get("status", {}).get("request"), approval.get("spec", {}).get("decision")
        if request and decision:
            decisions[request["run"]["uid"], request["node"]].append({**decision, "kind": request["kind"]})
    for name, run in by_name.items():
        if name in end.deleted:
            continue
        uid = run["metadata"]["uid"]
        nodes = {node["spec"]["path"]: node for node in end.nodes if node["spec"]["run"]["uid"] == uid}
        said = {path: given for (owner, path), given in decisions.items() if owner == uid}
        yield from _RunJudge(run, nodes, said, end).find_violations()
    yield from _judge_effects(end, decisions)


def _judge_effects(end: RoundEnd, decisions: dict[tuple[str, str], list[dict[str, Any]]]) -> Iterator[str]:
    granted: Counter[str] = Counter()
    for node in end.nodes:
        key = node.get("status", {}).get("call", {}).get("key")
        given = decisions.get((node["spec"]["run"]["uid"], node["spec"]["path"]), ())
        if key:
            granted[key] += sum(
                one["verdict"] in _GRANTS or (one["verdict"] == "Approve" and one["kind"] in ("Grant", "Duplicate"))
                for one in given
            )
    made = Counter((effect["tool"], effect["key"], effect["word"]) for effect in end.effects)
    for (tool, key, word), count in made.items():
        if TOOLS[tool]["sideEffect"] == "Once" and count > 1 + granted[key]:
            yield f"{tool}({word}) was executed {count} times, and people granted {granted[key]} repetitions"


class _RunJudge:
    def __init__(
        self,
        run: dict[str, Any],
        nodes: dict[str, dict[str, Any]],
        decisions: dict[str, list[dict[str, Any]]],
        end: RoundEnd,
    ) -> None:
        self._run = run
        self._status = run.get("status", {})
        self._name = run["metadata"]["name"]
        self._nodes = nodes
        self._decisions = decisions
        self._end = end
        self._effects = Counter(effect["key"] for effect in end.effects)
        self._effect_words = Counter(effect["word"] for effect in end.effects)

    def find_violations(self) -> Iterator[str]:
        phase = self._status.get("phase")
        if phase not in TERMINAL_RUN_PHASES:
            yield f"run {self._name} has not ended: {phase} {self._status.get('reason')}"
            return
        yield from self._judge_run(str(phase))
        if phase != "Rejected" and not self._nodes and self._status.get("admittedAt"):
            yield f"run {self._name} has no nodes"
        for path, node in self._nodes.items():
            for fault in self._judge_node(path, node):
                status = node.get("status", {})
                yield f"node {self._name}/{path} ({status.get('phase')} {status.get('reason')}): {fault}"

    # --- the run

    def _judge_run(self, phase: str) -> Iterator[str]:
        fatal = [path for path, node in self._nodes.items() if self._is_fatal(node)]
        reason = self._status.get("reason")
        if phase == "Rejected":
            session = self._run["spec"].get("session")
            others = [run for run in self._end.runs if run is not self._run and run["spec"].get("session") == session]
            deleted = bool(self._end.deleted) and session == "shared"
            if reason != "SessionBusy" or not session or not (others or deleted):
                yield f"run {self._name} was rejected: {reason} {self._status.get('message')}"
        elif phase == "Succeeded":
            if fatal:
                yield f"run {self._name} succeeded although {fatal} are dead"
        elif phase == "Failed":
            if not fatal:
                yield f"run {self._name} failed, and nobody knows why: {reason} {self._status.get('message')}"
        elif phase == "Cancelled":
            if self._name not in self._end.cancelled:
                yield f"run {self._name} was cancelled, and nobody had asked for it"
        else:
            yield f"run {self._name} ended as {phase}: {reason} {self._status.get('message')}"

    def _is_fatal(self, node: dict[str, Any]) -> bool:
        status = node.get("status", {})
        return status.get("phase") == "Dead" and not status.get("tolerated")

    # --- a node

    def _judge_node(self, path: str, node: dict[str, Any]) -> Iterator[str]:
        status, spec = node.get("status", {}), node["spec"]["node"]
        phase = status.get("phase", "Pending")
        if phase not in TERMINAL_NODE_PHASES:
            yield "it has not ended"
            return
        params = spec.get("params", {})
        called = status.get("call", {}).get("params", {})
        acts = TOOLS.get(spec.get("tool", ""), {}).get("function") == "act"
        if phase == "Succeeded":
            if not self._rule_is_met(node) or not self._is_chosen(node):
                yield f"it ran although its upstream nodes were {self._upstream(node)}"
            yield from self._judge_success(node, params, called, acts=acts)
        elif phase == "Dead" and not self._may_die(path, node):
            yield f"nothing lets it die: {status.get('message')}"
        elif phase == "Skipped" and self._rule_is_met(node) and self._is_chosen(node):
            if not (spec.get("optional") and self._may_die(path, node)):
                yield f"nothing lets it be skipped: {status.get('message')}"
        elif phase == "Cancelled" and self._status["phase"] not in ("Cancelled", "Failed"):
            if status.get("reason") != "NoLongerNeeded":
                yield "it was cancelled in a run that was not"
        if params.get("how") == "refuse" and self._effect_words[called.get("word", "")]:
            yield "it did something although it was to refuse"

    def _judge_success(
        self, node: dict[str, Any], params: dict[str, Any], called: dict[str, Any], *, acts: bool
    ) -> Iterator[str]:
        status, spec = node["status"], node["spec"]["node"]
        if params.get("how") == "refuse":
            yield "its tool refuses always"
        if spec.get("tool"):
            result = status.get("result") or {}
            if status.get("reason") == "Adopted":
                # The call was another run's, where it is judged.
                if not status.get("replayOf"):
                    yield "it was adopted and does not say from where"
            elif result.get("did") != called.get("word") or result.get("number") != called.get("number"):
                yield f"its result is {result}, its call {called}"
            if acts and status.get("reason") != "Adopted" and not self._effects[status["call"]["key"]]:
                yield "it did nothing outside"
        if spec.get("type") == "Condition":
            test = spec["condition"]["cases"][0]["when"]
            asked = self._nodes[test["path"].split(".")[1]]["status"]["result"]["number"]
            branch = "yes" if asked == test["value"] else "no"
            if status.get("chosen") != f"{spec['name']}-{branch}":
                yield f"it chose {status.get('chosen')} at {asked}"
        if spec.get("type") == "FanOut" and status.get("children", 0) != len(spec["fanOut"]["items"]):
            yield f"it has {status.get('children')} instances for {spec['fanOut']['items']}"

    def _may_die(self, path: str, node: dict[str, Any]) -> bool:
        spec = node["spec"]["node"]
        if spec.get("params", {}).get("how") == "refuse":
            return True
        if any(one["verdict"] in _NOES for one in self._decisions.get(path, ())):
            return True
        if spec.get("type") != "FanOut":
            return False
        phases = [child["status"]["phase"] for child in self._nodes.values() if child["spec"].get("parent") == path]
        return any(phase in ("Dead", "Cancelled") for phase in phases)

    def _upstream(self, node: dict[str, Any]) -> list[str]:
        found = []
        for path in node["spec"].get("upstreams", ()):
            status = self._nodes[path].get("status", {})
            found.append("Tolerated" if status.get("tolerated") else status.get("phase", "Pending"))
        return found

    def _rule_is_met(self, node: dict[str, Any]) -> bool:
        ends = self._upstream(node)
        rule = node["spec"]["node"].get("join", {}).get("rule", "All")
        if not ends:
            return True
        if rule == "All":
            return all(end in ("Succeeded", "Tolerated") for end in ends)
        if rule == "Any":
            return "Succeeded" in ends
        return all(end == "Tolerated" or end in TERMINAL_NODE_PHASES for end in ends)

    def _is_chosen(self, node: dict[str, Any]) -> bool:
        choosers = node["spec"].get("choosers", ())
        name = node["spec"]["node"]["name"]
        return not choosers or any(self._nodes[path]["status"].get("chosen") == name for path in choosers)
