"""Where a process listens for probes and scrapes, as one setting of operator and worker."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:\s]*)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a TCP port; port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the text that :func:`parse_address` reads."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(value: object) -> ListenAddress | None:
    """Read ``HOST:PORT``; ``:PORT`` is every IPv4 address of the machine, an empty text is no address.

    Raises :class:`ValueError` for anything else.
    """
    if value is None or isinstance(value, ListenAddress):
        return value
    if value == "":
        return None
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found["port"]) > 65535:
        raise ValueError("must be HOST:PORT, for example 127.0.0.1:8080, 0.0.0.0:8080 or [::]:8080")
    return ListenAddress(found["v6"] or found["host"] or "0.0.0.0", int(found["port"]))  # noqa: S104 - the user says so
