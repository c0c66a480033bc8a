"""YAML files as exact JSON values with the line of every field.

What kubectl would read otherwise, or not at all, is refused with its place: scalars that mean something else to it,
merge keys, doubled keys, tags, directives, and what stands behind ``...``. So is what JSON cannot carry exactly, and
aliases that multiply. A script, which kubectl never sees, is read as YAML 1.2 alone. Serves manifests, scripts and
``--set``; knows nothing of what they mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agentrun.contract.exact_json import JsonRefusedError, JsonValue, canonical_json, parse_json
from agentrun.local.plain_scalars import AmbiguousScalarError, read_plain_scalar, read_yaml_1_2

FieldPath: TypeAlias = tuple[str | int, ...]

MAX_FILE_BYTES = 4 * 1024 * 1024
_MAX_VALUES = 200_000
"""Values in one document, aliases followed: a few aliases of aliases would make billions."""
_STAND_IN = ""
"""In the place of a value that cannot be taken."""
_TEXT_TAG = "tag:yaml.org,2002:str"
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+|$))*")
"""An anchor and a tag in front of a scalar; no scalar without quotes begins with either sign."""
_DIRECTIVE = re.compile(r"%\S")
_CONTENT_AT_SEPARATOR = re.compile(r"---[ \t]+[^#\s]")
_END_OF_DOCUMENT = re.compile(r"\.\.\.(?=\s|$)")
_SAYS_NOTHING = re.compile(r"\s*(#.*)?$")


class Reading(StrEnum):
    """Who reads the text besides us."""

    AS_KUBECTL = "AsKubectl"
    """kubectl does: what it would read otherwise is a fault."""
    YAML_1_2 = "YAML1.2"
    """Nobody does."""


@dataclass(frozen=True, slots=True)
class YamlFault:
    """One value or key that cannot be taken as it stands; the rest of its document can be read."""

    line: int
    path: FieldPath
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document: its value, and where each field stands."""

    value: JsonValue
    lines: dict[FieldPath, int]
    """Line numbers from 1 by path; a field's line is that of its key."""
    faults: tuple[YamlFault, ...] = ()
    """In order of their lines. What stands in the value at their paths means nothing."""

    def line_of(self, path: FieldPath) -> int:
        """Return the line of the field, or of what is nearest around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def part(self, *path: str | int) -> YamlDocument:
        """Return what stands at a path as a document of its own; raises :class:`LookupError` where nothing does."""
        value: Any = self.value
        for step in path:
            value = value[step]
        length = len(path)
        lines = {found[length:]: line for found, line in self.lines.items() if found[:length] == path}
        faults = tuple(replace(fault, path=fault.path[length:]) for fault in self.faults if fault.path[:length] == path)
        return YamlDocument(value, lines, faults)


class YamlRefusedError(Exception):
    """The text is no YAML that can be read exactly."""

    def __init__(self, line: int, path: FieldPath, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.line = line
        self.path = path
        self.problem = problem
        self.remedy = remedy


def read_documents(data: bytes, reading: Reading = Reading.AS_KUBECTL) -> Iterator[YamlDocument]:
    """Give the documents of a file, empty ones left out. Raises :class:`YamlRefusedError` for the first fault."""
    for document in examine_documents(data, reading):
        for fault in document.faults:
            raise YamlRefusedError(fault.line, fault.path, fault.problem, fault.remedy)
        yield document


def examine_documents(data: bytes, reading: Reading = Reading.AS_KUBECTL) -> Iterator[YamlDocument]:
    """Give the documents of a file with their faults, empty ones left out.

    Raises :class:`YamlRefusedError` where nothing that follows can be read either.
    """
    if len(data) > MAX_FILE_BYTES:
        raise YamlRefusedError(1, (), f"has {len(data)} bytes, at most {MAX_FILE_BYTES} are read", "split the file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise YamlRefusedError(line, (), "is not UTF-8 here", "save the file as UTF-8") from error
    if reading is Reading.AS_KUBECTL:
        _refuse_separators(text)
    try:
        # Not the default reader, which is for writing files back: it puts marks into folded texts.
        for node in YAML(typ="safe", pure=True).compose_all(text):
            if node is not None and not _is_empty(node):
                yield _Builder(text, reading).build(node)
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

    def __init__(self, text: str, reading: Reading) -> None:
        self._text = text
        self._reading = reading
        self._faults: list[YamlFault] = []
        self._lines: dict[FieldPath, int] = {}
        self._count = 0
        self._open: set[int] = set()

    def build(self, root: Node) -> YamlDocument:
        self._lines[()] = root.start_mark.line + 1
        value = self._value(root, ())
        return YamlDocument(value, self._lines, tuple(self._faults))

    def _value(self, node: Node, path: FieldPath) -> JsonValue:
        self._count += 1
        line = node.start_mark.line + 1
        if self._count > _MAX_VALUES:
            raise YamlRefusedError(line, path, "has too many values, aliases included", "use fewer or none")
        if id(node) in self._open:
            raise YamlRefusedError(line, path, "contains itself by an alias", "write the value out")
        match node:
            case ScalarNode():
                return self._scalar(node, path)
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
            name = self._key(key_node, path)
            if name is None:
                continue
            if name in fields:
                self._fault(line, (*path, name), f"field {name} stands here twice", "remove one of them")
                continue
            self._lines[*path, name] = line
            fields[name] = self._value(value_node, (*path, name))
        return fields

    def _fault(self, line: int, path: FieldPath, problem: str, remedy: str) -> None:
        self._faults.append(YamlFault(line, path, problem, remedy))

    def _key(self, node: Node, path: FieldPath) -> str | None:
        line = node.start_mark.line + 1
        if not isinstance(node, ScalarNode):
            self._fault(line, path, "has a key that is no text", "write the fields out")
            return None
        name = str(node.value)
        if name == "<<":
            said = "has a merge key (<<), which does not mean the same to all readers"
            self._fault(line, path, said, "write the fields out")
            return None
        # A key such as 1 or true is a text in JSON.
        if self._reading is Reading.AS_KUBECTL:
            found = len(self._faults)
            value = self._scalar(node, (*path, name))
            self._faults[found:] = [
                replace(fault, remedy=f'put quotes around it: "{name}"') for fault in self._faults[found:]
            ]
            # kubectl writes numbers with a point in half their digits: 1.10 becomes the key 1.1.
            whole = isinstance(value, int | bool) and canonical_json(value) == name
            if len(self._faults) == found and not isinstance(value, str) and not whole:
                said = f"has the key {name or '(nothing)'}, which is no text"
                self._fault(line, path, said, f'put quotes around it: "{name}"')
        return name

    def _scalar(self, node: ScalarNode, path: FieldPath) -> JsonValue:
        line = node.start_mark.line + 1
        text: str = node.value
        try:
            if node.style is None and not self._is_tagged(node):
                return read_plain_scalar(text) if self._reading is Reading.AS_KUBECTL else read_yaml_1_2(text)
            if str(node.tag) == _TEXT_TAG:
                return parse_json(_quoted(text))
        except JsonRefusedError as error:
            remedy = "write the value as a quoted text, or correct it"
            self._fault(line, path, f"cannot be carried exactly: {error.problem}", remedy)
            return _STAND_IN
        except AmbiguousScalarError as error:
            self._fault(line, path, str(error), error.remedy)
            return _STAND_IN
        self._fault(line, path, f"has the tag {node.tag}, which is not read", "remove the tag, or quote the value")
        return _STAND_IN

    def _is_tagged(self, node: ScalarNode) -> bool:
        written = self._text[node.start_mark.index : node.end_mark.index]
        properties = _PROPERTIES.match(written)
        return properties is not None and "!" in (part[0] for part in properties[0].split())


def _refuse_separators(text: str) -> None:
    """Refuse what kubectl does not take for the border of two documents, or leaves out silently."""
    ended_at = 0
    for at, line in enumerate(text.splitlines(), start=1):
        if _DIRECTIVE.match(line):
            raise YamlRefusedError(at, (), f"has a directive ({line[:40]}), which kubectl does not read", "remove it")
        if _CONTENT_AT_SEPARATOR.match(line):
            said = "has content on the line of ---, which kubectl does not read"
            raise YamlRefusedError(at, (), said, "begin the document on the next line")
        if line.startswith("---"):
            ended_at = 0
        elif _END_OF_DOCUMENT.match(line):
            ended_at = at
        elif ended_at and not _SAYS_NOTHING.match(line):
            said = "stands behind ... without ---: kubectl leaves it out"
            raise YamlRefusedError(at, (), said, f"write --- instead of ... in line {ended_at}")


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
