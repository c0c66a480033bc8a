"""A schema's work at one place of a value is bounded before any value is seen."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.schemas.evaluation_work import MAX_EVALUATIONS, TooMuchWorkError, refuse_exploding_schema
from agentrun.schemas.validator import SchemaValidator

DOUBLES = "judges one place of a value more than 1000 times"
LOOPS = "refers to itself without going into a property or an item"


def doubling(keyword: str, links: int) -> dict[str, Any]:
    """A chain in which each link applies the next one twice."""
    chain = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(links)}
    return {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{links}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema, want",
    [
        pytest.param({"$ref": "#"}, LOOPS, id="itself"),
        pytest.param({"allOf": [{"$ref": "#"}]}, LOOPS, id="itself in allOf"),
        pytest.param({"not": {"$ref": "#"}}, LOOPS, id="itself in not"),
        pytest.param({"if": {"$ref": "#"}}, LOOPS, id="itself in if"),
        pytest.param({"dependentSchemas": {"a": {"$ref": "#"}}}, LOOPS, id="itself in dependentSchemas"),
        pytest.param(
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
            LOOPS,
            id="two of them",
        ),
        pytest.param(
            {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/a"}}}, LOOPS, id="itself below an item"
        ),
        pytest.param(doubling("allOf", 30), DOUBLES, id="doubling allOf"),
        pytest.param(doubling("anyOf", 30), DOUBLES, id="doubling anyOf"),
        pytest.param(doubling("oneOf", 30), DOUBLES, id="doubling oneOf"),
        pytest.param({"properties": {"a": {"anyOf": [{"$ref": "#"}] * 2}}}, DOUBLES, id="doubling with every level"),
        pytest.param({"additionalProperties": {"anyOf": [{"$ref": "#"}] * 2}}, DOUBLES, id="doubling, any name"),
        pytest.param({"items": {"anyOf": [{"$ref": "#"}] * 2}}, DOUBLES, id="doubling with every item"),
        pytest.param(
            {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}},
            DOUBLES,
            id="two ways to a name",
        ),
        pytest.param({"prefixItems": [{"$ref": "#"}], "contains": {"$ref": "#"}}, DOUBLES, id="two ways to an item"),
        pytest.param({"allOf": [{"type": "object"}] * MAX_EVALUATIONS}, DOUBLES, id="simply many"),
    ],
)
def test_a_schema_that_explodes_is_refused_at_once(schema: dict[str, Any], want: str) -> None:
    began = time.process_time()
    with pytest.raises(TooMuchWorkError, match=want):
        refuse_exploding_schema(schema)
    assert time.process_time() - began < 1
    assert any(want in str(problem) for problem in SchemaValidator().check(schema))


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}, id="a tree"),
        pytest.param({"items": {"$ref": "#"}}, id="lists in lists"),
        pytest.param({"additionalProperties": {"$ref": "#"}}, id="objects in objects"),
        pytest.param(doubling("allOf", 7), id="a little doubling"),
        pytest.param({"allOf": [{"type": "object"}] * (MAX_EVALUATIONS - 1)}, id="just as many as are allowed"),
        pytest.param(
            {
                "properties": {f"p{n}": {"$ref": "#/$defs/price"} for n in range(500)},
                "$defs": {"price": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
            },
            id="a wide object",
        ),
        pytest.param({"const": {"$ref": "#"}}, id="data that looks like a reference"),
    ],
)
def test_an_ordinary_schema_is_taken(schema: dict[str, Any]) -> None:
    refuse_exploding_schema(schema)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "b"])
    reference = st.sampled_from(["#", "#/$defs/x", "#/$defs/y"]).map(lambda target: {"$ref": target})
    leaf = st.one_of(st.just({"type": "integer"}), st.just({}), reference)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.dictionaries(names, inner, min_size=1).map(lambda found: {"properties": found}),
            inner.map(lambda found: {"items": found}),
            st.tuples(st.sampled_from(["allOf", "anyOf", "oneOf"]), st.lists(inner, min_size=1, max_size=3)).map(
                lambda found: {found[0]: found[1]}
            ),
        ),
        max_leaves=8,
    )


VALUES = st.recursive(
    st.integers(),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner)),
    max_leaves=8,
)


@given(root=schemas(), x=schemas(), y=schemas(), value=VALUES)
def test_what_is_taken_is_judged_in_bounded_time(root: dict[str, Any], x: object, y: object, value: object) -> None:
    schema = {**root, "$defs": {"x": x, "y": y}}
    validator = SchemaValidator()
    began = time.process_time()
    if validator.check(schema) == ():
        validator.validate(schema, value)  # type: ignore[arg-type]
    assert time.process_time() - began < 2
