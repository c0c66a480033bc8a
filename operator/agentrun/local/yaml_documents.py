"""YAML files as exact JSON values with the line of every field.

YAML 1.2, so that ``no``, ``1_0`` and ``0o7`` mean what Kubernetes reads. What JSON cannot carry exactly, doubled keys,
tags and aliases that multiply are refused with their place. Knows nothing of manifests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agentrun.contract.exact_json import JsonRefusedError, JsonValue, parse_json

FieldPath: TypeAlias = tuple[str | int, ...]

MAX_FILE_BYTES = 4 * 1024 * 1024
_MAX_VALUES = 200_000
"""Values in one document, aliases followed: a few aliases of aliases would make billions."""
_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_OCTAL = re.compile(r"0o[0-7]+")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document: its value, and where each field stands."""

    value: JsonValue
    lines: dict[FieldPath, int]
    """Line numbers from 1 by path; a field's line is that of its key."""

    def line_of(self, path: FieldPath) -> int:
        """Return the line of the field, or of what is nearest around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class YamlRefusedError(Exception):
    """The text is no YAML that can be read exactly."""

    def __init__(self, line: int, path: FieldPath, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.line = line
        self.path = path
        self.problem = problem
        self.remedy = remedy


def read_documents(data: bytes) -> Iterator[YamlDocument]:
    """Give the documents of a file, empty ones left out. Raises :class:`YamlRefusedError`."""
    if len(data) > MAX_FILE_BYTES:
        raise YamlRefusedError(1, (), f"has {len(data)} bytes, at most {MAX_FILE_BYTES} are read", "split the file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise YamlRefusedError(line, (), "is not UTF-8 here", "save the file as UTF-8") from error
    try:
        for node in YAML(pure=True).compose_all(text):
            if node is not None and not _is_empty(node):
                yield _Builder().build(node)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        said = error.problem or error.context or "is no YAML"
        raise YamlRefusedError(line, (), f"is no YAML: {said}", _syntax_remedy(said)) from error
    except YAMLError as error:
        said = " ".join(str(error).split())
        raise YamlRefusedError(_line_in(said), (), f"is no YAML: {said[:200]}", "remove the character") from error
    except RecursionError as error:
        raise YamlRefusedError(1, (), "is nested too deeply", "flatten it") from error


class _Builder:
    """Builds one document's value."""

    def __init__(self) -> None:
        self._lines: dict[FieldPath, int] = {}
        self._count = 0
        self._open: set[int] = set()

    def build(self, root: Node) -> YamlDocument:
        self._lines[()] = root.start_mark.line + 1
        return YamlDocument(self._value(root, ()), self._lines)

    def _value(self, node: Node, path: FieldPath) -> JsonValue:
        self._count += 1
        line = node.start_mark.line + 1
        if self._count > _MAX_VALUES:
            raise YamlRefusedError(line, path, "has too many values, aliases included", "use fewer or none")
        if id(node) in self._open:
            raise YamlRefusedError(line, path, "contains itself by an alias", "write the value out")
        match node:
            case ScalarNode():
                return _scalar(node, path)
            case SequenceNode():
                self._open.add(id(node))
                items = [self._item(child, (*path, at)) for at, child in enumerate(node.value)]
                self._open.discard(id(node))
                return items
            case MappingNode():
                self._open.add(id(node))
                fields = self._fields(node, path)
                self._open.discard(id(node))
                return fields
            case _:
                raise YamlRefusedError(line, path, "is no value", "write a scalar, a list or a mapping")

    def _item(self, node: Node, path: FieldPath) -> JsonValue:
        self._lines[path] = node.start_mark.line + 1
        return self._value(node, path)

    def _fields(self, node: MappingNode, path: FieldPath) -> dict[str, JsonValue]:
        fields: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            if key is None or key == "<<":
                raise YamlRefusedError(line, path, "has a key that is no plain text", "write the fields out")
            # A key such as 1 or true is a text in JSON, whatever YAML would make of it.
            name = str(key)
            if name in fields:
                raise YamlRefusedError(line, (*path, name), f"field {name} stands here twice", "remove one of them")
            self._lines[*path, name] = line
            fields[name] = self._value(value_node, (*path, name))
        return fields


def _scalar(node: ScalarNode, path: FieldPath) -> JsonValue:
    line = node.start_mark.line + 1
    text: str = node.value
    tag = str(node.tag).removeprefix(_TAG)
    try:
        match tag:
            case "str":
                return parse_json(_quoted(text))
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" | "float":
                return _number(text)
            case "timestamp":
                return text
            case _:
                remedy = "remove the tag; values are read as they look"
                raise YamlRefusedError(line, path, f"has the tag {node.tag}, which is not read", remedy)
    except JsonRefusedError as error:
        remedy = "write the value as a quoted text, or correct it"
        raise YamlRefusedError(line, path, f"cannot be carried exactly: {error.problem}", remedy) from error


def _number(text: str) -> JsonValue:
    if _HEXADECIMAL.fullmatch(text) or _OCTAL.fullmatch(text):
        return parse_json(str(int(text, 0)))
    if _INTEGER.fullmatch(text):
        return parse_json(str(int(text)))
    if _DECIMAL.fullmatch(text):
        return parse_json(_json_number(text))
    if text.lower().lstrip("+-") in (".inf", ".nan"):
        raise JsonRefusedError(f"{text} is no JSON number")
    # 1_000 and the like are numbers in YAML 1.1 alone.
    return text


def _json_number(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    digits, _, exponent = text.lstrip("+-").lower().partition("e")
    whole, _, fraction = digits.partition(".")
    number = f"{sign}{int(whole or '0')}"
    if fraction:
        number += f".{fraction}"
    return f"{number}e{exponent}" if exponent else number


def _quoted(text: str) -> str:
    # Through the one reader of texts, which refuses NUL and lone surrogates.
    return json.dumps(text, ensure_ascii=True)


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value == "" and not node.style


def _syntax_remedy(said: str) -> str:
    if "\\t" in said or "tab" in said.lower():
        return "indent with blanks, never with tabs"
    return "check indentation, colons and quotes"


def _line_in(said: str) -> int:
    found = re.search(r"line (\d+)", said)
    return int(found[1]) if found else 1
