"""How a run is named among all runs of all namespaces."""

from __future__ import annotations

from typing import TypeAlias

RunKey: TypeAlias = tuple[str, str]
"""(namespace, run uid)."""
