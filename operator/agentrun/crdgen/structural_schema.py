"""From pydantic models to structural schemas, as Kubernetes wants them in CustomResourceDefinitions.

No references, no unions with null, no ``additionalProperties: false`` (the API server prunes instead), no defaults
below lists (GitOps tools would see drift), descriptions from the docstrings for ``kubectl explain``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

Schema: TypeAlias = dict[str, Any]

_INT64 = 2**63 - 1
_KEYED_LISTS = {"RunNode": "name", "InstanceNode": "name", "StatusCondition": "type"}
"""Lists of these models are maps by that field, so that server-side apply merges them by it."""
_DROPPED = frozenset(
    {
        "title",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "default",
        "anyOf",
        "const",
        "$ref",
        "examples",
    }
)


def build_structural_schema(model: type[BaseModel], rules: Mapping[str, list[dict[str, str]]]) -> Schema:
    """Return the schema of a whole resource. ``rules`` are CEL rules by model name, put where the model stands."""
    found = model.model_json_schema(by_alias=True, mode="validation")
    builder = _Builder(found.get("$defs", {}), rules)
    root = builder.build(
        {key: value for key, value in found.items() if key != "$defs"}, model.__name__, below_list=False
    )
    root["properties"]["apiVersion"] = {"type": "string"}
    root["properties"]["kind"] = {"type": "string"}
    root["properties"]["metadata"] = {"type": "object"}
    root["required"] = ["spec"] if "spec" in found.get("required", []) else []
    if not root["required"]:
        del root["required"]
    return root


class _Builder:
    def __init__(self, definitions: Mapping[str, Schema], rules: Mapping[str, list[dict[str, str]]]) -> None:
        self._definitions = definitions
        self._rules = rules

    def build(self, source: Schema, name: str, *, below_list: bool) -> Schema:
        """Return the structural form of one schema; ``name`` is its model's, where it is one."""
        if "$ref" in source:
            name = source["$ref"].rsplit("/", 1)[-1]
            # What stands beside the reference is about this very field.
            source = {**self._definitions[name], **{key: value for key, value in source.items() if key != "$ref"}}
            return self.build(source, name, below_list=below_list)
        if "anyOf" in source:
            inner = [option for option in source["anyOf"] if option.get("type") != "null"]
            if len(inner) != 1:
                raise ValueError(f"a union of several types is no structural schema: {source}")
            beside = {key: value for key, value in source.items() if key in ("description",)}
            return self.build({**inner[0], **beside}, name, below_list=below_list)
        built: Schema = {key: value for key, value in source.items() if key not in _DROPPED and key[0] != "$"}
        if "const" in source:
            built |= {"type": "string", "enum": [source["const"]]}
        if "description" in built:
            built["description"] = _plain(built["description"])
        if built.get("type") == "integer":
            built["format"] = "int64"
            if built.get("maximum", 0) > _INT64:
                del built["maximum"]
        if "default" in source and source["default"] not in (None, [], {}) and not below_list:
            built["default"] = source["default"]
        if "items" in source:
            self._build_list(built, source, name)
        if "properties" in source:
            self._build_object(built, source, name, below_list=below_list)
        elif "patternProperties" in source:
            # Keys are bounded by pattern in the model alone: structural schemas know no patterns of keys.
            (inner,) = source["patternProperties"].values()
            built["additionalProperties"] = self.build(inner, name, below_list=True)
        elif isinstance(source.get("additionalProperties"), dict):
            built["additionalProperties"] = self.build(source["additionalProperties"], name, below_list=True)
        return built

    def _build_list(self, built: Schema, source: Schema, name: str) -> None:
        item = source["items"].get("$ref", "").rsplit("/", 1)[-1]
        built["items"] = self.build(source["items"], name, below_list=True)
        key = _KEYED_LISTS.get(item)
        built["x-kubernetes-list-type"] = "map" if key else "atomic"
        if key:
            built["x-kubernetes-list-map-keys"] = [key]

    def _build_object(self, built: Schema, source: Schema, name: str, *, below_list: bool) -> None:
        built["properties"] = {
            field: self.build(inner, name, below_list=below_list) for field, inner in source["properties"].items()
        }
        # A field with a default is never missing; one in a list is not defaulted by the server.
        required = [field for field in source.get("required", []) if "default" not in source["properties"][field]]
        built.pop("required", None)
        if required:
            built["required"] = required
        if name in self._rules:
            built["x-kubernetes-validations"] = self._rules[name]


def _plain(text: str) -> str:
    """Return a docstring as one paragraph of plain text."""
    text = re.sub(r":class:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return " ".join(text.replace("``", "").split())
