"""Building work orders from what is in memory."""

from __future__ import annotations

from datetime import datetime, timedelta

from agentrun.contract.defaults import CLAIM_WITHIN, LOOKUP_POLL
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.execution import find_ledger_pool
from agentrun.contract.node import CallStatus
from agentrun.contract.orders import Amount, LookupOrder, Order, OrderKind
from agentrun.contract.run import Budget
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.deadlines import attempt_time_left, attempt_timeout
from agentrun.decisions.idempotency_keys import build_record_ref
from agentrun.decisions.references import parse_template, resolve_call_template
from agentrun.decisions.retry_policy import find_retry_policy
from agentrun.engine.gather import find_deadline
from agentrun.engine.run_memory import NodeMemory, RunMemory

_FOR_EVER_MS = 10 * 365 * 24 * 3600 * 1000


def build_order(
    run: RunMemory, node: NodeMemory, call: CallStatus, kind: OrderKind, epoch: int, now: datetime
) -> Order:
    """Return the next order for a node: its seq is one above the last; an Execute order is for its next attempt."""
    status, tool = node.status, run.definition(node)
    if tool is None:
        raise ValueError(f"node {node.path} has no tool definition")
    deadline = find_deadline(run, now)
    remaining = _milliseconds(deadline - now) if deadline else _FOR_EVER_MS
    policy = find_retry_policy(node.spec.node, tool, status.priority)
    recovers = kind is OrderKind.RECOVER
    active = timedelta() if recovers else status.active or timedelta()
    timeout = attempt_timeout(node.spec.node.timeout, tool)
    left = run.waits.recovery if recovers else attempt_time_left(timeout, policy.active_limit, active, now, deadline)
    return Order(
        kind=kind,
        namespace=run.namespace,
        run_uid=run.uid,
        run_name=run.name,
        node_uid=node.uid,
        node_path=node.path,
        session=run.run.spec.session or "",
        attempt=status.attempt if recovers and status.attempt else status.attempt + (0 if recovers else 1),
        seq=status.seq + 1,
        epoch=epoch,
        request_id=call.request_id,
        tool=call.tool.name,
        tool_digest=call.tool.digest,
        pool=find_ledger_pool(tool.execution),
        priority=status.priority,
        side_effect=tool.side_effect,
        params=call.params,
        params_digest=call.params_digest,
        record=build_record_ref(tool, call.scope, call.key, own_key=bool(status.own_key)),
        hold=Amount(micros=call.hold_micros) if not recovers else Amount(),
        cost=Amount(micros=call.hold_micros),
        timeout_ms=max(1, _milliseconds(left)),
        claim_within_ms=_milliseconds(run.waits.recovery if recovers else CLAIM_WITHIN),
        run_remaining_ms=max(1, remaining) if not recovers else _FOR_EVER_MS,
        rate_per_second=tool.limits.rate_per_second if tool.limits and not recovers else None,
        lookup=_lookup(run, tool, call) if recovers else None,
    )


def budget_amount(budget: Budget | None) -> Amount | None:
    """Return a budget as the ledger counts it: -1 is unlimited; None where nothing is limited."""
    if budget is None or (budget.limit is None and budget.tokens is None and budget.model_calls is None):
        return None
    return Amount(
        micros=-1 if budget.limit is None else budget.limit,
        tokens=-1 if budget.tokens is None else budget.tokens,
        model_calls=-1 if budget.model_calls is None else budget.model_calls,
    )


def _lookup(run: RunMemory, tool: AgentToolSpec, call: CallStatus) -> LookupOrder | None:
    if tool.recovery is None:
        return None
    asked = tool.recovery.lookup
    pinned = run.tools.get(asked.tool)
    if pinned is None:
        return None
    params = resolve_call_template(parse_template(asked.params), call.params, call.key)
    resolved: JsonObject = params if isinstance(params, dict) else {}
    poll = tool.recovery.poll_interval or LOOKUP_POLL
    return LookupOrder(tool=asked.tool, tool_digest=pinned.ref.digest, params=resolved, poll_ms=_milliseconds(poll))


def _milliseconds(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))
