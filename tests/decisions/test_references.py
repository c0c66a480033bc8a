"""References: what parses, what a value becomes, and what is refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.decisions.references import (
    Given,
    Missing,
    NodeValue,
    ReferenceSyntaxError,
    Root,
    UnresolvedReferenceError,
    parse_template,
    resolve_call_template,
    resolve_template,
)

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.decimals(allow_nan=False, allow_infinity=False, places=3)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text()
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@dataclass(frozen=True)
class Scope:
    """A reference scope of plain values."""

    given_inputs: JsonObject = field(default_factory=dict)
    results: dict[str, NodeValue] = field(default_factory=dict)
    given_item: JsonValue = None
    given_index: int | None = None

    def inputs(self) -> JsonObject:
        return self.given_inputs

    def item(self) -> JsonValue:
        return self.given_item

    def index(self) -> int | None:
        return self.given_index

    def node_result(self, name: str) -> NodeValue:
        return self.results[name]


def resolve(value: JsonValue, scope: Scope) -> JsonValue:
    return resolve_template(parse_template(value), scope)


RESULT: JsonObject = {
    "items": [{"sku": "A"}, {"sku": "B"}],
    "rate": Decimal("1.50"),
    "count": 9007199254740993,
    "open": True,
    "odd key": {"a.b": "c"},
    'quote"d': 1,
    "0": "zero",
    "none": None,
}
STOCK = Scope(
    given_inputs={"day": "2024-05-01", "warehouses": ["A", "B"]},
    results={"stock-a": Given(RESULT), "check": Given([{"sku": "A"}, None])},
    given_item={"sku": "X", "n": 2},
    given_index=3,
)


@pytest.mark.parametrize(
    "text,want",
    [
        pytest.param("${nodes.stock-a.result.items}", RESULT["items"], id="whole reference keeps a list"),
        pytest.param("${nodes.stock-a.result}", RESULT, id="whole result"),
        pytest.param("${nodes.stock-a.result.items[1].sku}", "B", id="index then field"),
        pytest.param("${nodes.stock-a.result.count}", 9007199254740993, id="integer beyond a double stays exact"),
        pytest.param("${nodes.stock-a.result.rate}", Decimal("1.50"), id="decimal keeps its spelling"),
        pytest.param("${nodes.stock-a.result.open}", True, id="boolean stays boolean"),
        pytest.param("${nodes.stock-a.result.none}", None, id="null is a value"),
        pytest.param('${nodes.stock-a.result["odd key"]["a.b"]}', "c", id="quoted keys"),
        pytest.param('${nodes.stock-a.result["quote\\"d"]}', 1, id="quote inside a quoted key"),
        pytest.param("${nodes.stock-a.result.0}", "zero", id="digits after a dot are a key"),
        pytest.param("${nodes.check.results}", [{"sku": "A"}, None], id="a fan-out's results"),
        pytest.param("${nodes.check.results[0].sku}", "A", id="inside a fan-out's results"),
        pytest.param("${item}", {"sku": "X", "n": 2}, id="whole item"),
        pytest.param("${item.n}", 2, id="field of the item"),
        pytest.param("${index}", 3, id="index is a number"),
        pytest.param("fx-${inputs.day}", "fx-2024-05-01", id="string inside text"),
        pytest.param("${item.n}/${index}", "2/3", id="two references in one text"),
        pytest.param("n=${nodes.stock-a.result.rate}", "n=1.5", id="number inside text is canonical"),
        pytest.param("${nodes.stock-a.result.open}!", "true!", id="boolean inside text"),
        pytest.param("$${inputs.day}", "${inputs.day}", id="escaped"),
        pytest.param("$${a} ${inputs.day} $", "${a} 2024-05-01 $", id="escape beside a reference"),
        pytest.param("costs 5$ {x} $x {}", "costs 5$ {x} $x {}", id="dollars and braces are plain"),
        pytest.param("}{${index}}", "}{3}", id="braces around"),
    ],
)
def test_reference_reads(text: str, want: JsonValue) -> None:
    got = resolve({"p": [text]}, STOCK)

    assert got == {"p": [want]}
    assert type(got["p"][0]) is type(want)  # type: ignore[index]


@pytest.mark.parametrize(
    "text,want_position,want_problem",
    [
        pytest.param("${", 2, "must begin with a name", id="nothing follows"),
        pytest.param("${}", 2, "must begin with a name", id="empty"),
        pytest.param("${ inputs.day }", 2, "must begin with a name", id="blank inside"),
        pytest.param("a ${inputs.day", 14, "closing brace, found the end", id="unclosed"),
        pytest.param("${inputs.day | upper}", 12, "closing brace, found ' '", id="expression"),
        pytest.param("${inputs..day}", 9, "a name must follow the dot", id="doubled dot"),
        pytest.param("${inputs.days[-1]}", 13, "brackets hold an index", id="negative index"),
        pytest.param("${inputs['day']}", 8, "brackets hold an index", id="single quotes"),
        pytest.param('${inputs["day}', 8, "brackets hold an index", id="open quote"),
        pytest.param("${env.HOME}", 2, "env is not readable", id="unknown root"),
        pytest.param("${__class__.mro}", 2, "__class__ is not readable", id="attribute walk"),
        pytest.param("${nodes}", 2, "name of a node must follow", id="nodes alone"),
        pytest.param("${nodes[0].result}", 2, "name of a node must follow", id="node by number"),
        pytest.param("${nodes.a}", 2, "a node shows its result", id="node alone"),
        pytest.param("${nodes.a.status.phase}", 2, "a node shows its result", id="status of a node"),
        pytest.param("${index.x}", 2, "index has no fields", id="field of the index"),
        pytest.param("${inputs.${inputs.x}}", 9, "a name must follow the dot", id="nested reference"),
    ],
)
def test_malformed_reference_is_refused_with_its_place(text: str, want_position: int, want_problem: str) -> None:
    with pytest.raises(ReferenceSyntaxError, match="write it like") as caught:
        parse_template({"a": [1, {"b": text}]})

    assert caught.value.position == want_position
    assert want_problem in caught.value.problem
    assert caught.value.at == ("a", 1, "b")
    assert str(caught.value).startswith("a[1].b: ")


def test_reference_in_a_field_name_is_refused() -> None:
    with pytest.raises(ReferenceSyntaxError, match="name of a field"):
        parse_template({"${inputs.day}": 1})


def test_escaped_field_name_is_literal() -> None:
    assert resolve({"$${x}": 1}, STOCK) == {"${x}": 1}


def test_references_are_listed_in_reading_order_with_their_parts() -> None:
    template = parse_template({"a": "${inputs.x[2]} and ${nodes.n.result.y}", "b": ["${item}"]})

    assert [(r.root, r.node, r.path, r.text) for r in template.references] == [
        (Root.INPUTS, None, ("x", 2), "inputs.x[2]"),
        (Root.NODES, "n", ("result", "y"), "nodes.n.result.y"),
        (Root.ITEM, None, (), "item"),
    ]
    assert [(placed.at, placed.whole) for placed in template.placed] == [
        (("a",), False),
        (("a",), False),
        (("b", 0), True),
    ]


@pytest.mark.parametrize(
    "text,want_node,want_field,want_problem",
    [
        pytest.param(
            "${nodes.stock-a.result.price}", "stock-a", "result.price", "result has no field 'price'", id="field"
        ),
        pytest.param("${nodes.stock-a.result.items[2]}", "stock-a", "result.items[2]", "has 2 items", id="index"),
        pytest.param(
            "${nodes.stock-a.result.items.sku}", "stock-a", "result.items.sku", "is array", id="field of a list"
        ),
        pytest.param("${nodes.stock-a.result.none.x}", "stock-a", "result.none.x", "is null", id="field of null"),
        pytest.param("${nodes.check.results[1].sku}", "check", "results[1].sku", "is null", id="fan-out"),
        pytest.param("${inputs.month}", None, "month", "inputs: the value has no field 'month'", id="input"),
        pytest.param("${item.price}", None, "price", "no field 'price'", id="item"),
        pytest.param(
            "x${nodes.stock-a.result.items}", "stock-a", "result.items", "array cannot stand inside", id="list in text"
        ),
        pytest.param("x${item}", None, "", "object cannot stand inside", id="object in text"),
        pytest.param("x${nodes.stock-a.result.none}", "stock-a", "result.none", "null cannot stand", id="null in text"),
        pytest.param("${params.x}", None, "x", "lookup's params only", id="params of a call"),
    ],
)
def test_value_that_is_missing_names_node_and_field(
    text: str, want_node: str | None, want_field: str, want_problem: str
) -> None:
    with pytest.raises(UnresolvedReferenceError) as caught:
        resolve(text, STOCK)

    assert (caught.value.node, caught.value.field) == (want_node, want_field)
    assert want_problem in caught.value.problem
    assert text.strip("x") in str(caught.value)


def test_item_is_missing_outside_a_fan_out() -> None:
    with pytest.raises(UnresolvedReferenceError, match="no item outside a fan-out"):
        resolve("${item}", Scope())


@pytest.mark.parametrize(
    "text,want",
    [
        pytest.param("${nodes.rate.result.rate}", "1.0", id="by its own path"),
        pytest.param("${nodes.rate.result.deep.list[1]}", 2, id="inside a default"),
        pytest.param("${nodes.rate.result.deep.name}", "own", id="the longest path wins"),
    ],
)
def test_default_answers_for_a_node_that_gave_nothing(text: str, want: JsonValue) -> None:
    defaults: JsonObject = {
        "result.rate": "1.0",
        "result.deep": {"list": [1, 2], "name": "x"},
        "result.deep.name": "own",
    }
    scope = Scope(results={"rate": Missing("rate was skipped (OptionalFailed)", defaults)})

    assert resolve(text, scope) == want


def test_without_a_default_the_skipped_node_and_its_reason_are_named() -> None:
    scope = Scope(results={"rate": Missing("it was skipped (NotChosen)", {"result.rate": 1})})

    with pytest.raises(
        UnresolvedReferenceError, match=r"node rate gave no result\.other: it was skipped \(NotChosen\)"
    ):
        resolve("${nodes.rate.result.other}", scope)


def test_default_does_not_mend_a_node_that_succeeded_without_the_field() -> None:
    with pytest.raises(UnresolvedReferenceError):
        resolve("${nodes.rate.result.rate}", Scope(results={"rate": Given({})}))


def test_lookup_reads_params_and_key_of_the_call() -> None:
    template = parse_template({"order": "${params.order_id}", "key": "k-${key}", "all": "${params}"})

    got = resolve_call_template(template, {"order_id": 7}, "abc")

    assert got == {"order": 7, "key": "k-abc", "all": {"order_id": 7}}


@pytest.mark.parametrize("text", ["${inputs.x}", "${nodes.a.result}", "${item}"])
def test_lookup_reads_nothing_else(text: str) -> None:
    with pytest.raises(UnresolvedReferenceError, match="params and key only"):
        resolve_call_template(parse_template(text), {}, "k")


@given(VALUES)
def test_inserted_values_are_data(value: JsonValue) -> None:
    scope = Scope(given_inputs={"x": value})

    assert resolve({"whole": "${inputs.x}"}, scope) == {"whole": value}


@given(st.text(), st.text(alphabet="${}a. ").filter(lambda text: "${" not in text and not text.endswith("$")))
def test_text_is_inserted_in_a_single_pass(inserted: str, around: str) -> None:
    scope = Scope(given_inputs={"x": inserted})

    assert resolve(f"{around}${{inputs.x}}.", scope) == f"{around}{inserted}."


@given(VALUES)
def test_escaped_value_comes_back_as_it_was(value: JsonValue) -> None:
    def escape(part: JsonValue) -> JsonValue:
        if isinstance(part, str):
            return part.replace("${", "$${")
        if isinstance(part, list):
            return [escape(item) for item in part]
        if isinstance(part, dict):
            return {key.replace("${", "$${"): escape(item) for key, item in part.items()}
        return part

    template = parse_template(escape(value))

    assert template.references == ()
    assert resolve_template(template, Scope()) == value
