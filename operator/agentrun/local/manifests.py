"""Reading manifest files: tools and runs as the contract's models, and what cannot be read with file, line and remedy.

Serves ``agentrun validate`` and local mode. What the objects mean is judged in :mod:`agentrun.local.manifest_check`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.object_meta import API_VERSION
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.decisions.value_paths import format_path
from agentrun.local.model_errors import explain_errors
from agentrun.local.object_names import find_name_faults
from agentrun.local.yaml_documents import FieldPath, YamlDocument, YamlRefusedError, examine_documents

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


@dataclass(frozen=True, slots=True, order=True)
class Unread:
    """What could not be read, and so could not be judged: an object, or the rest of a file from ``line`` on."""

    file: str
    line: int
    kind: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(slots=True)
class Manifests:
    """Everything that was read."""

    tools: list[AgentTool] = field(default_factory=list)
    runs: list[AgentRun] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    """What was wrong with the rest, in order of file and line."""
    unread: list[Unread] = field(default_factory=list)
    """What the rest is."""
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

    Raises :class:`ManifestsRefusedError` with every problem of reading.
    """
    loaded = read_manifests(paths, read_stdin, override)
    if loaded.problems:
        raise ManifestsRefusedError(loaded.problems)
    return loaded


def read_manifests(
    paths: Sequence[str], read_stdin: Callable[[], bytes], override: Override | None = None
) -> Manifests:
    """Read what can be read as :func:`load_manifests` does; what cannot stands in ``problems`` and ``unread``."""
    loaded = Manifests()
    for name, data in _read_files(paths, read_stdin, loaded):
        try:
            for document in examine_documents(data):
                for part in _objects_in(document):
                    _take_in(loaded, name, part, override)
        except YamlRefusedError as error:
            field_text = format_path(error.path) if error.path else ""
            loaded.problems.append(ManifestProblem(name, error.line, field_text, error.problem, error.remedy))
            loaded.unread.append(Unread(name, error.line))
    if not (loaded.problems or loaded.tools or loaded.runs):
        loaded.problems.append(
            ManifestProblem(", ".join(paths), 1, "", "holds no AgentTool and no AgentRun", "add one")
        )
    loaded.problems.sort()
    return loaded


def _objects_in(document: YamlDocument) -> Iterator[YamlDocument]:
    """Give the objects of a List, as ``kubectl get -o yaml`` writes it, or the document itself."""
    value = document.value
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != ("v1", "List"):
        yield document
        return
    items = value.get("items")
    for at in range(len(items) if isinstance(items, list) else 0):
        yield document.part("items", at)


def _take_in(loaded: Manifests, name: str, document: YamlDocument, override: Override | None) -> None:
    raw = document.value
    refusal = _refuse_kind(name, document)
    if refusal is not None or not isinstance(raw, dict):
        problem = refusal or ManifestProblem(name, document.line_of(()), "", "is no object", "write a manifest")
        loaded.problems.append(problem)
        loaded.unread.append(Unread(name, document.line_of(())))
        return
    kind = str(raw["kind"])
    # Whatever another cluster wrote there: a manifest says what is wanted, never what was.
    raw = {key: value for key, value in raw.items() if key != "status"}
    if kind == "AgentRun" and override is not None:
        raw = override(raw)
    faults = [(fault.path, fault.line, fault.problem, fault.remedy) for fault in document.faults]
    faults += [(path, document.line_of(path), said, remedy) for path, said, remedy in find_name_faults(raw)]
    read: Manifest | None = None
    try:
        read = _KINDS[kind].from_wire(raw)
    except ValidationError as error:
        for path, message, remedy in explain_errors(error, _KINDS[kind]):
            # What stands where a value could not be read is no mistake of its own.
            if not any(path[: len(fault[0])] == fault[0] for fault in faults if fault[0]):
                faults.append((path, document.line_of(path), message, remedy))
    for path, line, message, remedy in faults:
        loaded.problems.append(ManifestProblem(name, line, _field_text(path), message, remedy))
    if read is None or document.faults:
        loaded.unread.append(Unread(name, document.line_of(()), kind, *_name_in(raw)))
        return
    key = _key(read)
    if key in loaded.sources:
        first = loaded.sources[key]
        said = f"{kind} {read.metadata.name} stands in {first.file}:{first.document.line_of(())} already"
        line = document.line_of(("metadata", "name"))
        loaded.problems.append(ManifestProblem(name, line, "metadata.name", said, "rename"))
        return
    loaded.sources[key] = Source(name, document)
    if isinstance(read, AgentTool):
        loaded.tools.append(read)
    else:
        loaded.runs.append(read)


def _name_in(raw: JsonObject) -> tuple[str, str]:
    metadata = raw.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("namespace") or "default"), str(found.get("name") or "")


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
    paths: Sequence[str], read_stdin: Callable[[], bytes], loaded: Manifests
) -> Iterator[tuple[str, bytes]]:
    for text in paths:
        if text in ("-", STDIN):
            yield "-", read_stdin()
            continue
        path = Path(text)
        files = _files_in(path) if path.is_dir() else [path]
        if not files:
            loaded.problems.append(ManifestProblem(text, 1, "", "holds no YAML or JSON file", "name a file"))
        for file in files:
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                said = f"cannot be read: {error.strerror or error}"
                loaded.problems.append(ManifestProblem(str(file), 1, "", said, "check the path"))
                loaded.unread.append(Unread(str(file), 1))


def _files_in(folder: Path) -> list[Path]:
    # A scenario's script stands beside its manifests and is none itself.
    found = (file for file in folder.iterdir() if file.suffix in _SUFFIXES and not file.stem.endswith("script"))
    return sorted(found)


def _field_text(path: FieldPath) -> str:
    return format_path(path) if path else ""


def _key(manifest: Manifest) -> tuple[str, str, str]:
    return manifest.kind, manifest.metadata.namespace, manifest.metadata.name


def _show(value: JsonValue) -> str:
    return repr(value) if isinstance(value, str) else str(value)
