"""JSON that is hashed, compared and carried: exact numbers, no surprises, one text for one value."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import (
    MAX_DEPTH,
    JsonRefusedError,
    JsonValue,
    admit_json,
    canonical_json,
    json_digest,
    parse_json,
    plain_json,
)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# surrogates and NUL are no JSON text of ours
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
DECIMALS = st.decimals(
    min_value=Decimal("-1e300"), max_value=Decimal("1e300"), allow_nan=False, allow_infinity=False
).filter(lambda number: len(number.as_tuple().digits) <= 64)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(INT64_MIN, INT64_MAX),
    DECIMALS,
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "text, want",
    [
        ("5.0", 5),
        ("1e2", 100),
        ("-0", 0),
        ("-0.0", 0),
        ("0e400", 0),
        ("9007199254740993", 9007199254740993),
        ("9007199254740993.0", 9007199254740993),
        ("9223372036854775807", INT64_MAX),
        ("-9223372036854775808", INT64_MIN),
        ("0.1", Decimal("0.1")),
        ("0.30000000000000000001", Decimal("0.30000000000000000001")),
        ("1e20", Decimal("1e20")),
        ("1.7976931348623157e308", Decimal("1.7976931348623157e308")),
    ],
)
def test_numbers_keep_their_value_and_integral_ones_are_integers(text: str, want: JsonValue) -> None:
    found = parse_json(text)
    assert found == want
    assert type(found) is type(want)


@pytest.mark.parametrize(
    "text, problem",
    [
        pytest.param("NaN", "NaN is not a JSON number", id="NaN"),
        pytest.param("Infinity", "Infinity is not a JSON number", id="infinity"),
        pytest.param("-Infinity", "-Infinity is not a JSON number", id="negative infinity"),
        pytest.param("1e400", "larger than any JSON number", id="beyond a double"),
        pytest.param("-1e309", "larger than any JSON number", id="below a double"),
        pytest.param("1.7976931348623158e308", "larger than any JSON number", id="just beyond a double"),
        pytest.param("1e-400", "smaller than any JSON number but zero", id="vanishing"),
        pytest.param("1e999999999999999999999", "exponent that no JSON number has", id="absurd exponent"),
        pytest.param("9223372036854775808", "integer outside int64: pass it as a string", id="int64 and one"),
        pytest.param("-9223372036854775809", "integer outside int64: pass it as a string", id="negative int64 and one"),
        pytest.param("1" * 5_000, "integer outside int64: pass it as a string", id="5,000 digits"),
        pytest.param("0." + "1" * 65, "more than 64 digits", id="65 digits"),
        pytest.param('{"a": 1, "a": 2}', "key 'a' stands twice", id="doubled key"),
        pytest.param('[{"b": {"a": 1, "a": 1}}]', "key 'a' stands twice", id="doubled key below"),
        pytest.param(r'"\ud83d"', "lone surrogate", id="lone high surrogate"),
        pytest.param(r'{"\udc00": 1}', "lone surrogate", id="lone surrogate as a key"),
        pytest.param(r'"a\u0000b"', "NUL character", id="NUL"),
        pytest.param('"a\x00b"', "not valid JSON", id="raw NUL"),
        pytest.param('"a\nb"', "not valid JSON", id="raw line end in a string"),
        pytest.param("\ufeff{}", "not valid JSON", id="byte order mark"),
        pytest.param('{"a": 1} thanks', "not valid JSON", id="trailing text"),
        pytest.param('{"a": 1,}', "not valid JSON", id="trailing comma"),
        pytest.param("{'a': 1}", "not valid JSON", id="Python quotes"),
        pytest.param("01", "not valid JSON", id="leading zero"),
        pytest.param("+1", "not valid JSON", id="leading plus"),
        pytest.param(".5", "not valid JSON", id="no digit before the point"),
        pytest.param("", "not valid JSON", id="nothing"),
        pytest.param("[" * 65 + "1" + "]" * 65, "nested deeper than 64 levels", id="65 levels"),
        pytest.param("[" * 100_000, "nested deeper than 64 levels", id="100,000 levels"),
    ],
)
def test_what_cannot_be_carried_exactly_is_refused(text: str, problem: str) -> None:
    with pytest.raises(JsonRefusedError, match=problem):
        parse_json(text)


def test_bytes_are_read_as_utf_8_and_nothing_else() -> None:
    assert parse_json('"grüße"'.encode()) == "grüße"
    with pytest.raises(JsonRefusedError, match="not UTF-8 at byte 3"):
        parse_json('"gr\xfc"'.encode("latin-1"))
    with pytest.raises(JsonRefusedError, match="not valid JSON"):
        parse_json(b"\xef\xbb\xbf{}")


def test_escaped_pairs_of_surrogates_are_one_character() -> None:
    assert parse_json(r'"\ud83d\ude80"') == "🚀"


@pytest.mark.parametrize(
    "value, path, problem",
    [
        ({"items": [{"price": float("nan")}]}, "items[0].price", "NaN is not a JSON number"),
        ({"a": {1: "x"}}, "a", "key 1 is not a string: quote it"),
        ([b"bytes"], "[0]", "bytes is not a JSON type"),
        ({"a": {2, 3}}, "a", "set is not a JSON type"),
        ({"a": 2**63}, "a", "integer outside int64: pass it as a string"),
        ({"a": Decimal("Infinity")}, "a", "Infinity is not a JSON number"),
        ({"a": Decimal("sNaN")}, "a", "sNaN is not a JSON number"),
        ("\ud800", "", "lone surrogate in a string"),
    ],
)
def test_a_value_is_refused_with_the_place_of_the_offender(value: object, path: str, problem: str) -> None:
    with pytest.raises(JsonRefusedError) as refused:
        admit_json(value)
    assert (refused.value.path, refused.value.problem) == (path, problem)
    assert str(refused.value) == (f"{path}: {problem}" if path else problem)


def test_floats_become_the_decimal_that_their_shortest_text_says() -> None:
    assert admit_json([0.1, 5.0, 1e100]) == [Decimal("0.1"), 5, Decimal("1e100")]


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(JsonRefusedError, match=f"deeper than {MAX_DEPTH}"):
        admit_json(value)


def test_admitting_copies_so_that_later_changes_do_not_reach_the_value() -> None:
    inner = {"b": [1]}
    admitted = admit_json({"a": inner})
    inner["b"].append(2)
    assert admitted == {"a": {"b": [1]}}


# One text for one value.


@pytest.mark.parametrize(
    "value, want",
    [
        (None, "null"),
        (True, "true"),
        (Decimal("5.0"), "5"),
        (Decimal("-0.0"), "0"),
        (Decimal("1.50"), "1.5"),
        (Decimal("-0.001"), "-0.001"),
        (Decimal("0.000001"), "0.000001"),
        (Decimal("0.0000001"), "1e-7"),
        (Decimal("0.00000123"), "0.00000123"),
        (Decimal("1e20"), "1e+20"),
        (Decimal("12e20"), "1.2e+21"),
        (Decimal("9223372036854775807"), "9223372036854775807"),
        (Decimal("9223372036854775808"), "9.223372036854775808e+18"),
        (Decimal("123456789.000000000000000001"), "123456789.000000000000000001"),
        ([], "[]"),
        ({}, "{}"),
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ('a"\\/\b\f\n\r\t\x1fé🚀', '"a\\"\\\\/\\b\\f\\n\\r\\t\\u001fé🚀"'),
    ],
)
def test_the_canonical_text_is_short_sorted_and_exact(value: JsonValue, want: str) -> None:
    assert canonical_json(value) == want


def test_keys_are_ordered_by_utf_16_as_rfc_8785_says() -> None:
    # The example of RFC 8785, section 3.2.3: by code points, U+FB33 would stand before U+1F600.
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    found = list(json.loads(canonical_json(dict.fromkeys(keys, 0))))
    assert found == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_a_float_that_was_not_admitted_has_no_text() -> None:
    with pytest.raises(TypeError, match="admit_json it first"):
        canonical_json({"a": 0.5})  # type: ignore[dict-item]


@given(VALUES)
def test_the_canonical_text_reads_back_as_the_value_and_is_read_by_other_readers(value: object) -> None:
    admitted = admit_json(value)
    text = canonical_json(admitted)
    assert parse_json(text) == admitted
    assert canonical_json(parse_json(text)) == text
    json.loads(text)


@given(VALUES, VALUES)
def test_texts_and_digests_are_equal_exactly_when_values_are(left: object, right: object) -> None:
    one, two = admit_json(left), admit_json(right)
    same = canonical_json(one) == canonical_json(two)
    assert same == _are_equal(one, two)
    assert same == (json_digest(one) == json_digest(two))


@given(VALUES)
def test_admitting_twice_changes_nothing(value: object) -> None:
    assert admit_json(admit_json(value)) == admit_json(value)


@pytest.mark.parametrize("texts", [("1", "1.0", "1e0", "10e-1"), ("0", "-0", "0.0", "-0e7"), ("0.5", "5e-1", "0.500")])
def test_one_number_has_one_digest_however_it_was_written(texts: tuple[str, ...]) -> None:
    assert len({json_digest(parse_json(f'{{"n": {text}}}')) for text in texts}) == 1


def test_neighbours_that_one_double_stands_for_have_two_digests() -> None:
    assert float(2**53) == float(2**53 + 1)
    assert json_digest(2**53) != json_digest(2**53 + 1)


def test_plain_values_are_floats_only_where_no_integer_says_it() -> None:
    assert repr(plain_json({"a": [Decimal("1.5"), Decimal("2.0"), 2**53 + 1]})) == "{'a': [1.5, 2, 9007199254740993]}"


def _are_equal(left: JsonValue, right: JsonValue) -> bool:
    """Equality of JSON: unlike Python's, true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_are_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_are_equal, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and left == right
