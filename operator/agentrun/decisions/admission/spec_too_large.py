"""The run, one of its nodes, or a node's params are larger than what is kept in one object."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.defaults import NODE_MAX_BYTES, PARAMS_MAX_BYTES, RUN_SPEC_MAX_BYTES
from agentrun.contract.exact_json import canonical_json
from agentrun.contract.failures import Reason
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation


def spec_too_large(view: SpecView) -> Iterator[Violation]:
    """Find what exceeds its limit, measured as canonical JSON: the run's spec, each node, each node's params."""
    whole = _size_of(view.spec.to_wire_set_only())
    if whole > RUN_SPEC_MAX_BYTES:
        yield _violation("spec", whole, RUN_SPEC_MAX_BYTES)
    for place in view.places:
        params = _size_of(place.node.params)
        node = _size_of(place.node.to_wire_set_only())
        if params > PARAMS_MAX_BYTES:
            yield _violation(f"{place.field}.params", params, PARAMS_MAX_BYTES)
        elif node > NODE_MAX_BYTES:
            yield _violation(place.field, node, NODE_MAX_BYTES)


def _size_of(value: object) -> int:
    return len(canonical_json(value).encode())  # type: ignore[arg-type]  # a model's dump is JSON


def _violation(field: str, size: int, limit: int) -> Violation:
    message = f"has {size} bytes, at most {limit} are allowed"
    remedy = "pass large values by reference (an id, a URL) instead of copying them in"
    return Violation(field, f"{size} bytes", message, remedy, Reason.INVALID_SPEC)
