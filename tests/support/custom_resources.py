"""What an API server would say to an object: the committed definitions, asked for their schemas and CEL rules.

Schemas are judged by jsonschema-rs, rules by a CEL library; both stand in for the API server, which is not needed for
it. As on the server, a rule about ``oldSelf`` is asked only where an old value stands in the same place (in a keyed list:
under the same key; in other lists nowhere), and two values are compared as the server compares them. See
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#transition-rules
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import cel
import jsonschema_rs
from ruamel.yaml import YAML

from agentrun.contract.exact_json import plain_json

FOLDER = Path(__file__).parents[2] / "crds"
KINDS = ("AgentTool", "AgentRun", "AgentNode", "AgentApproval")
Schema = dict[str, Any]


@cache
def read_definition(kind: str) -> Schema:
    """Return the committed CustomResourceDefinition of a kind."""
    (path,) = FOLDER.glob(f"*_{kind.lower()}s.yaml")
    found: Schema = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    return found


def read_schema(kind: str) -> Schema:
    """Return the schema of a kind."""
    (version,) = read_definition(kind)["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def schema_at(kind: str, path: str) -> Schema:
    """Return a part of a kind's schema, by a path such as ``spec.nodes.items.fanOut``."""
    place = read_schema(kind)
    for part in path.split("."):
        place = place["items"] if part == "items" and "items" in place else place["properties"][part]
    return place


def walk_schema(schema: Schema, path: str = "", *, below_list: bool = False) -> Iterator[tuple[str, Schema, bool]]:
    """Yield every schema with its path, and whether it stands below a list or a map."""
    yield path, schema, below_list
    for name, inner in schema.get("properties", {}).items():
        yield from walk_schema(inner, f"{path}.{name}", below_list=below_list)
    if "items" in schema:
        yield from walk_schema(schema["items"], f"{path}[]", below_list=True)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk_schema(schema["additionalProperties"], f"{path}.*", below_list=True)


def find_problems(schema: Schema, value: Any, old: Any = None) -> list[str]:
    """Return why a value would be refused, as a new one or in the place of an old one; empty when it is taken."""
    return [message for _, message in find_refusals(schema, value, old)]


def find_refusals(schema: Schema, value: Any, old: Any = None) -> list[tuple[str, str]]:
    """Return the same with the place of each: the rule's, as :func:`walk_schema` names it, or the value's own."""
    plain, plain_old = (_with_defaults(schema, plain_json(deepcopy(part))) for part in (value, old))
    misfits = [
        (".".join(map(str, error.instance_path)), error.message) for error in _validator(schema).iter_errors(plain)
    ]
    # The server asks the rules only about objects of the right shape.
    return misfits or list(_broken_rules(schema, plain, plain_old, ""))


_VALIDATORS: dict[int, jsonschema_rs.Draft202012Validator] = {}


def _validator(schema: Schema) -> jsonschema_rs.Draft202012Validator:
    # By identity: the schemas are parts of the cached definitions, which live as long as the process.
    if id(schema) not in _VALIDATORS:
        _VALIDATORS[id(schema)] = jsonschema_rs.Draft202012Validator(schema, ignore_unknown_formats=True)
    return _VALIDATORS[id(schema)]


def _with_defaults(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = inner["default"]
            if name in value:
                _with_defaults(inner, value[name])
    return value


def _broken_rules(schema: Schema, value: Any, old: Any, path: str) -> Iterator[tuple[str, str]]:
    compared = None if old is None else _as_compared(schema, value, old)
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        if _compiled(rule["rule"]).execute({"self": value, "oldSelf": compared}) is not True:
            yield path, rule["message"]
    if isinstance(value, dict):
        for name, item in value.items():
            inner, step = _field(schema, name)
            if inner is not None:
                yield from _broken_rules(inner, item, old.get(name) if isinstance(old, dict) else None, path + step)
    elif isinstance(value, list) and "items" in schema:
        olds = _by_key(schema, old) if isinstance(old, list) else {}
        for item in value:
            key = _key_of(schema, item)
            yield from _broken_rules(schema["items"], item, olds.get(key) if key else None, f"{path}[]")


def _field(schema: Schema, name: str) -> tuple[Schema | None, str]:
    if name in schema.get("properties", {}):
        return schema["properties"][name], f".{name}"
    every = schema.get("additionalProperties")
    return (every, ".*") if isinstance(every, dict) else (None, "")


def _key_of(schema: Schema, item: Any) -> tuple[Any, ...] | None:
    keys = schema.get("x-kubernetes-list-map-keys")
    return tuple(item.get(key) for key in keys) if keys and isinstance(item, dict) else None


def _by_key(schema: Schema, items: list[Any]) -> dict[tuple[Any, ...], Any]:
    return {key: item for item in items if (key := _key_of(schema, item)) is not None}


def _as_compared(schema: Schema, value: Any, old: Any) -> Any:
    """Return the old value, made the same as the new one wherever the server's comparison finds no difference.

    It does not see the order of a keyed list; and in an object of unknown fields it looks only at the fields that both
    have, and at their number (``unstructuredMapList.Equal`` and ``unstructuredMap.Equal`` in ``k8s.io/apiserver``).
    """
    if isinstance(value, dict) and isinstance(old, dict):
        if schema.get("x-kubernetes-preserve-unknown-fields") and schema.get("type") == "object":
            is_same = len(value) == len(old) and all(old[name] == value[name] for name in old.keys() & value.keys())
            return value if is_same else old
        return {
            name: _as_compared(inner, value[name], item)
            if name in value and (inner := _field(schema, name)[0]) is not None
            else item
            for name, item in old.items()
        }
    if isinstance(value, list) and isinstance(old, list) and "items" in schema:
        if "x-kubernetes-list-map-keys" in schema and _by_key(schema, old).keys() == _by_key(schema, value).keys():
            olds = _by_key(schema, old)
            old = [olds[key] for item in value if (key := _key_of(schema, item)) is not None]
        if len(value) == len(old):
            return [_as_compared(schema["items"], *pair) for pair in zip(value, old, strict=True)]
    return old


@cache
def _compiled(rule: str) -> Any:
    return cel.compile(rule)
