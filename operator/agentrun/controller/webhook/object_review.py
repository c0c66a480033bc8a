"""What is wrong with an AgentRun or AgentTool that is about to be stored; pure.

Called by the admission of objects. A courtesy: the operator judges again what it reads, so nothing depends on this
being asked. What needs other objects (the tools that a run names, the tool that a lookup asks) is judged at the run's
admission alone.
"""

from __future__ import annotations

from pydantic import ValidationError

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.decisions.admission import CheckSchema, Violation, ViolationKind, find_tool_violations, find_violations
from agentrun.decisions.namespace_policy import NamespacePolicy

KINDS = ("AgentRun", "AgentTool")


def find_new_faults(
    before: JsonObject | None, after: JsonObject, check_schema: CheckSchema, policy: NamespacePolicy
) -> tuple[str, ...]:
    """Return what a change makes wrong, each with its field and remedy. ``before``: None for a new object.

    What was wrong with a run before is left alone: one that an older operator has admitted can still be cancelled.
    """
    found = _find_faults(after, check_schema, policy)
    if not found or before is None or after.get("kind") != "AgentRun":
        return found
    known = frozenset(_find_faults(before, check_schema, policy))
    return tuple(fault for fault in found if fault not in known)


def read_tool(raw: JsonObject) -> AgentTool:
    """Return the tool as it is written. Raises :class:`pydantic.ValidationError`."""
    return AgentTool.from_wire(_without_outer_parts(raw))


def _find_faults(raw: JsonObject, check_schema: CheckSchema, policy: NamespacePolicy) -> tuple[str, ...]:
    try:
        violations = _find_violations(raw, check_schema, policy)
    except ValidationError as error:
        return tuple(
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        )
    # What may be mended by other objects makes a run wait, it does not refuse it.
    return tuple(str(violation) for violation in violations if violation.kind is ViolationKind.REFUSE)


def _find_violations(raw: JsonObject, check_schema: CheckSchema, policy: NamespacePolicy) -> tuple[Violation, ...]:
    if raw.get("kind") == "AgentRun":
        return find_violations(AgentRun.from_wire(_without_outer_parts(raw)).spec, {}, policy=policy)
    return find_tool_violations(_name(raw), read_tool(raw).spec, {}, check_schema)


def _without_outer_parts(raw: JsonObject) -> JsonObject:
    # The metadata is the API server's to judge, and a name may still have to be generated.
    judged = {**raw, "metadata": {"name": "unnamed"}}
    judged.pop("status", None)
    return judged


def _name(raw: JsonObject) -> str:
    meta = raw.get("metadata")
    return str(meta.get("name") or "") if isinstance(meta, dict) else ""
