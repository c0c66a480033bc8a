"""Params and results are judged exactly, in bounded time, and in words that name place, value and what was wanted."""

import threading
from decimal import Decimal
from typing import Any

import pytest

from agentrun.contract.exact_json import JsonValue, parse_json
from agentrun.schemas.validator import DRAFT, MAX_PROBLEMS, MAX_SCHEMA_DEPTH, SchemaValidator

NUMBER = {"properties": {"n": {"type": "integer"}}}


def problems_of(schema: dict[str, Any], value: JsonValue) -> list[str]:
    return [str(problem) for problem in SchemaValidator().validate(schema, value)]


def refusals_of(schema: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in SchemaValidator().check(schema)]


def nested(levels: int, *keys: str) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        for key in reversed(keys):
            value = {key: value}
    return value


# Numbers.


@pytest.mark.parametrize("text", ["5", "5.0", "1e2", "-0", "-0.0", "9007199254740993", "9223372036854775807"])
def test_an_integral_number_is_an_integer_however_it_is_written(text: str) -> None:
    assert problems_of(NUMBER, parse_json(f'{{"n": {text}}}')) == []


@pytest.mark.parametrize(
    "text, want",
    [
        ("1.9", 'n: 1.9 is not of type "integer"'),
        ('"5"', 'n: "5" is not of type "integer"'),
        ("true", 'n: true is not of type "integer"'),
        ("null", 'n: null is not of type "integer"'),
        ("[5]", 'n: [5] is not of type "integer"'),
    ],
)
def test_nothing_else_is_an_integer(text: str, want: str) -> None:
    assert problems_of(NUMBER, parse_json(f'{{"n": {text}}}')) == [want]


@pytest.mark.parametrize(
    "schema, fits, misfits",
    [
        ({"maximum": 2**53}, 2**53, 2**53 + 1),
        ({"minimum": -(2**53)}, -(2**53), -(2**53) - 1),
        ({"const": 2**53}, 2**53, 2**53 + 1),
        ({"enum": [2**53]}, 2**53, 2**53 + 1),
        ({"const": 1}, Decimal("1.0"), True),
        ({"exclusiveMaximum": Decimal("0.3")}, Decimal("0.2999999999999999999999"), Decimal("0.3")),
        ({"multipleOf": Decimal("0.01")}, Decimal("0.29"), Decimal("0.295")),
        ({"multipleOf": Decimal("0.1")}, Decimal("0.3"), Decimal("0.35")),
        ({"multipleOf": 3}, 2**53 + 1, 2**53),
        ({"multipleOf": 10}, Decimal("92233720368547758070"), Decimal("92233720368547758071")),
    ],
)
def test_numbers_are_compared_exactly(schema: dict[str, Any], fits: JsonValue, misfits: JsonValue) -> None:
    assert problems_of(schema, fits) == []
    assert len(problems_of(schema, misfits)) == 1


def test_equal_items_are_found_however_their_numbers_are_written() -> None:
    assert problems_of({"uniqueItems": True}, [1, 2]) == []
    assert problems_of({"uniqueItems": True}, parse_json("[1, 1.0]")) != []


# What is wrong, in words.


@pytest.mark.parametrize(
    "schema, value, want",
    [
        ({"required": ["a"]}, {}, ['the required field "a" is missing']),
        (
            {"properties": {"a": {"properties": {"b": {"items": {"type": "string"}}}}}},
            {"a": {"b": ["x", 1]}},
            ['a.b[1]: 1 is not of type "string"'],
        ),
        ({"additionalProperties": False}, {"c": 1}, ['unknown field: "c"']),
        ({"items": {"type": "object", "additionalProperties": False}}, [{"c": 1}], ['[0]: unknown field: "c"']),
        ({"const": {"additionalProperties": False}}, {"additionalProperties": False}, []),
        ({"additionalProperties": False}, {"c": 1, "d": 2}, ['unknown fields: "c", "d"']),
        ({"properties": {"old": False}}, {"old": 1}, ["old: nothing may stand here, not even 1"]),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"c": 1}, ['unknown field: "c"']),
        ({"properties": {"a": {"const": "x"}}}, {"a": "y"}, ['a: "y" is not "x"']),
        ({"properties": {"a": {"format": "email"}}}, {"a": "nobody"}, ['a: "nobody" is not a "email"']),
        ({"properties": {"a": {"format": "date-time"}}}, {"a": "today"}, ['a: "today" is not a "date-time"']),
        (
            {"oneOf": [{"type": "integer"}, {"properties": {"a": {"type": "string"}}}]},
            {"a": 1},
            [
                '{"a":1} fits none of the 2 alternatives (1: {"a":1} is not of type "integer"; 2: a: 1 is not of type "string")'
            ],
        ),
    ],
)
def test_a_problem_names_place_value_and_what_was_wanted(
    schema: dict[str, Any], value: JsonValue, want: list[str]
) -> None:
    assert problems_of(schema, value) == want


def test_problems_come_in_the_order_of_their_places_items_by_number() -> None:
    schema = {"items": {"type": "integer"}}
    found = SchemaValidator().validate(schema, ["x" if index in (2, 10) else index for index in range(12)])
    assert [problem.path for problem in found] == ["[2]", "[10]"]


def test_texts_stay_short_whatever_the_value_is() -> None:
    long = "x" * 10_000
    schema = {
        "properties": {
            "type": {"type": "integer"},
            "names": {"additionalProperties": False},
            "any": {"anyOf": [{"type": "integer"}] * 50},
            "const": {"const": long + "y"},
            "required": {"required": [long]},
        }
    }
    value: JsonValue = {
        "type": long,
        "names": {f"{long}{index}": 1 for index in range(50)},
        "any": long,
        "const": long,
        "required": {},
    }
    found = SchemaValidator().validate(schema, value) + SchemaValidator().check({"required": [long, long]})
    assert len(found) == 6
    assert all(len(str(problem)) <= 1024 for problem in found)


def test_a_value_with_thousands_of_mistakes_gives_a_few_of_them() -> None:
    assert len(problems_of({"items": {"type": "integer"}}, ["x"] * 10_000)) == MAX_PROBLEMS


# Schemas that are refused, at admission and at the gate.


@pytest.mark.parametrize(
    "schema, want",
    [
        pytest.param({"type": "strin"}, 'type: "strin" is no type: write array', id="no type"),
        pytest.param({"required": "a"}, 'required: "a" is not of type "array"', id="no list"),
        pytest.param({"properties": {"a": {"minimum": "1"}}}, "properties.a.minimum:", id="no number"),
        pytest.param({"$schema": "http://json-schema.org/draft-07/schema#"}, "is not supported: write", id="draft 7"),
        pytest.param({"$dynamicRef": "#a"}, "$dynamicRef is not supported: use $ref", id="dynamic reference"),
        pytest.param({"properties": {"a": {"$id": "b"}}}, "properties.a: $id below the root", id="moved references"),
        pytest.param({"$ref": "https://schemas.example/a"}, "leads out of the schema", id="web"),
        pytest.param({"$ref": "http://127.0.0.1/a"}, "leads out of the schema", id="loopback"),
        pytest.param({"$ref": "file:///etc/passwd"}, "leads out of the schema", id="file"),
        pytest.param({"$ref": "other.json#/a"}, "leads out of the schema", id="relative"),
        pytest.param({"$ref": "#anchor"}, "leads out of the schema", id="anchor"),
        pytest.param({"$ref": 1}, "leads out of the schema", id="no text"),
        pytest.param({"$ref": "#/$defs/a"}, "leads to nothing in this schema", id="nothing"),
        pytest.param({"items": {"$ref": "file:///x"}}, "items: $ref", id="below"),
        pytest.param({"$ref": "#/x", "x": {"$ref": "file:///y"}}, "file:///y", id="behind a reference"),
        pytest.param({"description": "x" * 70_000}, "bytes, more than 65536", id="too large"),
        pytest.param(nested(MAX_SCHEMA_DEPTH, "properties", "a"), "deeper than 32 levels: use $defs", id="too deep"),
        pytest.param(nested(10_000, "a"), "nested deeper than", id="far too deep"),
        pytest.param({"minimum": float("nan")}, "minimum: NaN is not a JSON number", id="NaN"),
        pytest.param({"pattern": "(?=a)"}, "no pattern that runs in linear time", id="lookahead"),
        pytest.param({"pattern": r"(a)\1"}, "no pattern that runs in linear time", id="backreference"),
        pytest.param({"pattern": "a{1000}{1000}"}, "no pattern that runs in linear time", id="huge repetition"),
        pytest.param({"pattern": "("}, "no pattern that runs in linear time", id="no pattern"),
        pytest.param(
            {"patternProperties": {"(?<!a)b": {}}}, "no pattern that runs in linear time", id="pattern of names"
        ),
    ],
)
def test_a_schema_that_is_wrong_or_unbounded_is_refused_and_the_gate_stays_shut(
    schema: dict[str, Any], want: str
) -> None:
    refusals = refusals_of(schema)
    assert any(want in refusal for refusal in refusals), refusals
    assert problems_of(schema, {}) == [f"the schema is not usable: {refusal}" for refusal in refusals]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({}, id="anything"),
        pytest.param({"$schema": DRAFT, "type": "object"}, id="draft named"),
        pytest.param({"$schema": f"{DRAFT}#"}, id="draft with an empty fragment"),
        pytest.param({"$id": "https://tools.example/refund", "type": "object"}, id="own name at the root"),
        pytest.param({"properties": {"$ref": {"type": "string"}}}, id="a property named $ref"),
        pytest.param({"const": {"$ref": "https://x/y"}}, id="a constant that looks like a reference"),
        pytest.param({"examples": [{"$dynamicRef": "x"}]}, id="an example that looks like a schema"),
        pytest.param({"$ref": "#/$defs/a%20b", "$defs": {"a b": {}}}, id="escaped reference"),
        pytest.param({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}}, id="reference with a slash"),
        pytest.param({"$ref": "#/allOf/1", "allOf": [{}, {}]}, id="reference into a list"),
    ],
)
def test_a_good_schema_is_taken(schema: dict[str, Any]) -> None:
    assert refusals_of(schema) == []


def test_a_pattern_that_hangs_other_engines_takes_no_time() -> None:
    assert len(problems_of({"pattern": "^(a+)+$"}, "a" * 30_000 + "!")) == 1


@pytest.mark.parametrize("levels, want", [(64, []), (65, ["nested deeper than 64 levels"])])
def test_values_are_followed_as_deep_as_json_may_be(levels: int, want: list[str]) -> None:
    assert problems_of({"properties": {"a": {"$ref": "#"}}}, nested(levels, "a")) == want


@pytest.mark.parametrize("levels", [10_000, 1_000_000])
def test_a_value_of_any_depth_is_refused_and_ends_nothing(levels: int) -> None:
    value = nested(levels, "a")
    assert problems_of({"properties": {"a": {"$ref": "#"}}}, value) == ["nested deeper than 64 levels"]
    while value:  # taken apart from above: freeing it as a whole would recurse
        value = value.popitem()[1]


# Compiling once.


def test_equal_schemas_are_compiled_once_and_the_oldest_are_forgotten() -> None:
    validator = SchemaValidator(cache_size=2)
    for maximum in (1, 2, 1, 3, 1):
        assert validator.validate({"maximum": maximum}, maximum + 1) != ()
    assert len(validator._compiled) == 2
    assert validator.validate(parse_json('{"maximum": 1.0}'), 2) != ()  # type: ignore[arg-type]
    assert len(validator._compiled) == 2


def test_threads_share_a_validator() -> None:
    validator, wrong = SchemaValidator(cache_size=3), []

    def judge(offset: int) -> None:
        for number in range(200):
            maximum = (number + offset) % 7
            if validator.validate({"maximum": maximum}, maximum) or not validator.validate(
                {"maximum": maximum}, maximum + 1
            ):
                wrong.append(maximum)

    threads = [threading.Thread(target=judge, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
