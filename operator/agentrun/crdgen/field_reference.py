"""The manifest reference: every field of every kind with type, bound, default and meaning, from the models.

Unlike the CustomResourceDefinitions it shows every default that holds when an object is read, inside lists as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentrun.contract.durations import DURATION_PATTERN
from agentrun.contract.model_base import NODE_NAME_PATTERN, OBJECT_NAME_PATTERN, PATH_PATTERN
from agentrun.contract.money import MONEY_PATTERN
from agentrun.crdgen.resources import RESOURCES, Resource, build_schema
from agentrun.crdgen.structural_schema import Defaults, Schema

_HEAD = """# Manifest reference

Generated from the models by `make generate`; `kubectl explain` shows the same texts. A field that is required where it
stands is marked with `*`; a default in words stands in the meaning. How values are written:

| type | written as |
|---|---|
| duration | like Go: `90s`, `1h30m`, `500ms`; at most ten years |
| money | a decimal string, at most 6 decimals: `"12.50"` |
| time | RFC 3339 in UTC: `2026-01-31T12:00:00Z` |
| node name | lower-case letters, digits and `-`, a letter first, at most 63 |
| object name | as Kubernetes names objects: at most 253 |
| path | `nodes.extract.result.entities[0].score` |
| free object | an object whose fields are your own; integers within int64, decimals exactly as written |
| any | any JSON value, with the same exactness |
"""
_NAMED_PATTERNS = {
    DURATION_PATTERN: "duration",
    MONEY_PATTERN: "money",
    NODE_NAME_PATTERN: "node name",
    OBJECT_NAME_PATTERN: "object name",
    PATH_PATTERN: "path",
}
_SHOWN_ELSEWHERE = {
    ("AgentRun", "nodes[].fanOut.nodes"): "has the fields of `nodes[]`, without `fanOut`",
    ("AgentNode", "node"): "has the fields of an AgentRun's `nodes[]`",
}
"""What is written out at another place of the page."""


def build_reference() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(_section(resource) for resource in RESOURCES)


def _section(resource: Resource) -> str:
    schema = build_schema(resource, Defaults.READER)
    text = f"\n## {resource.kind} (`{resource.short}`)\n\n{schema['description']}\n"
    for part in ("spec", "status"):
        field = schema["properties"][part]
        text += f"\n### {resource.kind} {part}\n\n{field['description']}\n\n"
        text += "| field | type | default | meaning |\n|---|---|---|---|\n" + "".join(_rows(resource.kind, field, ""))
        text += "".join(f"\n- {rule['message']}" for rule in field.get("x-kubernetes-validations", ()))
    return text


def _rows(kind: str, schema: Schema, prefix: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        mark = "*" if name in schema.get("required", ()) else ""
        elsewhere = _SHOWN_ELSEWHERE.get((kind, path))
        meaning = " ".join(text for text in (field.get("description", ""), _rules_text(field), elsewhere) if text)
        yield f"| `{path}`{mark} | {_escape(_type_of(field))} | {_default_of(field)} | {_escape(meaning)} |\n"
        if elsewhere:
            continue
        if "items" in field:
            yield from _rows(kind, field["items"], f"{path}[].")
        elif "additionalProperties" in field:
            yield from _rows(kind, field["additionalProperties"], f"{path}.*.")
        else:
            yield from _rows(kind, field, f"{path}.")


def _rules_text(field: Schema) -> str:
    """Return what the rules of a field, or of the items of a list, demand."""
    rules = (*field.get("x-kubernetes-validations", ()), *field.get("items", {}).get("x-kubernetes-validations", ()))
    return " ".join(f"{_sentence(rule['message'])}" for rule in rules)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _default_of(field: Schema) -> str:
    if "default" not in field:
        return ""
    value = field["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type_of(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type", "any")
    if kind == "array":
        return f"list (at most {field['maxItems']}) of {_type_of(field['items'])}"
    if kind == "string":
        return _text_type(field)
    if kind == "integer":
        low, high = field.get("minimum"), field.get("maximum")
        return f"integer {low} to {high}" if high is not None else "integer"
    if "additionalProperties" in field:
        return f"map (at most {field['maxProperties']}) to {_type_of(field['additionalProperties'])}"
    return "free object" if field.get("x-kubernetes-preserve-unknown-fields") and kind == "object" else kind


def _text_type(field: dict[str, Any]) -> str:
    if field.get("format") == "date-time":
        return "time"
    named = _NAMED_PATTERNS.get(field.get("pattern", ""))
    if named:
        return named
    pattern = f" like `{field['pattern']}`" if "pattern" in field else ""
    return f"text, at most {field['maxLength']}{pattern}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
