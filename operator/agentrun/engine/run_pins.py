"""What a run was admitted with: its spec and its tools' definitions, kept in the ledger for the run's whole life.

A server that evaluates CEL refuses to change them in the cluster; older ones, and renamed keys in free objects, let
changes through. Those are shown and change nothing: what counts is what was admitted, after a restart as well.
"""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.node import ToolRef
from agentrun.contract.run import MUTABLE_SPEC_FIELDS, AgentRun, AgentRunSpec
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.facts import WaitLimits
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.services import EngineServices
from agentrun.engine.tool_catalogue import PinnedTool

_log = structlog.get_logger("agentrun.engine")


def with_admitted_spec(seen: AgentRun, admitted: AgentRunSpec) -> AgentRun:
    """Return a run as it counts: everything as admitted but the fields that may change."""
    changes = {name: getattr(seen.spec, name) for name in MUTABLE_SPEC_FIELDS}
    return seen.model_copy(update={"spec": admitted.model_copy(update=changes)})


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
    run.run = with_admitted_spec(run.run, admitted)
    run.waits = WaitLimits.of(admitted.waits)
    return True
