"""Reading manifest files: tools and runs as the contract's models, and every problem with file, line, field and remedy.

Serves ``agentrun validate`` and local mode. What is checked is what the operator checks at admission, by the same code.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.object_meta import API_VERSION
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.decisions.admission import Violation, ViolationKind, find_tool_violations, find_violations
from agentrun.decisions.facts import Problem
from agentrun.decisions.value_paths import format_path
from agentrun.engine.schema_checker import to_problems
from agentrun.local.model_errors import explain_errors
from agentrun.local.param_misfits import find_misfits
from agentrun.local.yaml_documents import FieldPath, YamlDocument, YamlRefusedError, read_documents
from agentrun.schemas.validator import SchemaValidator

Manifest: TypeAlias = AgentTool | AgentRun
_KINDS: dict[str, type[AgentTool] | type[AgentRun]] = {"AgentTool": AgentTool, "AgentRun": AgentRun}
_WRITTEN_BY_OTHERS = {
    "AgentNode": "the operator creates the nodes of a run itself",
    "AgentApproval": "the operator creates approvals; answer one by patching its spec.decision",
}
STDIN = "/dev/stdin"
"""Another name of ``-``."""
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, order=True)
class ManifestProblem:
    """One thing that is wrong with a manifest."""

    file: str
    line: int
    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: "
        named = f"{self.field}: " if self.field else ""
        return f"{place}{named}{self.message}; {self.remedy}" if self.remedy else f"{place}{named}{self.message}"


class ManifestsRefusedError(Exception):
    """The files cannot be used; ``problems`` says why, in order."""

    def __init__(self, problems: Sequence[ManifestProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Source:
    """Where an object was read from."""

    file: str
    document: YamlDocument


@dataclass(slots=True)
class Manifests:
    """Everything that was read."""

    tools: list[AgentTool] = field(default_factory=list)
    runs: list[AgentRun] = field(default_factory=list)
    sources: dict[tuple[str, str, str], Source] = field(default_factory=dict)
    """By (kind, namespace, name)."""

    def source_of(self, manifest: Manifest) -> Source:
        """Return where an object was read from."""
        return self.sources[_key(manifest)]

    @property
    def folders(self) -> list[Path]:
        """The folders the files stand in, each once: where a tool's own Python file is looked for."""
        files = (Path(source.file) for source in self.sources.values() if source.file != "-")
        return list(dict.fromkeys(file.resolve().parent for file in files))


Override: TypeAlias = Callable[[JsonObject], JsonObject]
"""Changes an AgentRun's raw manifest before it is read (``--set``)."""


def load_manifests(
    paths: Sequence[str], read_stdin: Callable[[], bytes], override: Override | None = None
) -> Manifests:
    """Read files, folders (their YAML and JSON files, by name, without scripts) or ``-``.

    Raises :class:`ManifestsRefusedError` with every problem that can be found without the others being mended.
    """
    loaded = Manifests()
    problems: list[ManifestProblem] = []
    for name, data in _read_files(paths, read_stdin, problems):
        try:
            for document in read_documents(data):
                _take_in(loaded, name, document, problems, override)
        except YamlRefusedError as error:
            field_text = format_path(error.path) if error.path else ""
            problems.append(ManifestProblem(name, error.line, field_text, error.problem, error.remedy))
    if not problems and not loaded.tools and not loaded.runs:
        problems.append(ManifestProblem(", ".join(paths), 1, "", "holds no AgentTool and no AgentRun", "add one"))
    if problems:
        raise ManifestsRefusedError(sorted(problems))
    return loaded


def find_problems(manifests: Manifests, validator: SchemaValidator) -> tuple[ManifestProblem, ...]:
    """Return what admission and the gate would refuse, in order of file and line."""
    return tuple(sorted(_find(manifests, validator)))


def _find(manifests: Manifests, validator: SchemaValidator) -> Iterator[ManifestProblem]:
    def check_schema(schema: JsonObject) -> tuple[Problem, ...]:
        return to_problems(validator.check(schema))

    by_namespace: dict[str, dict[str, AgentTool]] = {}
    for tool in manifests.tools:
        by_namespace.setdefault(tool.metadata.namespace, {})[tool.metadata.name] = tool
    for tool in manifests.tools:
        near = {name: other.spec for name, other in by_namespace[tool.metadata.namespace].items()}
        for violation in find_tool_violations(tool.metadata.name, tool.spec, near, check_schema):
            yield _problem(manifests, tool, violation, near)
    for run in manifests.runs:
        near = {name: other.spec for name, other in by_namespace.get(run.metadata.namespace, {}).items()}
        for violation in find_violations(run.spec, near, None):
            # An invalid tool has been named above already.
            if violation.kind is ViolationKind.PENDING and violation.value in near:
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
    near = difflib.get_close_matches(violation.value, tools, 1) if "does not exist" in message else []
    if near:
        remedy = f"did you mean {near[0]}? Else {remedy}"
    return ManifestProblem(source.file, line, violation.field, message, remedy)


def _take_in(
    loaded: Manifests,
    name: str,
    document: YamlDocument,
    problems: list[ManifestProblem],
    override: Override | None,
) -> None:
    raw = document.value
    refusal = _refuse_kind(name, document)
    if refusal is not None or not isinstance(raw, dict):
        problems.append(refusal or ManifestProblem(name, document.line_of(()), "", "is no object", "write a manifest"))
        return
    kind = str(raw["kind"])
    # Whatever another cluster wrote there: a manifest says what is wanted, never what was.
    raw = {key: value for key, value in raw.items() if key != "status"}
    if kind == "AgentRun" and override is not None:
        raw = override(raw)
    try:
        read = _KINDS[kind].from_wire(raw)
    except ValidationError as error:
        for path, message, remedy in explain_errors(error, _KINDS[kind]):
            problems.append(ManifestProblem(name, document.line_of(path), _field_text(path), message, remedy))
        return
    key = _key(read)
    if key in loaded.sources:
        first = loaded.sources[key]
        said = f"{kind} {read.metadata.name} stands in {first.file}:{first.document.line_of(())} already"
        problems.append(ManifestProblem(name, document.line_of(("metadata", "name")), "metadata.name", said, "rename"))
        return
    loaded.sources[key] = Source(name, document)
    if isinstance(read, AgentTool):
        loaded.tools.append(read)
    else:
        loaded.runs.append(read)


def _refuse_kind(name: str, document: YamlDocument) -> ManifestProblem | None:
    raw = document.value
    if not isinstance(raw, dict):
        said = "is no Kubernetes object"
        return ManifestProblem(name, document.line_of(()), "", said, "write apiVersion, kind, metadata and spec")
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if version != API_VERSION:
        said = f"is {_show(version)}" if "apiVersion" in raw else "is missing"
        return ManifestProblem(name, document.line_of(("apiVersion",)), "apiVersion", said, f"write {API_VERSION}")
    if kind in _KINDS:
        return None
    line = document.line_of(("kind",))
    if kind in _WRITTEN_BY_OTHERS:
        return ManifestProblem(name, line, "kind", f"is {kind}", f"remove it: {_WRITTEN_BY_OTHERS[str(kind)]}")
    near = difflib.get_close_matches(str(kind), _KINDS, 1)
    remedy = f"did you mean {near[0]}?" if near else f"write one of {', '.join(_KINDS)}"
    return ManifestProblem(name, line, "kind", f"is {_show(kind)}" if "kind" in raw else "is missing", remedy)


def _read_files(
    paths: Sequence[str], read_stdin: Callable[[], bytes], problems: list[ManifestProblem]
) -> Iterator[tuple[str, bytes]]:
    for text in paths:
        if text in ("-", STDIN):
            yield "-", read_stdin()
            continue
        path = Path(text)
        files = _files_in(path) if path.is_dir() else [path]
        if not files:
            problems.append(ManifestProblem(text, 1, "", "holds no YAML or JSON file", "name a file"))
        for file in files:
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                said = f"cannot be read: {error.strerror or error}"
                problems.append(ManifestProblem(str(file), 1, "", said, "check the path"))


def _files_in(folder: Path) -> list[Path]:
    # A scenario's script stands beside its manifests and is none itself.
    found = (file for file in folder.iterdir() if file.suffix in _SUFFIXES and not file.stem.endswith("script"))
    return sorted(found)


def _parse_field(text: str) -> FieldPath:
    """Read a field such as ``spec.nodes[2].params.left``; names with dots in them are found by their beginning."""
    parts: list[str | int] = []
    for piece in text.replace("[", ".[").split("."):
        if piece.startswith("[") and piece.endswith("]") and piece[1:-1].isdigit():
            parts.append(int(piece[1:-1]))
        elif piece:
            parts.append(piece)
    return tuple(parts)


def _field_text(path: FieldPath) -> str:
    return format_path(path) if path else ""


def _key(manifest: Manifest) -> tuple[str, str, str]:
    return manifest.kind, manifest.metadata.namespace, manifest.metadata.name


def _show(value: JsonValue) -> str:
    return repr(value) if isinstance(value, str) else str(value)
