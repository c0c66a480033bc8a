"""``--set path=value``: changes to a run's spec before it is read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.decisions.value_paths import PathSyntaxError, parse_path
from agentrun.local.yaml_documents import YamlRefusedError, read_documents


class OverrideRefusedError(Exception):
    """A ``--set`` cannot be carried out; the message names it and the remedy."""


def build_override(settings: Sequence[str]) -> _Override | None:
    """Return what applies all settings to a run's manifest. Raises :class:`OverrideRefusedError`."""
    return _Override([_parse(setting) for setting in settings]) if settings else None


class _Override:
    def __init__(self, settings: list[tuple[str, tuple[str | int, ...], JsonValue]]) -> None:
        self._settings = settings

    def __call__(self, raw: JsonObject) -> JsonObject:
        changed = copy.deepcopy(raw)
        spec = changed.setdefault("spec", {})
        for text, path, value in self._settings:
            _put(spec, text, path, value)
        return changed


def _parse(setting: str) -> tuple[str, tuple[str | int, ...], JsonValue]:
    path_text, sign, value_text = setting.partition("=")
    if not sign or not path_text:
        raise OverrideRefusedError(f"--set {setting}: write path=value, such as inputs.day=monday")
    path_text = path_text.removeprefix("spec.")
    try:
        path = parse_path(path_text)
    except PathSyntaxError as error:
        raise OverrideRefusedError(f"--set {setting}: {path_text} is no path: {error}") from error
    try:
        found = list(read_documents(value_text.encode()))
    except YamlRefusedError as error:
        raise OverrideRefusedError(f"--set {setting}: the value {error.problem}; {error.remedy}") from error
    return setting, tuple(path), found[0].value if found else ""


def _put(spec: Any, text: str, path: tuple[str | int, ...], value: JsonValue) -> None:
    current = spec
    for at, part in enumerate(path[:-1]):
        inner = _step(current, part)
        if inner is None:
            if isinstance(current, dict) and isinstance(part, str) and path[0] == "inputs":
                inner = current[part] = {}
            else:
                raise OverrideRefusedError(f"--set {text}: the spec has no {_shown(path[: at + 1])}; check the path")
        current = inner
    last = path[-1]
    if isinstance(current, dict) and isinstance(last, str):
        current[last] = value
        return
    if isinstance(current, list) and isinstance(last, int) and last < len(current):
        current[last] = value
        return
    raise OverrideRefusedError(f"--set {text}: {_shown(path[:-1]) or 'spec'} has no place {last}; check the path")


def _step(current: Any, part: str | int) -> Any:
    if isinstance(current, dict) and isinstance(part, str):
        return current.get(part)
    if isinstance(current, list) and isinstance(part, int) and part < len(current):
        return current[part]
    # Nodes are found by name as well: nodes.transfer.params.
    if isinstance(current, list) and isinstance(part, str):
        return next((item for item in current if isinstance(item, dict) and item.get("name") == part), None)
    return None


def _shown(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path)
