"""What an API server would say to an object: the committed definitions, asked for their schemas and CEL rules.

Schemas are judged by jsonschema-rs, rules by a CEL library; both stand in for the API server, which is not needed for
it. As on the server, a rule about ``oldSelf`` is asked only where an old value stands.
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
    plain, plain_old = (_with_defaults(schema, plain_json(deepcopy(part))) for part in (value, old))
    problems = [error.message for error in _validator(schema).iter_errors(plain)]
    # The server asks the rules only about objects of the right shape.
    return problems or list(_broken_rules(schema, plain, plain_old))


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


def _broken_rules(schema: Schema, value: Any, old: Any) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        if _compiled(rule["rule"]).execute({"self": value, "oldSelf": old}) is not True:
            yield rule["message"]
    if isinstance(value, dict):
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if isinstance(inner, dict):
                yield from _broken_rules(inner, item, old.get(name) if isinstance(old, dict) else None)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            yield from _broken_rules(schema["items"], item, None)


@cache
def _compiled(rule: str) -> Any:
    return cel.compile(rule)
