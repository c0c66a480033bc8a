"""What a run was admitted with: its spec and its tools' definitions, kept in the ledger for the run's whole life.

A server that evaluates CEL refuses to change them in the cluster; older ones, and renamed keys in free objects, let
changes through. Those are shown and change nothing: what counts is what was admitted, after a restart as well. The same
goes for a priority or a budget that was raised beyond what the namespace may ask for.
"""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.node import ToolRef
from agentrun.contract.run import MUTABLE_SPEC_FIELDS, AgentRun, AgentRunSpec
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.facts import WaitLimits
from agentrun.decisions.namespace_policy import NamespacePolicy
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.run_outcome import spec_digest
from agentrun.engine.services import EngineServices
from agentrun.engine.tool_catalogue import PinnedTool

_log = structlog.get_logger("agentrun.engine")


def take_spec(run: RunMemory, seen: AgentRun, admitted: AgentRunSpec, policy: NamespacePolicy) -> None:
    """Have the run be as it counts: everything as admitted but the fields that may change, as far as they may.

    Notes whether anything else was changed.
    """
    beyond = _find_fields_beyond(seen.spec, admitted, policy)
    run.spec_edited = run.status.spec_digest not in ("", spec_digest(seen.spec)) or bool(beyond)
    changes = {name: getattr(seen.spec, name) for name in MUTABLE_SPEC_FIELDS if name not in beyond}
    run.run = seen.model_copy(update={"spec": admitted.model_copy(update=changes)})


def _find_fields_beyond(seen: AgentRunSpec, admitted: AgentRunSpec, policy: NamespacePolicy) -> frozenset[str]:
    """Return which fields were changed since the admission to what the namespace may not ask for."""
    beyond = set()
    if seen.priority != admitted.priority and not policy.allows_priority(seen.priority):
        beyond.add("priority")
    if seen.budget != admitted.budget and not policy.allows_budget(seen.budget):
        beyond.add("budget")
    return frozenset(beyond)


async def put_pins(services: EngineServices, run: RunMemory) -> None:
    """Keep what the run was admitted with; repeating it changes nothing."""
    run.admitted_spec = run.run.spec
    pins: JsonObject = {
        "spec": run.run.spec.to_wire(),
        "tools": {name: {"ref": pin.ref.to_wire(), "spec": pin.spec.to_wire()} for name, pin in run.tools.items()},
    }
    await services.ledger.put_pins(run.namespace, run.uid, pins)


async def restore_pins(services: EngineServices, run: RunMemory) -> bool:
    """Give the run in memory what it was admitted with; False where the ledger has lost it."""
    pins = await services.ledger.fetch_pins(run.namespace, run.uid)
    if pins is None:
        return False
    try:
        admitted = AgentRunSpec.from_wire(pins["spec"])
        tools = pins["tools"]
        found = {
            name: PinnedTool(ToolRef.from_wire(pin["ref"]), AgentToolSpec.from_wire(pin["spec"]))
            for name, pin in (tools.items() if isinstance(tools, dict) else ())
            if isinstance(pin, dict)
        }
    except (ValidationError, KeyError) as error:
        # Written by a version whose models were others: what stands in the cluster has to do.
        _log.warning("pins_unreadable", run=run.name, namespace=run.namespace, cause=str(error))
        return False
    run.tools.update(found)
    run.admitted_spec = admitted
    take_spec(run, run.run, admitted, services.settings.policies.find(run.namespace))
    run.waits = WaitLimits.of(admitted.waits)
    return True
