"""Reads Prometheus' text format and tells what was counted between two looks. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]
Counts = dict[Labels, float]
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def read_counts(text: str, name: str) -> Counts:
    """Return the values of one metric by their labels, sorted by label name."""
    counts: Counts = {}
    for line in text.splitlines():
        if not line.startswith(name):
            continue
        found = _LINE.match(line)
        if found is not None and found["name"] == name:
            labels = tuple(sorted(_LABEL.findall(found["labels"] or "")))
            counts[labels] = counts.get(labels, 0.0) + float(found["value"])
    return counts


def difference(before: Mapping[Labels, float], after: Mapping[Labels, float]) -> Counts:
    """Return what was added meanwhile; what did not grow is left out. A server started anew counts from 0."""
    grown = {}
    for labels, value in after.items():
        earlier = before.get(labels, 0.0)
        grown[labels] = value - earlier if value >= earlier else value
    return {labels: value for labels, value in grown.items() if value > 0}


def writes_by_kind(requests: Mapping[Labels, float], group: str = "") -> dict[str, int]:
    """Return how many writes of ``apiserver_request_total`` there were by ``VERB resource[/subresource]``.

    ``group``: of this API group alone. Refused requests count as well: they were sent.
    """
    found: Counter[str] = Counter()
    for labels, value in requests.items():
        said = dict(labels)
        if said.get("verb") in WRITES and (not group or said.get("group") == group):
            found[write_kind(said["verb"], said.get("resource", ""), said.get("subresource", ""))] += round(value)
    return dict(sorted(found.items()))


def write_kind(verb: str, resource: str, subresource: str = "") -> str:
    """Return the name under which a write is counted."""
    return f"{verb} {resource}/{subresource}" if subresource else f"{verb} {resource}"
