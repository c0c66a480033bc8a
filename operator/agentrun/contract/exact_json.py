"""JSON as the product understands it: exact numbers, no surprises, one canonical text.

Everything that is hashed, compared or sent between the planes goes through here: manifests' free-form
values, params, results, orders and reports. Numbers keep their value and nothing passes through a binary float: an
integral number within int64 is an ``int`` however it was written (``5.0``, ``1e2``, ``-0``), any other is a
:class:`decimal.Decimal`. What is judged by a schema is therefore the very value that goes on.

It deliberately does not know schemas; it only says what a JSON value may be at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring  # the C-accelerated RFC 8259 string writer
from typing import Any, TypeAlias

JsonValue: TypeAlias = "None | bool | int | Decimal | str | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = dict[str, Any]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_DEPTH = 64
"""Deeper values are refused: validators and writers are recursive, and no tool's params are that deep."""
MAX_DIGITS = 64
"""Numbers with more significant digits are refused."""
_MAX_EXPONENT, _MIN_EXPONENT = 308, -324
"""Decimal exponents of the largest and the smallest IEEE double; other readers of JSON know no further numbers."""
_MAX_FINITE = Decimal("1.7976931348623157e308")
_NOT_INT64 = "integer outside int64: pass it as a string"


class JsonRefusedError(ValueError):
    """A text or value is not JSON that can be carried exactly.

    ``path`` is the place inside the value (``items[2].price``), empty for the value itself.
    """

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.problem = problem
        self.path = path


def parse_json(text: str | bytes) -> JsonValue:
    """Parse one JSON text, keeping every number exact.

    Raises :class:`JsonRefusedError` for anything that is not strict RFC 8259 JSON, for doubled keys, NaN and
    infinities, numbers no IEEE double could hold, integers beyond int64, lone surrogates, NUL characters, a byte
    order mark and nesting beyond :data:`MAX_DEPTH`.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise JsonRefusedError(f"not UTF-8 at byte {error.start}") from error
    try:
        value = json.loads(
            text,
            parse_float=_read_decimal,
            parse_int=_read_integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object_without_doubled_keys,
        )
    except RecursionError as error:
        raise JsonRefusedError(f"nested deeper than {MAX_DEPTH} levels") from error
    except JsonRefusedError:
        raise
    except ValueError as error:
        raise JsonRefusedError(f"not valid JSON: {error}") from error
    return admit_json(value)


def admit_json(value: object) -> JsonValue:
    """Return the value as exact JSON, or refuse it.

    Takes what JSON and YAML readers produce (mappings, sequences, floats, ``Decimal``); floats become the decimal
    that their shortest text says. Raises :class:`JsonRefusedError` with the path of the first offender.
    """
    try:
        return _admit_plain(value, 0)
    except _NotPlainError:
        return _admit(value, "", 0)


def canonical_json(value: JsonValue) -> str:
    """Write the one canonical text of a value: RFC 8785 key order and strings, numbers as exact decimals.

    Integral numbers within int64 are written as integers (``5.0`` and ``5`` are one value, ``-0`` is ``0``), others
    with all their digits and without trailing zeros, so texts are equal exactly when values are. Beyond int64 and
    below 1e-6 an exponent is written (``1e+20``): readers would take long digits for an integer. The text is valid
    JSON, :func:`parse_json` reads it back, and it is what goes over the wire as well.
    """
    out: list[str] = []
    _write(value, out)
    return "".join(out)


def json_digest(value: JsonValue) -> str:
    """Return ``sha256:<hex>`` of the canonical text."""
    return f"sha256:{hashlib.sha256(canonical_json(value).encode()).hexdigest()}"


def plain_json(value: JsonValue) -> Any:
    """Return the value with integral decimals as ``int``, others as ``float``, for libraries that know no ``Decimal``.

    The floats are for judging only (schemas, printing); the exact value stays where it was.
    """
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_json(item) for item in value]
    return value


def _read_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:  # an exponent of more than eighteen digits
        raise JsonRefusedError(f"{_cut(text)} has an exponent that no JSON number has") from error


def _read_integer(text: str) -> int:
    if len(text) > 20:  # before int(), which is slow on long texts; JSON allows no leading zeros
        raise JsonRefusedError(_NOT_INT64)
    return int(text)


def _refuse_constant(name: str) -> None:
    raise JsonRefusedError(f"{name} is not a JSON number")


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _object_without_doubled_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonRefusedError(f"key {_cut(repr(key))} stands twice in one object")
            seen.add(key)
    return members


class _NotPlainError(Exception):
    """A value is to be looked at closely: it may be refused, with its path, or is of a kind that is converted."""


def _admit_plain(value: Any, depth: int) -> JsonValue:
    """Admit what nearly every value is made of: as :func:`_admit` does, in less time."""
    kind = type(value)
    if depth > MAX_DEPTH:
        raise _NotPlainError
    if kind is str:
        return _plain_text(value)
    if value is None or kind is bool:
        return None if value is None else bool(value)
    if kind is int and INT64_MIN <= value <= INT64_MAX:
        return int(value)
    if kind is dict:
        return {_plain_text(key): _admit_plain(item, depth + 1) for key, item in value.items()}
    if kind is list:
        return [_admit_plain(item, depth + 1) for item in value]
    raise _NotPlainError


def _plain_text(text: Any) -> str:
    if type(text) is not str or "\x00" in text:
        raise _NotPlainError
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _NotPlainError from error
    return text


def _admit(value: object, path: str, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise JsonRefusedError(f"nested deeper than {MAX_DEPTH} levels", path)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _admit_text(value, path)
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise JsonRefusedError(_NOT_INT64, path)
        return int(value)
    if isinstance(value, float):
        return _admit_decimal(Decimal(repr(value)), path)
    if isinstance(value, Decimal):
        return _admit_decimal(value, path)
    if isinstance(value, Mapping):
        members: dict[str, JsonValue] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise JsonRefusedError(f"key {_cut(repr(key))} is not a string: quote it", path)
            name = _admit_text(key, path)
            members[name] = _admit(item, f"{path}.{name}" if path else name, depth + 1)
        return members
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_admit(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise JsonRefusedError(f"{type(value).__name__} is not a JSON type", path)


def _admit_text(text: str, path: str) -> str:
    if "\x00" in text:
        raise JsonRefusedError("NUL character in a string", path)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise JsonRefusedError("lone surrogate in a string", path) from error
    return str(text)


def _admit_decimal(number: Decimal, path: str) -> int | Decimal:
    if not number.is_finite():
        raise JsonRefusedError(f"{number} is not a JSON number", path)
    digits, exponent = _significant(number)
    # before anything is computed: 1e999999 as an integer would have a million digits
    if len(digits) + exponent - 1 > _MAX_EXPONENT or number.copy_abs() > _MAX_FINITE:
        raise JsonRefusedError(f"{_cut(str(number))} is larger than any JSON number", path)
    if len(digits) + exponent - 1 < _MIN_EXPONENT:
        raise JsonRefusedError(f"{_cut(str(number))} is smaller than any JSON number but zero", path)
    if len(digits) > MAX_DIGITS:
        raise JsonRefusedError(f"number with more than {MAX_DIGITS} digits: pass it as a string", path)
    if exponent >= 0 and INT64_MIN <= (whole := int(number)) <= INT64_MAX:
        return whole
    return number


def _significant(number: Decimal) -> tuple[str, int]:
    """Return the digits without zeros at either end, and the exponent of ten they are multiplied with."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"{number} has no canonical JSON text; admit_json it first")
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    return (significant, exponent + len(text) - len(significant)) if significant else ("0", 0)


def _write(value: JsonValue, out: list[str]) -> None:
    # What most of a document consists of comes first.
    if isinstance(value, str):
        out.append(encode_basestring(value))
    elif isinstance(value, dict):
        before = "{"
        for key in _in_order(value):
            item = value[key]
            if isinstance(item, str):
                out.append(f"{before}{encode_basestring(key)}:{encode_basestring(item)}")
            else:
                out.append(f"{before}{encode_basestring(key)}:")
                _write(item, out)
            before = ","
        out.append("}" if before == "," else "{}")
    elif value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, int):
        out.append(str(value))
    elif isinstance(value, Decimal):
        out.append(_number_text(value))
    elif isinstance(value, list | tuple):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out)
        out.append("]")
    else:  # a float or a foreign type slipped past admit_json: a programming error, not a user's
        raise TypeError(f"{type(value).__name__} has no canonical JSON text; admit_json it first")


def _in_order(keys: Mapping[str, JsonValue]) -> list[str]:
    # Of ASCII alone the order by code points is the order by UTF-16.
    return sorted(keys) if "".join(keys).isascii() else sorted(keys, key=_utf16_order)


def _utf16_order(key: str) -> bytes:
    return key.encode("utf-16-be")


def _number_text(number: Decimal) -> str:
    digits, exponent = _significant(number)
    sign = "-" if number.is_signed() and digits != "0" else ""
    adjusted = len(digits) + exponent - 1
    if exponent >= 0 and adjusted < 19 and INT64_MIN <= (whole := int(number)) <= INT64_MAX:
        return str(whole)
    if exponent < 0 and adjusted >= -6:
        padded = digits.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{sign}{mantissa}e{adjusted:+d}"
