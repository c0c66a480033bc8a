"""Judging manifests that were read: what admission and the gate would refuse, by the very code of both.

Serves ``agentrun validate`` and local mode. It reads no files, and knows of the cluster only what stands in them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Reason
from agentrun.contract.tool import AgentTool
from agentrun.decisions.admission import Violation, ViolationKind, find_tool_violations, find_violations
from agentrun.decisions.facts import Problem
from agentrun.engine.schema_checker import to_problems
from agentrun.local.manifests import Manifest, ManifestProblem, Manifests
from agentrun.local.param_misfits import find_misfits
from agentrun.local.yaml_documents import FieldPath
from agentrun.schemas.validator import SchemaValidator


def find_problems(manifests: Manifests, validator: SchemaValidator) -> tuple[ManifestProblem, ...]:
    """Return what admission and the gate would refuse in what was read, in order of file and line.

    A tool that may stand in what was not read is not said to be missing; :func:`find_limits` says that.
    """
    return tuple(sorted(_find(manifests, validator)))


def find_limits(manifests: Manifests) -> tuple[str, ...]:
    """Return, as sentences, what could not be looked at because of the problems of reading."""
    said = []
    for unread in sorted(manifests.unread):
        place = f"{unread.file}:{unread.line}: "
        named = f"{unread.kind} {unread.name}".strip()
        if unread.kind == "AgentTool":
            said.append(f"{place}{named} could not be read: its schemas, and calls of it, were not looked at")
        elif unread.kind:
            said.append(f"{place}{named} could not be read: its references, tools and params were not looked at")
        else:
            said.append(f"{place}what stands from here on was not read; whether a tool is missing was not looked at")
    return tuple(said)


def _may_stand_in_unread(manifests: Manifests, namespace: str, tool: str) -> bool:
    return any(
        not unread.kind or (unread.kind, unread.namespace, unread.name) == ("AgentTool", namespace, tool)
        for unread in manifests.unread
    )


def _find(manifests: Manifests, validator: SchemaValidator) -> Iterator[ManifestProblem]:
    def check_schema(schema: JsonObject) -> tuple[Problem, ...]:
        return to_problems(validator.check(schema))

    by_namespace: dict[str, dict[str, AgentTool]] = {}
    for tool in manifests.tools:
        by_namespace.setdefault(tool.metadata.namespace, {})[tool.metadata.name] = tool
    for tool in manifests.tools:
        near = {name: other.spec for name, other in by_namespace[tool.metadata.namespace].items()}
        for violation in find_tool_violations(tool.metadata.name, tool.spec, near, check_schema):
            if _may_be_missing_only(violation) and _may_stand_in_unread(
                manifests, tool.metadata.namespace, violation.value
            ):
                continue
            yield _problem(manifests, tool, violation, near)
    for run in manifests.runs:
        near = {name: other.spec for name, other in by_namespace.get(run.metadata.namespace, {}).items()}
        for violation in find_violations(run.spec, near, None):
            # An invalid tool has been named above already.
            if violation.kind is ViolationKind.PENDING and violation.value in near:
                continue
            if _may_be_missing_only(violation) and _may_stand_in_unread(
                manifests, run.metadata.namespace, violation.value
            ):
                continue
            yield _problem(manifests, run, violation, near)
        source = manifests.source_of(run)
        for field_text, message in find_misfits(run.spec, near, validator):
            line = source.document.line_of(_parse_field(field_text))
            yield ManifestProblem(
                source.file, line, field_text, message, "write what the tool's params schema asks for"
            )
        if run.spec.cancel:
            yield ManifestProblem(
                source.file,
                source.document.line_of(("spec", "cancel")),
                "spec.cancel",
                "is true: the run would be cancelled before it begins",
                "remove the field",
            )


def _problem(
    manifests: Manifests, manifest: Manifest, violation: Violation, tools: Mapping[str, object]
) -> ManifestProblem:
    source = manifests.source_of(manifest)
    line = source.document.line_of(_parse_field(violation.field))
    message = violation.message if violation.value in violation.message else f"{violation.message} ({violation.value})"
    remedy = violation.remedy
    known = [*tools, *(unread.name for unread in manifests.unread if unread.kind == "AgentTool")]
    near = difflib.get_close_matches(violation.value, known, 1) if _may_be_missing_only(violation) else []
    if near:
        remedy = f"did you mean {near[0]}? Else {remedy}"
    return ManifestProblem(source.file, line, violation.field, message, remedy)


def _may_be_missing_only(violation: Violation) -> bool:
    return violation.reason is Reason.TOOL_NOT_FOUND


def _parse_field(text: str) -> FieldPath:
    """Read a field such as ``spec.nodes[2].params.left``; names with dots in them are found by their beginning."""
    parts: list[str | int] = []
    for piece in text.replace("[", ".[").split("."):
        if piece.startswith("[") and piece.endswith("]") and piece[1:-1].isdigit():
            parts.append(int(piece[1:-1]))
        elif piece:
            parts.append(piece)
    return tuple(parts)
