"""What a scalar without quotes means: to YAML 1.2, and to kubectl, which reads YAML 1.1 in go-yaml v2's way.

Serves :mod:`agentrun.local.yaml_documents`. A file must mean the same here and on a cluster, so a scalar is read where
both agree (``true``, ``5``, ``0x1f``, ``2001-01-01``), and refused where they do not (``no``, ``010``, ``1_000``): to
follow kubectl silently would turn the country ``no`` into ``false``. Knows scalars alone, no documents.
"""

from __future__ import annotations

import re
from decimal import Decimal

from agentrun.contract.exact_json import JsonRefusedError, JsonValue, admit_json, canonical_json, parse_json

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
# go-yaml v2, resolve.go: resolveMapList.
_TRUE_TO_KUBECTL = _TRUE | {"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
_FALSE_TO_KUBECTL = _FALSE | {"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
"""YAML has them, JSON does not: kubectl refuses them as well."""
_INTEGER = re.compile(r"[-+]?[0-9]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_OCTAL = re.compile(r"0o[0-7]+")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# strconv.ParseInt with base 0: what stands before the digits says their base.
_KUBECTL_BASES = (
    (re.compile(r"0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"0[bB]([01]+)"), 2),
    (re.compile(r"0[oO]?([0-7]+)"), 8),
    (re.compile(r"(0|[1-9][0-9]*)"), 10),
)
_UINT64_MAX = 2**64 - 1


class AmbiguousScalarError(Exception):
    """A scalar means one thing to kubectl and another to YAML 1.2."""

    def __init__(self, text: str, to_kubectl: JsonValue, to_others: JsonValue) -> None:
        others = "a text" if isinstance(to_others, str) else canonical_json(to_others)
        shown = "a text" if isinstance(to_kubectl, str) else canonical_json(to_kubectl)
        super().__init__(f"{text} without quotes means {shown} to kubectl and {others} to YAML 1.2")
        unquoted = f"write {shown}, or " if not isinstance(to_kubectl, str) else ""
        self.remedy = f'{unquoted}put quotes around it: "{text}"'


def read_plain_scalar(text: str) -> JsonValue:
    """Return the value of a scalar that stands without quotes and without a tag.

    Raises :class:`AmbiguousScalarError`, and :class:`~agentrun.contract.exact_json.JsonRefusedError` for a number that
    JSON cannot carry exactly.
    """
    value, to_kubectl = read_yaml_1_2(text), _read_as_kubectl(text)
    # As texts: to Python True is 1.
    if canonical_json(value) != canonical_json(to_kubectl):
        raise AmbiguousScalarError(text, to_kubectl, value)
    return value


def read_yaml_1_2(text: str) -> JsonValue:
    """Return the value by the core schema alone (YAML 1.2.2, section 10.3.2).

    Raises :class:`~agentrun.contract.exact_json.JsonRefusedError`.
    """
    if text in _NULL:
        return None
    if text in _TRUE | _FALSE:
        return text in _TRUE
    if _HEXADECIMAL.fullmatch(text) or _OCTAL.fullmatch(text):
        return parse_json(str(int(text, 0)))
    if _INTEGER.fullmatch(text):
        return parse_json(str(Decimal(text)))
    if _DECIMAL.fullmatch(text):
        return parse_json(_json_number(text))
    if _NO_NUMBER.fullmatch(text):
        raise JsonRefusedError(f"{text} is no JSON number")
    return admit_json(text)


def _read_as_kubectl(text: str) -> JsonValue:
    """Read as go-yaml v2's ``resolve`` does, and as Go writes the value as JSON."""
    if text in _NULL:
        return None
    if text in _TRUE_TO_KUBECTL | _FALSE_TO_KUBECTL:
        return text in _TRUE_TO_KUBECTL
    if text[0] == ".":
        return _float(text)
    if text[0] in "+-0123456789":
        digits = text.replace("_", "")
        integer = _integer(digits)
        return _float(digits, text) if integer is None else integer
    return text


def _integer(digits: str) -> JsonValue:
    sign, unsigned = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
    for form, base in _KUBECTL_BASES:
        found = form.fullmatch(unsigned)
        if found is None:
            continue
        number = int(found[1], base) * (-1 if sign == "-" else 1)
        if -(2**63) <= number < 2**63:
            return number
        # Beyond int64 a number without a sign is unsigned; what reads its JSON makes a float of it.
        return _float(str(number)) if number <= _UINT64_MAX and not sign else None
    return None


def _float(digits: str, text: str | None = None) -> JsonValue:
    if _DECIMAL.fullmatch(digits):
        number = float(digits)
        if number not in (float("inf"), float("-inf")):
            return admit_json(number)
    return text or digits


def _json_number(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    digits, _, exponent = text.lstrip("+-").lower().partition("e")
    whole, _, fraction = digits.partition(".")
    number = f"{sign}{whole.lstrip('0') or '0'}"
    if fraction:
        number += f".{fraction}"
    return f"{number}e{exponent}" if exponent else number
