"""Edits of a run after its admission, field by field: what may change does, and nothing else ever counts.

A server with CEL refuses an illegal edit; an older one stores it, and then the operator goes on with what it admitted
and says ``SpecChangeIgnored``. Both are right, and nothing in between is.
"""

import json
from typing import Any

from agentrun.contract.run import MUTABLE_SPEC_FIELDS, AgentRunSpec
from support.cluster_site import ClusterSite

_BASE: dict[str, Any] = {
    "session": "s-{run}",
    "priority": "P1",
    "timeout": "20m",
    "budget": {"limit": "10"},
    "onNodeFailure": "Continue",
    "suspend": False,
    "cancel": False,
    "ttlAfterFinished": "24h",
    "rerunToken": "first",
    "waits": {"inbox": "2h"},
    "inputs": {"word": "admitted"},
}
"""A value for each optional field; those of ``add`` begin without it."""

_OTHER: dict[str, Any] = {
    "intent": "another",
    "session": "another",
    "priority": "P0",
    "timeout": "25m",
    "budget": {"limit": "20"},
    "onNodeFailure": "Abort",
    "suspend": True,
    "cancel": True,
    "ttlAfterFinished": "48h",
    "retryOf": "another",
    "rerunToken": "second",
    "waits": {"inbox": "3h"},
    "inputs": {"word": "edited"},
    "nodes": [{"name": "instead", "tool": "act", "params": {"word": "instead"}}],
}
"""What each field is changed to."""

_EDITS = [
    *((field, "add") for field in _BASE),
    *((field, "change") for field in _BASE),
    *((field, "remove") for field in _BASE),
    ("intent", "change"),
    ("nodes", "change"),
    ("retryOf", "add"),
]

_MUTABLE = frozenset(AgentRunSpec.model_fields[name].alias or name for name in MUTABLE_SPEC_FIELDS)


def test_the_fields_of_a_run_are_all_edited() -> None:
    every = {field.alias or name for name, field in AgentRunSpec.model_fields.items()}
    assert {field for field, _ in _EDITS} == every


def test_what_may_change_does_and_nothing_else_counts(site: ClusterSite) -> None:
    site.apply_tools('{"act": {}}')
    site.start_operator()
    site.start_worker()
    runs = {f"{field.lower()}-{deed}": (field, deed) for field, deed in _EDITS}
    for run, (field, deed) in runs.items():
        spec = {name: json.loads(json.dumps(value).replace("{run}", run)) for name, value in _BASE.items()}
        if deed == "add":
            spec.pop(field, None)
        word = "${inputs.word}" if "inputs" in spec else run
        nodes = [
            {"name": "go", "type": "Approval", "approval": {"message": "go on?"}},
            {"name": "work", "tool": "act", "params": {"word": word + "-" + run}, "dependsOn": ["go"]},
        ]
        site.apply_run(run, nodes, **spec)
    site.until(lambda: len(_open_questions(site)) == len(runs), within=120, say=lambda: str(_phases(site)))

    refused = {run for run, (field, deed) in runs.items() if not _edit(site, run, field, deed)}
    assert not {runs[run] for run in refused if runs[run][0] in _MUTABLE}
    site.until(lambda: _all_seen(site), within=60, say=lambda: str(_phases(site)))
    for run, (field, deed) in runs.items():
        ignored = _conditions(site.get("agentrun", run)).get("SpecChangeIgnored") == "True"
        assert ignored == (field not in _MUTABLE and run not in refused), (field, deed)
    assert _phases(site)["suspend-add"] == _phases(site)["suspend-change"] == "Suspended"
    assert site.wait_ended("cancel-add")["phase"] == site.wait_ended("cancel-change")["phase"] == "Cancelled"

    for run in ("cancel-add", "cancel-change", "suspend-change"):
        _patch(site, run, {"cancel": False, "suspend": False})
    _patch(site, "suspend-add", {"suspend": None})
    for name in _open_questions(site):
        decision = json.dumps({"spec": {"decision": {"verdict": "Approve"}}})
        site.kubectl("patch", "agentapproval", name, "--type=merge", "-p", decision)
    for run, (field, _) in runs.items():
        phase = site.wait_ended(run, within=120)["phase"]
        done = site.effects_of(f"admitted-{run}") + site.effects_of(f"{run}-{run}")
        wanted = ("Cancelled", 0) if run in ("cancel-add", "cancel-change") else ("Succeeded", 1)
        assert (phase, done) == wanted, (run, field)
    assert len(site.effects.read_text().split()) == len(runs) - 2


def _edit(site: ClusterSite, run: str, field: str, deed: str) -> bool:
    """Make the edit; False when the server refused it as one of an immutable field."""
    value = {"add": _BASE.get(field, _OTHER[field]), "change": _OTHER[field], "remove": None}[deed]
    if deed == "add" and field in ("suspend", "cancel"):
        value = True
    return "patched" in _patch(site, run, {field: value}, check=False)


def _patch(site: ClusterSite, run: str, spec: dict[str, Any], *, check: bool = True) -> str:
    return site.kubectl("patch", "agentrun", run, "--type=merge", "-p", json.dumps({"spec": spec}), check=check)


def _open_questions(site: ClusterSite) -> list[str]:
    approvals = site.find_all("agentapproval")
    return [one["metadata"]["name"] for one in approvals if one.get("status", {}).get("state") == "Open"]


def _conditions(run: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in run["status"]["conditions"]}


def _phases(site: ClusterSite) -> dict[str, str]:
    return {run["metadata"]["name"]: run.get("status", {}).get("phase", "") for run in site.find_all("agentrun")}


def _all_seen(site: ClusterSite) -> bool:
    return all(
        run["metadata"]["generation"] == run["status"]["observedGeneration"] for run in site.find_all("agentrun")
    )
