"""What the ledger remembers of a run: the digest of its content, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from agentrun.contract.exact_json import JsonObject, json_digest
from agentrun.contract.run import MUTABLE_SPEC_FIELDS, AgentRunSpec, AgentRunStatus

_MUTABLE_ON_WIRE = {
    field.alias or name for name, field in AgentRunSpec.model_fields.items() if name in MUTABLE_SPEC_FIELDS
}


def spec_digest(spec: AgentRunSpec) -> str:
    """Return the digest of everything in a spec that may not change after admission."""
    wire = spec.to_wire()
    kept = {name: value for name, value in wire.items() if name not in _MUTABLE_ON_WIRE}
    return json_digest(kept)


def build_outcome(status: AgentRunStatus, counts: Mapping[str, int]) -> JsonObject:
    """Return what a run of the same name and content is given instead of being executed again."""
    return {
        "phase": str(status.phase),
        "reason": str(status.reason),
        "spent": status.spent.to_wire() if status.spent is not None else None,
        "counts": dict(counts),
    }
