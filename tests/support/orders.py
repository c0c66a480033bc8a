"""Builders of what goes to a ledger."""

from __future__ import annotations

from typing import Any

from agentrun.contract.exact_json import JsonValue, json_digest
from agentrun.contract.failures import Effect, Failure, FailureClass
from agentrun.contract.orders import Amount, AttemptOutcome, Order, RecordRef
from agentrun.contract.run import Priority
from agentrun.contract.tool import IdempotencyScope, SideEffect
from agentrun.ledger.port import RunRegistration, WorkerIdentity

NAMESPACE = "shop"


def build_registration(uid: str = "run-1", name: str = "", **more: Any) -> RunRegistration:
    """Return a run's registration."""
    fields: dict[str, Any] = {
        "namespace": NAMESPACE,
        "name": name or uid,
        "uid": uid,
        "spec_digest": "sha256:spec",
        "session": "",
        "holder": f"{uid}/token",
        "budget": None,
    }
    return RunRegistration(**fields | more)


def build_order(node: str = "node-1", seq: int = 1, *, params: Any = None, key: str = "key-1", **more: Any) -> Order:
    """Return an order for a node of ``run-1``."""
    own = {"order": 7} if params is None else params
    record: dict[str, Any] = {"key": key, "scope": IdempotencyScope.SESSION, "window_ms": 1000_000}
    record |= more.pop("record", {})
    fields: dict[str, Any] = {
        "namespace": NAMESPACE,
        "run_uid": "run-1",
        "run_name": "run-1",
        "node_uid": node,
        "node_path": node,
        "attempt": seq,
        "seq": seq,
        "epoch": 1,
        "request_id": f"act-{node}-{seq}",
        "tool": "act",
        "tool_digest": "sha256:tool",
        "pool": "shared",
        "priority": Priority.P2,
        "side_effect": SideEffect.ONCE,
        "params": own,
        "params_digest": json_digest(own),
        "record": RecordRef(**record),
        "timeout_ms": 20_000,
        "claim_within_ms": 60_000,
        "run_remaining_ms": 1000_000,
    }
    return Order(**fields | more)


def build_worker(name: str = "w", incarnation: str = "1", slots: int = 4) -> WorkerIdentity:
    """Return a worker of the pool ``shared``."""
    return WorkerIdentity(NAMESPACE, "shared", name, incarnation, slots)


def done(result: JsonValue = None, micros: int = 0) -> AttemptOutcome:
    """Return a success."""
    return AttemptOutcome(effect=Effect.EXECUTED, result=result, usage=Amount(micros=micros))


def failed(effect: Effect = Effect.NOT_EXECUTED, micros: int = 0) -> AttemptOutcome:
    """Return a failure."""
    failure = Failure(effect=effect, failure_class=FailureClass.RETRYABLE, reason="ToolFailed")
    return AttemptOutcome(effect=effect, failure=failure, usage=Amount(micros=micros))
