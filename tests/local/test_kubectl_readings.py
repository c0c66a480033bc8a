"""The same file means the same to kubectl: what is read here is what it reads, and what it reads otherwise is refused."""

import json
import shutil
import subprocess

import pytest

from agentrun.contract.exact_json import JsonRefusedError, JsonValue, canonical_json, parse_json
from agentrun.local.plain_scalars import AmbiguousScalarError, read_plain_scalar
from agentrun.local.yaml_documents import Reading, YamlRefusedError, examine_documents, read_documents

# What `kubectl patch --local -o json` (1.32) made of each scalar as JSON, recorded.
AGREED = """
true true | True true | TRUE true | false false | False false | null null | Null null | NULL null | ~ null
nO "nO" | tRUE "tRUE" | nULL "nULL" | _1 "_1" | inf "inf" | nan "nan" | -.nan "-.nan" | Infinity "Infinity"
0 0 | 00 0 | -0 0 | +0 0 | 01 1 | 007 7 | 08 8 | 09 9 | +12 12 | 0o10 8 | 0o8 "0o8" | 0b12 "0b12" | 0x1F 31 | 0x "0x"
0x1p3 "0x1p3" | 1e3 1000 | 1E3 1000 | 1e+3 1000 | 1.e3 1000 | 01e2 100 | 012.5 12.5 | .5 0.5 | -.5 -0.5 | 5. 5 | 1.0 1
1.50 1.5 | -0.0 0 | 1e-7 1e-7 | 1e21 1e+21 | 1e "1e" | e3 "e3" | . "." | .. ".." | 1.2.3 "1.2.3" | 1,000 "1,000"
9223372036854775807 9223372036854775807 | -9223372036854775808 -9223372036854775808 | 685230.15 685230.15
1:20 "1:20" | 190:20:30 "190:20:30" | 2001-01-01 "2001-01-01" | 2001-12-14t21:59:43.10-05:00 "2001-12-14t21:59:43.10-05:00"
"""
# The same for scalars to which YAML 1.2 gives another meaning.
OTHERWISE = """
y true | Y true | yes true | Yes true | YES true | on true | On true | ON true
n false | N false | no false | No false | NO false | off false | Off false | OFF false
010 8 | -010 -8 | +010 8 | 0777 511 | 0O10 8 | -0o10 -8 | 0o1_0 8 | 0b11 3 | 0B11 3 | -0b11 -3 | +0b11 3 | 0b_1 1
0X1f 31 | -0x1F -31 | +0x1f 31 | 0x1_0 16 | 1_000 1000 | 1_ 1 | 0_0 0 | 0.1_0 0.1 | 1_0.5 10.5 | 1e1_0 10000000000
0.1000000000000000055 0.1 | 3.14159265358979323846 3.141592653589793
"""


def table(text: str) -> list[tuple[str, str]]:
    rows = [row.split(maxsplit=1) for line in text.strip().splitlines() for row in line.split(" | ")]
    return [(scalar, reading) for scalar, reading in rows]


def values_of(text: str) -> list[JsonValue]:
    return [document.value for document in read_documents(text.encode())]


@pytest.mark.parametrize("scalar, want", table(AGREED))
def test_a_scalar_that_all_read_alike_is_read(scalar: str, want: str) -> None:
    assert canonical_json(read_plain_scalar(scalar)) == canonical_json(parse_json(want))


@pytest.mark.parametrize("scalar, reading", table(OTHERWISE))
def test_a_scalar_that_kubectl_reads_otherwise_is_refused_with_its_reading(scalar: str, reading: str) -> None:
    with pytest.raises(AmbiguousScalarError) as refused:
        read_plain_scalar(scalar)
    assert str(refused.value).startswith(f"{scalar} without quotes means {reading} to kubectl and ")
    assert refused.value.remedy == f'write {reading}, or put quotes around it: "{scalar}"'


@pytest.mark.parametrize(
    "scalar", [".inf", "-.Inf", "+.INF", ".nan", "1e400", "1e-400", "9223372036854775808", "0xffffffffffffffff"]
)
def test_a_number_that_no_reader_carries_is_refused(scalar: str) -> None:
    with pytest.raises(JsonRefusedError):
        read_plain_scalar(scalar)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_the_recorded_readings_are_those_of_the_kubectl_on_this_machine() -> None:
    rows = table(AGREED) + table(OTHERWISE)
    items = "".join(f"- {scalar}\n" for scalar, _ in rows)
    manifest = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata:\n{items}"
    done = subprocess.run(
        ["kubectl", "patch", "--local", "-f", "-", "--type=merge", "-p", "{}", "-o", "json"],
        input=manifest,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(done.stdout)["data"] == [json.loads(want) for _, want in rows]


@pytest.mark.parametrize(
    "text, want",
    [
        pytest.param("x: 'no'", {"x": "no"}, id="quoted"),
        pytest.param('x: "010"', {"x": "010"}, id="quoted twice"),
        pytest.param("x: !!str no", {"x": "no"}, id="tagged as text"),
        pytest.param("x: &a !!str\n  no\ny1: *a", {"x": "no", "y1": "no"}, id="anchor and tag"),
        pytest.param("x: |\n  no\n", {"x": "no\n"}, id="literal block"),
        pytest.param("x: >-\n  one\n  two\n\n  three\n", {"x": "one two\nthree"}, id="folded block"),
        pytest.param("x: 1\n  2\n", {"x": "1 2"}, id="two lines"),
        pytest.param("1: x\ntrue: z\n", {"1": "x", "true": "z"}, id="keys that stay as they look"),
        pytest.param("\ufeffx: 1\n", {"x": 1}, id="byte order mark"),
    ],
)
def test_what_is_no_plain_scalar_is_read_as_kubectl_reads_it(text: str, want: JsonValue) -> None:
    assert values_of(text) == [want]


def test_a_script_is_read_as_yaml_1_2_alone() -> None:
    found = list(read_documents(b"when: {n: 010, country: no}\n", Reading.YAML_1_2))
    assert [document.value for document in found] == [{"when": {"n": 10, "country": "no"}}]


def test_every_fault_of_a_document_is_found_with_its_place() -> None:
    (document,) = examine_documents(b"a: no\nb: [1, 0777]\nb: 2\nc: fine\n")
    assert [(fault.line, fault.path) for fault in document.faults] == [(1, ("a",)), (2, ("b", 1)), (3, ("b",))]


@pytest.mark.parametrize(
    "text, line, want",
    [
        pytest.param("a: 1\ny: 2\n", 2, "y without quotes means true to kubectl", id="key y"),
        pytest.param("010: x\n", 1, "010 without quotes means 8 to kubectl", id="key in octal"),
        pytest.param("1.10: x\n", 1, "has the key 1.10, which is no text", id="key with a point"),
        pytest.param("True: x\n", 1, "has the key True, which is no text", id="key True"),
        pytest.param("~: x\n", 1, "has the key ~, which is no text", id="key null"),
        pytest.param("a: &b {c: 1}\nd:\n  <<: *b\n", 3, "has a merge key", id="merge key"),
        pytest.param("a: 1\na: 2\n", 2, "field a stands here twice", id="doubled key"),
        pytest.param("a: !!bool yes\n", 1, "has the tag", id="tag"),
        pytest.param("a: !!int '3'\n", 1, "has the tag", id="tag before quotes"),
        pytest.param("a: 1\n...\nb: 2\n", 3, "stands behind ... without ---", id="behind three dots"),
        pytest.param("a: 1\n--- {b: 2}\n", 2, "has content on the line of ---", id="beside three dashes"),
        pytest.param("%YAML 1.1\n---\na: 1\n", 1, "has a directive", id="directive"),
        pytest.param("x: &a v\n---\nz: *a\n", 3, "is no YAML: found undefined alias", id="alias of another document"),
    ],
)
def test_what_kubectl_reads_otherwise_or_not_at_all_is_refused_with_its_line(text: str, line: int, want: str) -> None:
    with pytest.raises(YamlRefusedError) as refused:
        values_of(text)
    assert want in refused.value.problem
    assert refused.value.line == line
    assert refused.value.remedy
