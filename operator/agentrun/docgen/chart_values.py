"""The values of the Helm charts, from their schemas: ``values.yaml`` with the defaults, and the table in the README.

A chart's ``values.schema.json`` is the one place where a value is described. Called by the generator of
documentation; renders no template and judges no value.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WIDTH = 118
_HEAD = "# Generated from values.schema.json by `make generate`; edit that. What each value means stands above it."
_INTRODUCTIONS = {
    "agentrun-operator": (
        "The AgentRun operator: runs agent work as custom resources, with exactly-once side effects, budgets and\n"
        "approvals. [Installing](../../docs/install.md) tells how to install, upgrade, roll back and uninstall it,\n"
        "[the checklist](../../docs/production-checklist.md) what to set in production.\n"
    ),
    "agentrun-crds": (
        "The operator's CustomResourceDefinitions as a chart of their own, for those who install them apart from it\n"
        "(`crds.enabled: false` there). See [installing](../../docs/install.md#the-definitions).\n"
    ),
}
_NOT_OURS = frozenset({"global"})


@dataclass(frozen=True, slots=True)
class ChartValue:
    """One value that can be set."""

    path: str
    """Names with dots between them."""
    default: Any
    text: str
    kinds: tuple[str, ...]


def build_chart_files(root: Path) -> dict[Path, str]:
    """Return each chart's ``values.yaml`` and ``README.md`` by path."""
    files: dict[Path, str] = {}
    for name, introduction in _INTRODUCTIONS.items():
        folder = root / "charts" / name
        schema = read_schema(folder)
        files[folder / "values.yaml"] = f"{_HEAD}\n{''.join(_yaml_lines(schema, 0))}"
        files[folder / "README.md"] = f"# {name}\n\n{introduction}\n## Values\n\n{_table(schema)}"
    return files


def read_schema(folder: Path) -> dict[str, Any]:
    """Return the schema of a chart's values."""
    found: dict[str, Any] = json.loads((folder / "values.schema.json").read_text(encoding="utf-8"))
    return found


def list_values(schema: dict[str, Any], path: str = "") -> Iterator[ChartValue]:
    """Yield every value of a schema, in its order. What has a default is a value, everything else holds values."""
    for name, inner in schema["properties"].items():
        if not path and name in _NOT_OURS:
            continue
        at = f"{path}.{name}" if path else name
        if "default" in inner:
            kinds = inner["type"] if isinstance(inner["type"], list) else [inner["type"]]
            yield ChartValue(at, inner["default"], inner["description"], tuple(kinds))
        else:
            yield from list_values(inner, at)


def _yaml_lines(schema: dict[str, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, inner in schema["properties"].items():
        if depth == 0 and name in _NOT_OURS:
            continue
        yield "\n" if depth == 0 else ""
        for line in textwrap.wrap(inner["description"], _WIDTH - len(indent), break_long_words=False):
            yield f"{indent}# {line}\n"
        if "default" in inner:
            # JSON is YAML; a text is quoted, so that no reader takes it for something else.
            yield f"{indent}{name}: {json.dumps(inner['default'], ensure_ascii=False)}\n"
        else:
            yield f"{indent}{name}:\n"
            yield from _yaml_lines(inner, depth + 1)


def _table(schema: dict[str, Any]) -> str:
    rows = "".join(
        f"| `{value.path}` | `{json.dumps(value.default, ensure_ascii=False)}` | {_cell(value.text)} |\n"
        for value in list_values(schema)
    )
    return f"| value | default | what it does |\n|---|---|---|\n{rows}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
