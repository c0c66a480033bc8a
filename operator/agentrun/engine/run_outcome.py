"""What the ledger is told and remembers of a run: its registration, the digest of its content, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from agentrun.contract.exact_json import JsonObject, json_digest
from agentrun.contract.names import session_holder
from agentrun.contract.run import MUTABLE_SPEC_FIELDS, TERMINAL_RUN_PHASES, AgentRun, AgentRunSpec, AgentRunStatus
from agentrun.engine.order_builder import budget_amount
from agentrun.ledger.port import RunRegistration

_MUTABLE_ON_WIRE = {
    field.alias or name for name, field in AgentRunSpec.model_fields.items() if name in MUTABLE_SPEC_FIELDS
}


def spec_digest(spec: AgentRunSpec) -> str:
    """Return the digest of everything in a spec that may not change after admission."""
    wire = spec.to_wire()
    kept = {name: value for name, value in wire.items() if name not in _MUTABLE_ON_WIRE}
    return json_digest(kept)


def build_registration(run: AgentRun, status: AgentRunStatus) -> RunRegistration:
    """Return what makes a run known to the ledger; one that has ended holds no session any more."""
    meta, spec = run.metadata, run.spec
    return RunRegistration(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        spec_digest=status.spec_digest or spec_digest(spec),
        session="" if status.phase in TERMINAL_RUN_PHASES else spec.session or "",
        holder=session_holder(meta.uid),
        budget=budget_amount(spec.budget),
    )


def build_outcome(status: AgentRunStatus, counts: Mapping[str, int]) -> JsonObject:
    """Return what a run of the same name and content is given instead of being executed again."""
    return {
        "phase": str(status.phase),
        "reason": str(status.reason),
        "spent": status.spent.to_wire() if status.spent is not None else None,
        "counts": dict(counts),
    }
