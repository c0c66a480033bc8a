"""What every contract model shares: strictness, camelCase on the wire, bounded texts, exact free-form values."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from agentrun.contract.durations import DURATION_PATTERN, MAX_LENGTH, format_duration, parse_duration
from agentrun.contract.exact_json import JsonObject, JsonRefusedError, JsonValue, admit_json
from agentrun.contract.money import MONEY_PATTERN, format_micros, parse_micros

Model = TypeVar("Model", bound="ContractModel")


def _make_strict(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "bool"):
            schema["strict"] = True
        schema = tuple(schema.values())
    if isinstance(schema, list | tuple):
        for part in schema:
            _make_strict(part)


class ContractModel(BaseModel):
    """Frozen, refuses unknown fields, speaks camelCase on the wire and snake_case in Python.

    Numbers and truth values are taken as they are, never out of texts or each other: what the API server would refuse
    (``limit: "3"``, ``suspend: "false"``, ``optional: 1``) is refused in local mode as well.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
        ser_json_inf_nan="constants",
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make every number and truth value among the fields strict; pydantic's own switch would refuse enums too."""
        schema = handler(source)
        _make_strict(schema)
        return schema

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read what a person or another program wrote: field names as on the wire only.

        The API server would prune ``depends_on`` without a word, and the order of two calls with it; here it is an
        unknown field. Raises :class:`pydantic.ValidationError`.
        """
        return cls.model_validate(value, by_alias=True, by_name=False)

    def to_wire(self) -> JsonObject:
        """Return the model as JSON-ready values: camelCase keys, unset optional fields left out."""
        return self.model_dump(by_alias=True, exclude_none=True)

    def to_wire_set_only(self) -> JsonObject:
        """Return only the fields that the author wrote; this is what digests of a spec are made of."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def _admit_value(value: object) -> JsonValue:
    try:
        return admit_json(value)
    except JsonRefusedError as error:
        raise ValueError(str(error)) from error


def _admit_object(value: object) -> JsonObject:
    admitted = _admit_value(value)
    if not isinstance(admitted, dict):
        raise ValueError("must be an object")
    return admitted


def _admit_duration(value: object) -> timedelta:
    return value if isinstance(value, timedelta) else parse_duration(value)  # type: ignore[arg-type]


def _admit_micros(value: object) -> int:
    return value if isinstance(value, MicrosInt) else MicrosInt(parse_micros(value))  # type: ignore[arg-type]


class MicrosInt(int):
    """An amount of money that has been parsed; keeps a bare integer from being taken for one."""


def _admit_time(value: object) -> object:
    if not isinstance(value, str | datetime):
        raise ValueError(f"must be a time such as 2026-01-31T12:00:00Z, not {value!r}")
    return value


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must carry a time zone")
    return value.astimezone(UTC)


def format_time(moment: datetime) -> str:
    """Write an aware datetime as RFC 3339 in UTC with microseconds (the API server's MicroTime)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Duration = Annotated[
    timedelta,
    BeforeValidator(_admit_duration),
    PlainSerializer(format_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "maxLength": MAX_LENGTH}),
]
"""A Go-style duration on the wire, a ``timedelta`` inside."""

Money = Annotated[
    int,
    BeforeValidator(_admit_micros),
    PlainSerializer(format_micros),
    WithJsonSchema({"type": "string", "pattern": MONEY_PATTERN, "maxLength": 16}),
]
"""A decimal string on the wire, integer micro-units inside."""

Timestamp = Annotated[
    datetime,
    BeforeValidator(_admit_time),
    AfterValidator(_utc),
    PlainSerializer(format_time),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 32}),
]
"""RFC 3339 with microseconds on the wire, an aware UTC ``datetime`` inside."""

FreeObject = Annotated[
    dict[str, Any],
    BeforeValidator(_admit_object),
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""An object whose fields are the user's own; numbers are exact (``int`` or ``Decimal``)."""

FreeValue = Annotated[
    Any, BeforeValidator(_admit_value), WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True})
]
"""Any JSON value of the user's own; numbers are exact (``int`` or ``Decimal``)."""

NODE_NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"
OBJECT_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
PATH_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*((\.[A-Za-z0-9_-]+)|(\[[0-9]{1,6}\]))*$"

NodeName = Annotated[str, Field(pattern=NODE_NAME_PATTERN, max_length=63)]
"""The name of a node inside its run: a DNS label that starts with a letter."""
NodePath = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*(\.[0-9]{1,6}(\.[a-z][a-z0-9-]*)?)?$", max_length=140)]
"""A node's full name in its tree: ``check``, or ``check.3`` / ``check.3.price`` inside a fan-out."""
ObjectName = Annotated[str, Field(pattern=OBJECT_NAME_PATTERN, max_length=253)]
"""The name of a Kubernetes object: a DNS subdomain."""
ValuePath = Annotated[str, Field(pattern=PATH_PATTERN, max_length=512)]
"""A path to a typed field, such as ``nodes.extract.result.entities[0].score``."""
ShortText = Annotated[str, Field(max_length=128)]
MediumText = Annotated[str, Field(max_length=1024)]
LongText = Annotated[str, Field(max_length=4096)]
Digest = Annotated[str, Field(max_length=80)]


_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def cut_text(text: str, limit: int) -> str:
    """Return the text cut to at most ``limit`` code points, an ellipsis in the last place when it was cut.

    Characters that no status field can carry (lone surrogates, NUL), that steer a terminal (control characters but tab
    and line end) or that change the order in which a reader sees the text (bidirectional overrides) are replaced by
    U+FFFD; this is the one place.
    """
    clean = _UNSHOWABLE.sub("\ufffd", text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
