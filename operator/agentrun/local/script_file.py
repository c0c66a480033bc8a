"""Script files: what tools answer, what people decide and when, and what is expected of a run. Only read here."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from agentrun.contract.approval import Verdict
from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.failures import Effect, FailureClass
from agentrun.contract.model_base import ContractModel, Duration, FreeObject, FreeValue, MediumText, Money, ShortText
from agentrun.contract.node import NodePhase
from agentrun.contract.run import RunPhase
from agentrun.decisions.value_paths import format_path
from agentrun.local.model_errors import explain_errors
from agentrun.local.yaml_documents import Reading, YamlRefusedError, read_documents


class Crash(StrEnum):
    """When the worker dies in the middle of a call."""

    BEFORE_EFFECT = "before-effect"
    AFTER_EFFECT = "after-effect"


class ScriptedFailure(ContractModel):
    """A failure as a tool would report it."""

    failure_class: FailureClass = Field(alias="class", default=FailureClass.RETRYABLE)
    effect: Effect = Effect.NOT_EXECUTED
    reason: ShortText = "ToolFailed"
    message: MediumText = "as the script says"
    retry_after: Duration | None = None


class ScriptedAnswer(ContractModel):
    """One answer of a tool: exactly one of result, failure, crash, hang; after ``delay``."""

    result: FreeValue = None
    failure: ScriptedFailure | None = None
    crash: Crash | None = None
    hang: bool = False
    """Never answers: the attempt ends at its deadline."""
    delay: Duration = timedelta(0)
    cost: Money | None = None
    """What the tool itself says that the call cost."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> ScriptedAnswer:
        said = sum(("result" in self.model_fields_set, self.failure is not None, self.crash is not None, self.hang))
        if said != 1:
            raise ValueError("needs exactly one of result, failure, crash, hang")
        return self


class ScriptedCall(ContractModel):
    """What calls with such params get; the last answer repeats."""

    when: FreeObject = Field(default_factory=dict)
    """Params that must be equal; others do not matter."""
    answers: tuple[ScriptedAnswer, ...] = Field(min_length=1, max_length=1000)


class ScriptedDecision(ContractModel):
    """How a person answers a node's questions; each entry once, in order."""

    node: ShortText
    verdict: Verdict
    after: Duration = timedelta(0)
    reason: MediumText = ""
    by: MediumText = "script"
    params: FreeObject | None = None
    result: FreeValue = None
    effect: Effect | None = None
    params_digest: ShortText | None = None

    def answers_with_result(self) -> bool:
        """Tell whether a result was given, null included."""
        return "result" in self.model_fields_set


class ScriptedEvent(ContractModel):
    """What happens to the run from outside, at a time after its start."""

    at: Duration
    cancel: bool = False
    suspend: bool | None = None
    kill_workers: bool = False
    delete: bool = False


class ExpectedNode(ContractModel):
    """What a node must have come to; unset fields do not matter."""

    phase: NodePhase | None = None
    reason: ShortText | None = None
    attempts: int | None = None
    effect: Effect | None = None
    result: FreeValue = None
    cost: Money | None = None

    def expects_result(self) -> bool:
        """Tell whether a result is expected, null included."""
        return "result" in self.model_fields_set


class Expectation(ContractModel):
    """What the run must have come to."""

    phase: RunPhase | None = None
    reason: ShortText | None = None
    nodes: dict[Annotated[str, Field(max_length=140)], ExpectedNode] = Field(default_factory=dict, max_length=1000)
    calls: dict[Annotated[str, Field(max_length=253)], int] = Field(default_factory=dict, max_length=100)
    """How often each tool was called."""
    effects: dict[Annotated[str, Field(max_length=253)], int] = Field(default_factory=dict, max_length=100)
    """How often each tool's effect happened."""
    within: Duration | None = None
    """The longest virtual time from start to end."""


class Script(ContractModel):
    """A whole script."""

    seed: int = 1
    tools: dict[Annotated[str, Field(max_length=253)], tuple[ScriptedCall, ...]] = Field(
        default_factory=dict, max_length=100
    )
    humans: tuple[ScriptedDecision, ...] = Field(default=(), max_length=1000)
    events: tuple[ScriptedEvent, ...] = Field(default=(), max_length=100)
    expect: Expectation | None = None


class ScriptRefusedError(Exception):
    """The script cannot be used; the message names file, line, field and remedy of each problem."""


def load_script(path: Path) -> Script:
    """Read a script file. Raises :class:`ScriptRefusedError`."""
    try:
        documents = list(read_documents(path.read_bytes(), Reading.YAML_1_2))
    except OSError as error:
        raise ScriptRefusedError(f"{path}:1: cannot be read: {error.strerror or error}; check the path") from error
    except YamlRefusedError as error:
        raise ScriptRefusedError(f"{path}:{error.line}: {error.problem}; {error.remedy}") from error
    if len(documents) != 1:
        raise ScriptRefusedError(f"{path}:1: holds {len(documents)} documents; write one")
    try:
        return Script.from_wire(with_call_lists(documents[0].value))
    except ValidationError as error:
        lines = [
            f"{path}:{documents[0].line_of(where)}: {format_path(where) if where else 'script'}: {message}; {remedy}"
            for where, message, remedy in explain_errors(error, Script)
        ]
        raise ScriptRefusedError("\n".join(lines)) from error


def with_call_lists(value: JsonValue) -> JsonValue:
    """Accept the short form, in which a tool has a list of answers for all its calls."""
    given = value.get("tools") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(given, dict):
        return value
    tools: JsonObject = {}
    for name, calls in given.items():
        short = (
            isinstance(calls, list)
            and bool(calls)
            and all(isinstance(call, dict) and "answers" not in call for call in calls)
        )
        tools[name] = [{"answers": calls}] if short else calls
    return {**value, "tools": tools}
