"""From the contract's models to what the Lua files take and give, and back. The user's numbers stay what they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentrun.contract.exact_json import JsonObject, canonical_json, parse_json
from agentrun.contract.failures import Effect
from agentrun.contract.orders import Amount, AttemptOutcome, Order, Report
from agentrun.ledger.port import RecordStatus, RecordView

_MAX_AMOUNT = 10**15
"""Above it Lua's numbers, with which amounts are compared, would not be exact."""

_RECORD_STATUS = {
    Effect.NOT_EXECUTED: RecordStatus.FAILED,
    Effect.EXECUTED: RecordStatus.EXECUTED,
    Effect.UNKNOWN: RecordStatus.UNKNOWN,
}


def encode_argument(argument: Mapping[str, object]) -> str:
    """Return an operation's own arguments; every leaf is a text already."""
    return json.dumps(argument, ensure_ascii=False, separators=(",", ":"))


def encode_model(model: Order | AttemptOutcome) -> str:
    """Return an order or outcome as JSON text."""
    return canonical_json(model.to_wire())


def decode_order(text: str) -> Order:
    """Read an order. Raises :class:`ValueError` for anything else."""
    return Order.model_validate(parse_json(text))


def decode_report(text: str) -> Report:
    """Read a report. Raises :class:`ValueError` for anything else."""
    return Report.model_validate(parse_json(text))


def decode_outcome(text: str) -> AttemptOutcome:
    """Read an outcome. Raises :class:`ValueError` for anything else."""
    return AttemptOutcome.model_validate(parse_json(text))


def encode_amount(amount: Amount | None) -> dict[str, str]:
    """Return an amount as digits; None is unlimited. Raises :class:`ValueError` for one too large to compare."""
    if amount is None:
        return {"micros": "-1", "tokens": "-1", "calls": "-1"}
    for value in (amount.micros, amount.tokens, amount.model_calls):
        if not -1 <= value <= _MAX_AMOUNT:
            raise ValueError(f"amount {value} is not between 0 and {_MAX_AMOUNT}")
    return {"micros": str(amount.micros), "tokens": str(amount.tokens), "calls": str(amount.model_calls)}


def encode_usage(amount: Amount) -> dict[str, str]:
    """Return what was used, clamped to what can be booked: a report never lowers a counter."""
    clamped = [min(max(value, 0), _MAX_AMOUNT) for value in (amount.micros, amount.tokens, amount.model_calls)]
    return {"micros": str(clamped[0]), "tokens": str(clamped[1]), "calls": str(clamped[2])}


def decode_amount(values: Sequence[str]) -> Amount:
    """Read micros, tokens and calls."""
    return Amount(micros=int(values[0]), tokens=int(values[1]), model_calls=int(values[2]))


def record_status(outcome: AttemptOutcome) -> RecordStatus:
    """Return what an outcome makes of its record."""
    return RecordStatus.SUCCESS if outcome.succeeded else _RECORD_STATUS[outcome.effect]


def decode_record(flat: Sequence[str]) -> RecordView | None:
    """Read a record from its flat list of fields and values; an empty one is None."""
    fields = dict(_pairs(flat))
    if not fields.get("status"):
        return None
    outcome = fields.get("outcome")
    return RecordView(
        key=fields["key"],
        status=RecordStatus(fields["status"]),
        version=int(fields.get("version", "0")),
        owner=fields.get("owner", ""),
        owner_run_uid=fields.get("owner_run", ""),
        owner_node_uid=fields.get("owner_node", ""),
        attempt=int(fields.get("attempt", "0")),
        params_digest=fields.get("digest", ""),
        claim_live=fields.get("live") == "1",
        in_inbox=fields.get("inbox") == "1",
        first_at_ms=int(fields.get("first", "0")),
        last_at_ms=int(fields.get("last", "0")),
        outcome=decode_outcome(outcome) if outcome else None,
    )


def decode_record_text(text: str) -> RecordView | None:
    """Read a record from the JSON text of its flat list."""
    return decode_record(json.loads(text)) if text else None


def encode_object(value: JsonObject) -> str:
    """Return an object of the product's own as JSON text."""
    return canonical_json(value)


def decode_object(text: str) -> JsonObject:
    """Read an object."""
    value: Any = parse_json(text)
    if not isinstance(value, dict):
        raise TypeError("a JSON object was stored here")
    return value


def _pairs(flat: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(flat[::2], flat[1::2], strict=True)
