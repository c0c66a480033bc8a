"""From pydantic models to structural schemas, as Kubernetes wants them in CustomResourceDefinitions.

No references, no unions with null, no ``additionalProperties: false`` (the API server prunes instead), descriptions
from the docstrings for ``kubectl explain``. Defaults stand in the spec and outside lists only: GitOps tools compare
lists as a whole and would see drift, and a status is written by the operator alone. See
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from agentrun.crdgen.enum_texts import find_enum, member_texts

Schema: TypeAlias = dict[str, Any]
CelRules: TypeAlias = Mapping[str, Sequence[Mapping[str, str]]]

_INT64 = 2**63 - 1
_KEYED_LISTS = {
    "RunNode": "name",
    "InstanceNode": "name",
    "StatusCondition": "type",
    "EnvironmentVariable": "name",
    "Volume": "name",
}
"""Lists of these models are maps by that field, so that server-side apply merges them by it."""
_KEPT = (
    "description", "type", "format", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "minItems", "maxItems", "minProperties", "maxProperties", "x-kubernetes-preserve-unknown-fields",
)  # fmt: skip
"""In the order in which they are written."""


class Defaults(StrEnum):
    """Which defaults a schema shows."""

    SERVER = "Server"
    """Those that the API server may write into objects."""
    READER = "Reader"
    """All that hold when an object is read: for the reference, never for the API server."""


class _WireDefaults(GenerateJsonSchema):
    """Writes defaults as they stand in manifests; pydantic would show the value inside (``0`` of a text)."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        serialization: Any = schema["schema"].get("serialization")
        if "default" in found and serialization and serialization["type"] == "function-plain":
            found["default"] = serialization["function"](schema["default"])
        return found


def build_structural_schema(model: type[BaseModel], rules: CelRules, defaults: Defaults = Defaults.SERVER) -> Schema:
    """Return the schema of a whole resource. ``rules`` are CEL rules by model name, put where the model stands.

    Raises :class:`ValueError` for a field that no structural schema can say, such as a union of types.
    """
    found = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_WireDefaults)
    builder = _Builder(found.get("$defs", {}), rules, defaults)
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    parts = {
        part: builder.build(found["properties"][part], part, shows_defaults=part == "spec")
        for part in ("spec", "status")
    }
    return {
        "description": _plain(found["description"]),
        "type": "object",
        **({"required": ["spec"]} if "spec" in found["required"] else {}),
        "properties": {**head, **parts},
        **builder.rules_of(model.__name__),
    }


class _Builder:
    def __init__(self, definitions: Mapping[str, Schema], rules: CelRules, defaults: Defaults) -> None:
        self._definitions = definitions
        self._rules = rules
        self._everywhere = defaults is Defaults.READER

    def rules_of(self, name: str) -> Schema:
        """Return the keyword with a model's rules, if it has any."""
        return {"x-kubernetes-validations": [dict(rule) for rule in self._rules[name]]} if name in self._rules else {}

    def build(self, source: Schema, name: str, *, shows_defaults: bool) -> Schema:
        """Return the structural form of one schema; ``name`` is its model's, where it is one."""
        if "$ref" in source:
            name = source["$ref"].rsplit("/", 1)[-1]
            # What stands beside the reference is about this very field.
            beside = {key: value for key, value in source.items() if key != "$ref"}
            return self.build({**self._definitions[name], **beside}, name, shows_defaults=shows_defaults)
        if "anyOf" in source:
            options = [option for option in source["anyOf"] if option.get("type") != "null"]
            if len(options) != 1:
                raise ValueError(f"a union of several types is no structural schema: {source}")
            beside = {key: source[key] for key in ("description", "default") if key in source}
            return self.build({**options[0], **beside}, name, shows_defaults=shows_defaults)
        built: Schema = {key: source[key] for key in _KEPT if key in source}
        if "description" in built:
            built["description"] = _plain(built["description"])
        if "const" in source:
            built |= {"type": "string", "enum": [source["const"]]}
        if "enum" in built:
            _complete_enum(built, name)
        if built.get("type") == "integer":
            built["format"] = "int64"
            if built.get("maximum", 0) > _INT64:
                del built["maximum"]
        if _is_worth_showing(source) and (shows_defaults or self._everywhere):
            built["default"] = source["default"]
        if "items" in source:
            built |= self._list_of(source["items"], name)
        if "properties" in source:
            built |= self._fields_of(source, name, shows_defaults=shows_defaults)
        elif inner := _value_of_map(source):
            built["additionalProperties"] = self.build(inner, name, shows_defaults=False)
        return built

    def _list_of(self, item: Schema, name: str) -> Schema:
        key = _KEYED_LISTS.get(item.get("$ref", "").rsplit("/", 1)[-1])
        keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
        return {
            "items": self.build(item, name, shows_defaults=False),
            **(keyed if key else {"x-kubernetes-list-type": "atomic"}),
        }

    def _fields_of(self, source: Schema, name: str, *, shows_defaults: bool) -> Schema:
        fields = {
            field: self.build(inner, name, shows_defaults=shows_defaults)
            for field, inner in source["properties"].items()
        }
        required = [field for field in source.get("required", []) if "default" not in source["properties"][field]]
        return {**({"required": required} if required else {}), "properties": fields, **self.rules_of(name)}


def _is_worth_showing(source: Schema) -> bool:
    # An empty text, list or object by default is the same as a field that is not there.
    return source.get("default") not in (None, "", [], {}) and not isinstance(source.get("default"), dict)


def _value_of_map(source: Schema) -> Schema | None:
    # Structural schemas know no patterns of keys; the model alone bounds them.
    if "patternProperties" in source:
        (inner,) = source["patternProperties"].values()
        return dict(inner)
    found = source.get("additionalProperties")
    return found if isinstance(found, dict) else None


def _complete_enum(built: Schema, name: str) -> None:
    """Add what the values mean, and the bound from which the API server estimates the cost of CEL rules."""
    built["maxLength"] = max(map(len, built["enum"]))
    enum = find_enum(name)
    texts = member_texts(enum) if enum else {}
    meanings = "; ".join(f"{value}: {_plain(texts[value]).rstrip('.')}" for value in built["enum"] if value in texts)
    if meanings:
        built["description"] = f"{built['description']} {meanings}."


def _plain(text: str) -> str:
    """Return a docstring as one paragraph of plain text."""
    text = re.sub(r":(?:class|data|func):`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return " ".join(text.replace("``", "").split())
