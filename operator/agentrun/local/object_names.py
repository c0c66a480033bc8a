"""Names that an API server would refuse: of an object, its namespace, its labels and annotations.

Serves :mod:`agentrun.local.manifests`: a manifest that is well here must be taken there. The rules are Kubernetes' own
(RFC 1123 names; apimachinery's ``validation``), and no operator's: nothing that comes from a cluster is judged by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentrun.contract.exact_json import JsonObject

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NAME_REMEDY = "use lower-case letters, digits, dashes and dots (a DNS name of at most 253), such as {}"
_NAMESPACE_REMEDY = "use lower-case letters, digits and dashes, at most 63, such as {}"
_WORD_REMEDY = "use letters, digits, dashes, underscores and dots, at most 63"


def find_name_faults(manifest: JsonObject) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Give (path, message, remedy) for each name that cannot be; what is no text is somebody else's to refuse."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        return
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if isinstance(name, str) and not _is(_DNS_NAME, name, 253):
        yield ("metadata", "name"), f"is {name!r}, which is no name of an object", _NAME_REMEDY.format(_near(name))
    if isinstance(namespace, str) and not is_namespace(namespace):
        said = f"is {namespace!r}, which is no name of a namespace"
        yield ("metadata", "namespace"), said, _NAMESPACE_REMEDY.format(_near(namespace))
    for field in ("labels", "annotations"):
        entries = metadata.get(field)
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if not _is_key(key):
                yield (
                    ("metadata", field, key),
                    f"{key!r} is no key of {field}",
                    f"{_WORD_REMEDY}, and example.com/ before",
                )
            if field == "labels" and isinstance(value, str) and value and not _is(_WORD, value, 63):
                yield ("metadata", field, key), f"is {value!r}, which is no value of a label", _WORD_REMEDY


def is_namespace(text: str) -> bool:
    """Tell whether a namespace can have this name."""
    return _is(_DNS_LABEL, text, 63)


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _is(_WORD, name, 63) and (_is(_DNS_NAME, prefix, 253) if slash else True)


def _is(form: re.Pattern[str], text: str, longest: int) -> bool:
    return len(text) <= longest and form.fullmatch(text) is not None


def _near(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-") or "a-name"
