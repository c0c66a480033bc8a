"""The manifest reference: every field of every kind, from the generated schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentrun.crdgen.resources import RESOURCES, Resource, build_definition

_HEAD = """# Manifest reference

Generated from the models by `make generate`; `kubectl explain` shows the same texts. Fields that a kind requires are
marked with `*`. Durations are Go-style (`90s`, `1h30m`), money is a decimal string (`"12.50"`).
"""


def build_reference() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(_section(resource) for resource in RESOURCES)


def _section(resource: Resource) -> str:
    schema = build_definition(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rows = [f"\n## {resource.kind} (`{resource.short}`)\n\n{schema['description']}\n"]
    for part in ("spec", "status"):
        if part in schema["properties"]:
            rows.append(f"\n### {resource.kind} {part}\n\n| field | type | default | meaning |\n|---|---|---|---|\n")
            rows.extend(_rows(schema["properties"][part], "", 0))
    return "".join(rows)


def _rows(schema: dict[str, Any], prefix: str, depth: int) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        mark = "*" if name in schema.get("required", []) else ""
        default = f"`{field['default']}`" if field.get("default", "") != "" else ""
        meaning = _escape(field.get("description", ""))
        yield f"| `{prefix}{name}`{mark} | {_escape(_type_of(field))} | {default} | {meaning} |\n"
        inner, below = field, f"{prefix}{name}."
        if "items" in field:
            inner, below = field["items"], f"{prefix}{name}[]."
        elif isinstance(field.get("additionalProperties"), dict):
            inner, below = field["additionalProperties"], f"{prefix}{name}.*."
        yield from _rows(inner, below, depth + 1)


def _type_of(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type", "any value")
    if kind == "array":
        return f"list of {_type_of(field['items'])}, at most {field.get('maxItems', '?')}"
    if kind == "string":
        bound = f", at most {field['maxLength']}" if "maxLength" in field else ""
        return f"{field.get('format', 'text')}{bound}"
    if kind == "integer":
        low, high = field.get("minimum"), field.get("maximum")
        bounds = f" {low if low is not None else ''}…{high if high is not None else ''}" if low is not None else ""
        return f"integer{bounds}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map to {_type_of(field['additionalProperties'])}"
    return str(kind)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
