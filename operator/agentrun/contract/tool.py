"""AgentTool: the reusable task definition, owned by the platform team."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from agentrun.contract.execution import Execution, ExecutionMode, ImageName
from agentrun.contract.model_base import (
    ContractModel,
    Digest,
    Duration,
    FreeObject,
    LongText,
    MediumText,
    Money,
    ObjectName,
    ShortText,
)
from agentrun.contract.object_meta import API_VERSION, ObjectMeta, StatusCondition
from agentrun.contract.value_tests import ValueTest


class ToolType(StrEnum):
    """How a tool is executed."""

    HTTP = "http"
    """One HTTP request."""
    PYTHON = "python"
    """A function that the worker can import."""
    CONTAINER = "container"
    """A program in an image of its author's, in a Job of its own."""


class Reach(StrEnum):
    """Where the called system stands; chooses the default timeout (15 s inside, 20 s outside)."""

    INTERNAL = "Internal"
    """Attempts of 15 s."""
    EXTERNAL = "External"
    """Attempts of 20 s."""


class SideEffect(StrEnum):
    """What a repetition would do outside. ``Once``: an unknown outcome is never run again."""

    NONE = "None"
    """It only reads."""
    IDEMPOTENT = "Idempotent"
    """Repeating it changes nothing more."""
    ONCE = "Once"
    """Repeating it would do it again."""


class IdempotencyScope(StrEnum):
    """Within what an equal call is the same call."""

    ATTEMPT = "Attempt"
    """Never the same: each attempt is a call of its own."""
    RUN = "Run"
    """Within the run."""
    SESSION = "Session"
    """Within the runs of one session."""
    NAMESPACE = "Namespace"
    """Within the whole namespace."""


class OnDuplicate(StrEnum):
    """What a second equal call gets."""

    REPLAY = "Replay"
    """The stored result."""
    REJECT = "Reject"
    """The failure DuplicateRejected."""
    ASK = "Ask"
    """A human is asked whether it is meant."""


class Pauses(StrEnum):
    """How much of a run stands still while a call waits for its approval."""

    BRANCH = "Branch"
    """Only what depends on the call."""
    RUN = "Run"
    """The whole run."""


class AfterLast(StrEnum):
    """What happens when the last retry is spent."""

    HUMAN = "Human"
    """Quarantine: a human looks at it."""
    ASK = "Ask"
    """A human may grant one more attempt."""
    DEAD = "Dead"
    """The node is dead."""
    DROP = "Drop"
    """The node is dead, recorded as dropped."""


class HttpMethod(StrEnum):
    """The HTTP methods a tool may use."""

    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class SecretKeyRef(ContractModel):
    """One key of a Secret in the run's namespace. In local mode: the environment variable ``SECRET_<NAME>_<KEY>``."""

    name: ObjectName
    """The Secret."""
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=253)]
    """The key in it."""


class HeaderFrom(ContractModel):
    """A header whose value is read from a Secret at call time and never stored."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=128)]
    """The header."""
    secret_key_ref: SecretKeyRef
    """Where its value is read."""
    prefix: ShortText = ""
    """Text before the secret, such as ``Bearer`` and a blank."""


class HttpCall(ContractModel):
    """The request an ``http`` tool makes. Placeholders in braces are params; whatever they hold is percent-encoded."""

    method: HttpMethod = HttpMethod.POST
    """The request's method."""
    url: Annotated[str, Field(pattern=r"^https?://", max_length=2048)]
    """Absolute URL. Path and query may hold ``{param}`` placeholders; scheme, host and port may not."""
    query: dict[Annotated[str, Field(max_length=128)], MediumText] = Field(default_factory=dict, max_length=32)
    """Query parameters; values may be ``{param}`` placeholders."""
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=128)], MediumText] = Field(
        default_factory=dict, max_length=32
    )
    """Headers with fixed values, for everybody to read."""
    headers_from: tuple[HeaderFrom, ...] = Field(default=(), max_length=16)
    """Headers whose values come from Secrets."""
    body: Annotated[str, Field(max_length=1024)] | None = None
    """``{params}`` sends all params as a JSON object, ``{name}`` the JSON value of one; unset sends none."""
    not_executed_on: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field(default=(), max_length=32)
    """Status codes by which this provider says that it did nothing."""
    retry_on: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field(default=(), max_length=32)
    """Status codes that are worth a retry beside 408, 425, 429 and 5xx."""
    allow_private_addresses: bool = False
    """Allow addresses of private networks and loopback; link-local and metadata addresses stay refused."""
    allowed_redirect_hosts: tuple[Annotated[str, Field(max_length=253)], ...] = Field(default=(), max_length=16)
    """Hosts that redirects of GET and HEAD may lead to; others end the attempt."""
    max_response_bytes: Annotated[int, Field(ge=1, le=16 * 1024 * 1024)] = 1024 * 1024
    """A longer answer is cut off and is no use."""


class PythonIsolation(StrEnum):
    """Where a Python function runs."""

    THREAD = "Thread"
    """In the worker's process."""
    SUBPROCESS = "Subprocess"
    """In a process of its own."""


class PythonCall(ContractModel):
    """The function a ``python`` tool calls."""

    entry_point: Annotated[
        str,
        Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$", max_length=512),
    ]
    """``package.module:function``; it takes the params as keywords (and ``context``, if it names that parameter)."""
    isolation: PythonIsolation = PythonIsolation.SUBPROCESS
    """``Subprocess`` can be killed at its deadline whatever it does; ``Thread`` starts faster and must cooperate."""


class ContainerCall(ContractModel):
    """The program that a ``container`` tool runs, in a pod made for the one call.

    It finds the params as a JSON object in the file that ``AGENTRUN_PARAMS`` names and leaves its result, JSON too, in
    the one that ``AGENTRUN_OUTPUT`` names; none is the result ``null``. ``AGENTRUN_REQUEST_ID`` and
    ``AGENTRUN_IDEMPOTENCY_KEY`` are those of the call. It ends with 0 when it is done, with 90 when it has done nothing
    and another try may help, with 91 when it has done nothing and none will. Whatever else it ends with or by, nobody
    knows what happened.
    """

    image: ImageName
    """Where the program is; nothing of the product needs to be in it, nor a shell."""
    command: tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...] = Field(min_length=1, max_length=64)
    """The program and its arguments, as they are: nothing is expanded. The image's own entry point is not used."""


class JsonSchemaOf(ContractModel):
    """A JSON Schema (draft 2020-12), without remote references."""

    schema_: FreeObject = Field(alias="schema")
    """The schema itself: at most 64 KiB and 32 levels, references as ``#/$defs/<name>`` only."""


class Idempotency(ContractModel):
    """When a call counts as the repetition of another, and what it gets then."""

    scope: IdempotencyScope | None = None
    """Default: Session (Run where the run has no session) for Idempotent and Once tools, Attempt for others."""
    window: Duration | None = None
    """How long a result answers for its repetitions. Default: 30 days (scope Run: the run's life)."""
    on_duplicate: OnDuplicate = OnDuplicate.REPLAY
    """What a second equal call gets once the first has succeeded."""
    provider_deduplicates: bool = False
    """The provider honours ``Idempotency-Key``; then a lookup's "not executed" may be retried at once."""


class ApprovalRule(ContractModel):
    """When a human must agree to a call before it is made."""

    required: Literal["Always", "Conditional"] = "Conditional"
    """``Always``, or ``Conditional``: if a test under ``when`` holds."""
    when: tuple[ValueTest, ...] = Field(default=(), max_length=16)
    """Tests on ``params.…``; the call waits for a human if any of them holds."""
    pauses: Pauses = Pauses.BRANCH
    """How much stands still meanwhile."""
    expires_after: Duration | None = None
    """How long a human may take. Default: ``spec.waits.inbox`` of the run."""

    @model_validator(mode="after")
    def _has_a_trigger(self) -> ApprovalRule:
        if self.required == "Conditional" and not self.when:
            raise ValueError("needs required: Always, or at least one test under when")
        for test in self.when:
            if not test.path.startswith("params."):
                raise ValueError(f"when may test params only, not {test.path}")
        return self


class Backoff(ContractModel):
    """Exponential backoff with full jitter: a random wait between 0 and ``initial * factor^n``, at most ``max``."""

    initial: Duration | None = None
    """Default 1 s."""
    factor: Annotated[int, Field(ge=1, le=10)] | None = None
    """Default 2."""
    max: Duration | None = None
    """Default 30 s."""


class Retry(ContractModel):
    """Automatic retries beyond the first attempt."""

    limit: Annotated[int, Field(ge=0, le=20)] | None = None
    """Attempts beyond the first. Default: the priority's."""
    backoff: Backoff | None = None
    """How long to wait before each."""
    after_last: AfterLast | None = None
    """What follows the last one. Default: the priority's."""


class LookupCall(ContractModel):
    """The tool that is asked what became of a call; its own side effect must be None."""

    tool: ObjectName
    """An AgentTool of the same namespace."""
    params: FreeObject = Field(default_factory=dict)
    """May refer to ``${params.…}`` of the call in question, and to ``${key}``, its idempotency key."""


class LookupOutcome(ContractModel):
    """One answer of the lookup: the test that recognises it."""

    when: ValueTest
    """Test on ``result.…`` of the lookup."""
    result: Annotated[str, Field(max_length=512)] | None = None
    """Path of the call's own result inside the lookup's result (``result.refund``); only for ``completed``."""


class LookupOutcomes(ContractModel):
    """How the lookup's typed result is read; the first match counts, anything else is unknown."""

    completed: LookupOutcome | None = None
    """The call was executed."""
    running: LookupOutcome | None = None
    """The call is still at work."""
    not_executed: LookupOutcome | None = None
    """The call was not executed."""


class Recovery(ContractModel):
    """How the outcome of a call that nobody saw end is found out."""

    lookup: LookupCall
    """The call that asks."""
    outcome: LookupOutcomes
    """How its answer is read."""
    poll_interval: Duration | None = None
    """How often a call that is still running is asked about again. Default 2 s."""


class ToolLimits(ContractModel):
    """How much of a tool may happen at once; unset is unlimited."""

    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Calls at the same time."""
    rate_per_second: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Calls begun in a second."""
    backlog: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Nodes that may wait for this tool in the namespace; more end Failed with BacklogFull."""


class ToolCost(ContractModel):
    """What a call costs."""

    per_call: Money = 0
    """Price of one call."""


class AgentToolSpec(ContractModel):
    """The definition of a tool."""

    description: MediumText = ""
    """What the tool is for, in a sentence."""
    type: ToolType
    """How it is executed."""
    reach: Reach = Reach.EXTERNAL
    http: HttpCall | None = None
    """The request, for type http."""
    python: PythonCall | None = None
    """The function, for type python."""
    container: ContainerCall | None = None
    """The program, for type container; goes with ``execution.mode: Job`` and without ``execution.image``."""
    params: JsonSchemaOf | None = None
    """What it takes; a misfit is never called."""
    result: JsonSchemaOf | None = None
    """What it gives; a misfit is never handed on."""
    side_effect: SideEffect = SideEffect.ONCE
    """What a repetition would do outside; the safe answer is the default."""
    idempotency: Idempotency | None = None
    """When a call is the repetition of another."""
    approval: ApprovalRule | None = None
    """When a human must agree first."""
    timeout: Duration | None = None
    """Longest time of one attempt. Default: 15 s (Internal), 20 s (External)."""
    retry: Retry | None = None
    """Automatic retries."""
    recovery: Recovery | None = None
    """How an unknown outcome is found out."""
    limits: ToolLimits | None = None
    """How much may happen at once."""
    cost: ToolCost | None = None
    """What a call costs."""
    degrade_to: tuple[ObjectName, ...] = Field(default=(), max_length=8)
    """Tools tried in this order when the retries are spent and nothing was executed."""
    execution: Execution | None = None
    """Where attempts run."""

    @model_validator(mode="after")
    def _call_fits_type(self) -> AgentToolSpec:
        for kind in ToolType:
            call = getattr(self, kind.value)
            if kind is self.type and call is None:
                raise ValueError(f"type {kind} needs the field {kind}")
            if kind is not self.type and call is not None:
                raise ValueError(f"field {kind} does not go with type {self.type}: remove it or change the type")
        return self

    @model_validator(mode="after")
    def _container_has_a_job(self) -> AgentToolSpec:
        if self.container is None:
            return self
        if self.execution is None or self.execution.mode is not ExecutionMode.JOB:
            raise ValueError("type container needs execution.mode: Job, a pod is made for each call")
        if self.execution.image is not None:
            raise ValueError("execution.image is the worker's: with type container name container.image alone")
        return self


class AgentToolStatus(ContractModel):
    """What the operator found out about a tool."""

    observed_generation: int = 0
    """The generation of the spec that was looked at."""
    digest: Digest = ""
    """Digest of the definition."""
    conditions: tuple[StatusCondition, ...] = Field(default=(), max_length=16)
    """What holds of the tool."""
    message: LongText = ""
    """What is wrong with it."""


class AgentTool(ContractModel):
    """A reusable task definition: what is called, what it takes and gives, and what a failure means."""

    api_version: Literal["agentrun.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["AgentTool"] = "AgentTool"
    metadata: ObjectMeta
    spec: AgentToolSpec
    status: AgentToolStatus | None = None
