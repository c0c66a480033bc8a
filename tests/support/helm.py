"""The real helm on the project's charts: rendering to objects, and whatever else its command line does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
OPERATOR_CHART = ROOT / "charts" / "agentrun-operator"
CRD_CHART = ROOT / "charts" / "agentrun-crds"
MONITORING = "monitoring.coreos.com/v1"
CERT_MANAGER = "cert-manager.io/v1"
_LIMIT_SECONDS = 100

Manifest = dict[str, Any]


class HelmRefusedError(Exception):
    """Helm ended with an error; the message is what it said."""


def find_helm() -> str | None:
    """Return the program: what HELM names, what is on PATH, or this machine's cache."""
    named = os.environ.get("HELM") or shutil.which("helm")
    if named:
        return named
    caches = [Path("/var/cache"), Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")]
    found = sorted(path for cache in caches for path in cache.glob("agentrun/helm-*/helm"))
    return str(found[-1]) if found else None


class Helm:
    """Helm's command line, without anybody's configuration."""

    def __init__(self, program: str, folder: Path) -> None:
        """``folder`` takes its caches."""
        self._program = program
        self._rendered: dict[tuple[str, ...], str] = {}
        self._environment = {
            "PATH": os.environ["PATH"],
            # What it learns of an API server is kept there, else in the present folder.
            "HOME": str(folder),
            **{f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
        }

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Return what it prints. Raises :class:`HelmRefusedError`."""
        done = subprocess.run(
            [self._program, *arguments],
            input=stdin,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
        )
        if done.returncode:
            raise HelmRefusedError(done.stderr)
        return done.stdout

    def render_text(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        chart: Path = OPERATOR_CHART,
        release: str = "agentrun",
        namespace: str = "agents",
        kube_version: str = "1.31.0",
        api_versions: Sequence[str] = (MONITORING, CERT_MANAGER),
        again: bool = False,
    ) -> str:
        """Return the manifests of a release as helm prints them."""
        served = [part for api in api_versions for part in ("--api-versions", api)]
        given = json.dumps(values or {})
        asked = (release, str(chart), "--namespace", namespace, "--kube-version", kube_version, *served)
        # The same again is not rendered again; whoever compares two renderings asks with `again`.
        if again or (*asked, given) not in self._rendered:
            self._rendered[*asked, given] = self.run("template", *asked, "--values", "-", stdin=given)
        return self._rendered[*asked, given]

    def render(self, values: Mapping[str, Any] | None = None, **how: Any) -> list[Manifest]:
        """Return the objects of a release; takes what :meth:`render_text` takes."""
        documents = YAML(typ="safe", pure=True).load_all(self.render_text(values, **how))
        return [document for document in documents if document]


def find_objects(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    """Return the objects of a kind."""
    return [found for found in manifests if found["kind"] == kind]


def find_object(manifests: Sequence[Manifest], kind: str, name: str = "") -> Manifest:
    """Return the one object of a kind, or that of the name."""
    (found,) = (one for one in find_objects(manifests, kind) if not name or one["metadata"]["name"] == name)
    return found


def nested(path: str, value: Any) -> dict[str, Any]:
    """Return values with one set, by its path: names with dots between them."""
    for name in reversed(path.split(".")):
        value = {name: value}
    found: dict[str, Any] = value
    return found


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return values laid over each other, as helm does it: maps are merged, everything else is replaced."""
    result: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            old = result.get(name)
            result[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
