"""Typed tests on values: the only condition language there is, used by conditions, approvals and lookups."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, model_validator

from agentrun.contract.model_base import ContractModel, FreeValue, ValuePath


class Operator(StrEnum):
    """How a field is compared with ``value``. Types must agree; text is never read as a number."""

    EQ = "eq"
    """equal"""
    NE = "ne"
    """not equal"""
    GT = "gt"
    """greater"""
    GE = "ge"
    """greater or equal"""
    LT = "lt"
    """less"""
    LE = "le"
    """less or equal"""
    IN = "in"
    """is one of the list ``value``"""
    CONTAINS = "contains"
    """the field's text or list contains ``value``"""
    EXISTS = "exists"
    """is there at all (or is not, with ``value: false``)"""


class ValueTest(ContractModel):
    """One typed test: the field at ``path`` compared with ``value`` by ``op``.

    ``exists`` takes ``value: true`` (the default) or ``false``. Every other operator needs a value, and a path that is
    missing or of another type is an error, never false.
    """

    path: ValuePath = Field(description="Full path of the field, such as nodes.extract.result.entities[0].score.")
    op: Operator
    value: FreeValue = None
    """What the field is compared with; numbers are exact."""

    @model_validator(mode="after")
    def _value_fits_operator(self) -> ValueTest:
        if self.op is Operator.EXISTS:
            if self.value is not None and not isinstance(self.value, bool):
                raise ValueError("op exists takes value: true or false")
        elif "value" not in self.model_fields_set:
            raise ValueError(f"op {self.op} needs a value")
        elif self.op is Operator.IN and not isinstance(self.value, list):
            raise ValueError("op in needs a list as value")
        return self
