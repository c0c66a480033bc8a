"""How a run is named among all runs of all namespaces."""

from __future__ import annotations

from typing import TypeAlias

from agentrun.contract.names import RUN_UID_LABEL
from agentrun.contract.object_meta import ObjectMeta

RunKey: TypeAlias = tuple[str, str]
"""(namespace, run uid)."""


def run_of(child: ObjectMeta) -> RunKey:
    """Return the run that a node, an approval or a session's Lease belongs to; without its label the uid is empty."""
    return child.namespace, child.labels.get(RUN_UID_LABEL, "")
