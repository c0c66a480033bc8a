"""Where secret values come from: mounted Secrets in a cluster, environment variables on a developer's machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from agentrun_worker.executor import SecretMissingError


class EnvironmentSecrets:
    """Reads ``SECRET_<NAME>_<KEY>``: upper case, everything but letters and digits as an underscore."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment

    def fetch_secret(self, name: str, key: str) -> str:
        """Return the value. Raises :class:`SecretMissingError`."""
        variable = re.sub(r"[^A-Z0-9]", "_", f"SECRET_{name}_{key}".upper())
        value = self._environment.get(variable)
        if value is None:
            raise SecretMissingError(f"secret {name} has no key {key} here: set the environment variable {variable}")
        return value


class MountedSecrets:
    """Reads ``<root>/<name>/<key>``, as Secrets are mounted into a worker's pod."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def fetch_secret(self, name: str, key: str) -> str:
        """Return the value, without a line end at its end. Raises :class:`SecretMissingError`."""
        try:
            return (self._root / name / key).read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SecretMissingError(f"secret {name} has no readable key {key} under {self._root}") from error
