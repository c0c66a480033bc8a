"""The committed definitions are ones that every supported API server takes, and that GitOps tools see no drift in."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from support.custom_resources import FOLDER, KINDS, Schema, read_definition, read_schema, schema_at, walk_schema

KEYWORDS = {
    "additionalProperties", "default", "description", "enum", "format", "items", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "pattern", "properties",
    "required", "type", "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}  # fmt: skip
TYPES = {"object", "array", "string", "integer", "boolean"}
INT64 = 2**63 - 1


def places(kind: str) -> list[tuple[str, Schema, bool]]:
    return list(walk_schema(read_schema(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_structural(kind: str) -> None:
    for path, schema, _ in places(kind):
        assert set(schema) <= KEYWORDS, path
        if "type" not in schema:
            # a value of any type: nothing may be said about it but that it is kept
            assert set(schema) - {"description"} == {"x-kubernetes-preserve-unknown-fields"}, path
            continue
        assert schema["type"] in TYPES, path
        assert ("properties" in schema) == (
            schema["type"] == "object"
            and "additionalProperties" not in schema
            and "x-kubernetes-preserve-unknown-fields" not in schema
            and path != ".metadata"
        ), path
        assert set(schema.get("required", ())) <= set(schema.get("properties", {})), path


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_list_and_map_has_a_bound(kind: str) -> None:
    for path, schema, _ in places(kind):
        bound = {"string": "maxLength", "array": "maxItems"}.get(schema.get("type", ""))
        if "additionalProperties" in schema:
            bound = "maxProperties"
        if bound and path not in (".apiVersion", ".kind"):
            assert schema.get(bound, 0) > 0, path
        if "enum" in schema:
            assert max(map(len, schema["enum"])) <= schema["maxLength"], path


@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_int64_with_bounds_inside_it(kind: str) -> None:
    for path, schema, _ in places(kind):
        if schema.get("type") == "integer":
            assert schema["format"] == "int64", path
            assert -INT64 <= schema.get("minimum", 0) <= schema.get("maximum", INT64) <= INT64, path


@pytest.mark.parametrize("kind", KINDS)
def test_lists_say_how_they_are_merged_and_keys_are_required(kind: str) -> None:
    for path, schema, _ in places(kind):
        if schema.get("type") != "array":
            continue
        merged = schema["x-kubernetes-list-type"]
        assert merged in ("atomic", "map"), path
        keys = schema.get("x-kubernetes-list-map-keys", [])
        assert bool(keys) == (merged == "map"), path
        assert set(keys) <= set(schema["items"].get("required", ())), path


@pytest.mark.parametrize(
    "kind, path, key",
    [
        ("AgentRun", "spec.nodes", "name"),
        ("AgentRun", "spec.nodes.items.fanOut.nodes", "name"),
        ("AgentRun", "status.conditions", "type"),
        ("AgentTool", "status.conditions", "type"),
    ],
)
def test_keyed_lists_are_merged_by_their_key(kind: str, path: str, key: str) -> None:
    assert schema_at(kind, path)["x-kubernetes-list-map-keys"] == [key]


@pytest.mark.parametrize("kind", KINDS)
def test_every_default_fits_its_own_field_and_stands_in_the_spec_outside_lists(kind: str) -> None:
    for path, schema, below_list in places(kind):
        if "default" not in schema:
            continue
        assert path.startswith(".spec."), path
        assert not below_list, path
        assert jsonschema_rs.Draft202012Validator(schema, ignore_unknown_formats=True).is_valid(schema["default"]), path
        assert schema["default"] not in ("", [], {}, None), path


def test_cancel_and_suspend_have_no_default() -> None:
    for field in ("cancel", "suspend"):
        assert "default" not in schema_at("AgentRun", f"spec.{field}")


def empty_lists(value: Any, path: str = "") -> Iterator[str]:
    if value == []:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from empty_lists(part, f"{path}.{name}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_holds_no_empty_list_and_no_integer_that_may_be_a_text(kind: str) -> None:
    assert list(empty_lists(read_definition(kind))) == []
    for path, schema, _ in places(kind):
        assert not {"x-kubernetes-int-or-string", "anyOf", "oneOf"} & set(schema), path


def test_money_defaults_are_written_as_money() -> None:
    assert schema_at("AgentTool", "spec.cost.perCall")["default"] == "0.00"


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_explained(kind: str) -> None:
    for path, schema, _ in places(kind):
        if path.startswith((".spec", ".status")) and not path.endswith(("[]", ".*")):
            text = schema.get("description", "")
            assert len(text) >= 4, path
            assert "``" not in text, path
            assert ":class:" not in text, path


@pytest.mark.parametrize("kind", KINDS)
def test_patterns_are_anchored_and_run_in_linear_time(kind: str) -> None:
    linear = jsonschema_rs.RegexOptions()
    for path, schema, _ in places(kind):
        if "pattern" in schema:
            assert schema["pattern"].startswith("^"), path
            jsonschema_rs.Draft202012Validator({"pattern": schema["pattern"]}, pattern_options=linear)


@pytest.mark.parametrize(
    "kind, short", [("AgentTool", "at"), ("AgentRun", "ar"), ("AgentNode", "an"), ("AgentApproval", "aa")]
)
def test_a_definition_names_its_kind_as_kubectl_users_type_it(kind: str, short: str) -> None:
    definition = read_definition(kind)
    spec = definition["spec"]
    assert definition["metadata"]["name"] == f"{kind.lower()}s.agentrun.dev"
    assert spec["names"]["kind"] == kind
    assert spec["names"]["shortNames"] == [short]
    assert spec["names"]["categories"] == ["agentrun-all"]
    # A category of that name would hide the kind from `kubectl get agentrun NAME`.
    assert not {"agentrun", "agentnode", "agenttool", "agentapproval"} & set(spec["names"]["categories"])
    assert spec["scope"] == "Namespaced"
    (version,) = spec["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_read_fields_that_exist_with_a_type_that_fits(kind: str) -> None:
    (version,) = read_definition(kind)["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"].lstrip(".")
        if path == "metadata.creationTimestamp":
            assert column["type"] == "date"
            continue
        found: Any = read_schema(kind)
        for part in path.split("."):
            field, _, place = part.partition("[")
            found = found.get("additionalProperties") or found["properties"][field]
            found = found["items"] if place else found
        is_past = found.get("format") == "date-time" and not path.endswith("expiresAt")
        assert column["type"] == ("date" if is_past else found["type"]), path


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_stays_far_below_what_a_release_may_hold(kind: str) -> None:
    (path,) = FOLDER.glob(f"*_{kind.lower()}s.yaml")
    assert path.stat().st_size < 200_000
    assert not re.search(r"[&*]id\d+", path.read_text(encoding="utf-8")), "YAML anchors"
