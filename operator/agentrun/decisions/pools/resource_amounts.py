"""Amounts of processors, memory and disk as Kubernetes writes them: compared, and made to fit each other.

Asked when the wishes of a pool's tools are put together. What a container gets where nobody said anything is the
operator's settings' matter, handed in here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from agentrun.contract.execution import ResourceAmounts

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
}
RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""What is counted, by Kubernetes' names."""


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """What one container asks for and gets at most, by Kubernetes' names of resources."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


def read_quantity(text: str) -> Decimal:
    """Return the number that a quantity means: ``250m`` is 0.25. Raises :class:`ValueError`."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in _FACTORS:
        raise ValueError(f"{text!r} is no quantity: write it like 250m, 1.5 or 512Mi")
    return Decimal(found[1]) * _FACTORS[found[2]]


def find_largest(amounts: Iterable[ResourceAmounts | None]) -> dict[str, str]:
    """Return the largest amount of each resource that anybody gave."""
    largest: dict[str, str] = {}
    for given in amounts:
        if given is None:
            continue
        for name, text in zip(RESOURCES, (given.cpu, given.memory, given.ephemeral_storage), strict=True):
            if text is not None and (name not in largest or read_quantity(text) > read_quantity(largest[name])):
                largest[name] = text
    return largest


def fit_amounts(wished: ContainerAmounts, usual: ContainerAmounts) -> ContainerAmounts:
    """Return what a container gets: what was wished, else what is usual, with no request above its limit.

    An API server refuses a pod whose request is above its limit: of the two the one that was wished counts.
    """
    requests, limits = {**usual.requests, **wished.requests}, {**usual.limits, **wished.limits}
    for name in requests.keys() & limits.keys():
        if read_quantity(requests[name]) > read_quantity(limits[name]):
            if name in wished.requests:
                limits[name] = requests[name]
            else:
                requests[name] = limits[name]
    return ContainerAmounts(requests, limits)
