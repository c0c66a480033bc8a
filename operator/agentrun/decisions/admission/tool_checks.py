"""What can be wrong with a tool's definition beyond what its fields say one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Reason
from agentrun.contract.tool import AgentToolSpec, IdempotencyScope, LookupOutcomes, SideEffect, ToolType
from agentrun.decisions.admission.spec_view import join_field
from agentrun.decisions.admission.violation import Violation, ViolationKind
from agentrun.decisions.facts import Problem
from agentrun.decisions.references import ReferenceSyntaxError, parse_template

CheckSchema = Callable[[JsonObject], tuple[Problem, ...]]
"""Says what is wrong with a JSON Schema itself."""


def find_tool_violations(
    name: str, tool: AgentToolSpec, tools: Mapping[str, AgentToolSpec], check_schema: CheckSchema | None = None
) -> tuple[Violation, ...]:
    """Return everything that is wrong with a tool, in the order of its fields.

    ``tools`` are those of its namespace. Without ``check_schema`` the JSON Schemas themselves are not judged.
    """
    return tuple(
        violation
        for check in (
            _host_is_a_param,
            _schema_is_invalid,
            _lookup_is_no_question,
            _step_down_leads_nowhere,
            _scope_contradicts_effect,
        )
        for violation in check(name, tool, tools, check_schema)
    )


def _host_is_a_param(
    name: str, tool: AgentToolSpec, tools: Mapping[str, AgentToolSpec], check_schema: CheckSchema | None
) -> Iterator[Violation]:
    # Whoever writes a run must never choose where a tool's request and its secrets go.
    if tool.http is not None and "{" in tool.http.url.split("://", 1)[1].split("/", 1)[0]:
        yield Violation(
            "spec.http.url",
            tool.http.url,
            "scheme, host and port may hold no placeholder",
            "write the host out; params may stand in path and query",
            Reason.TOOL_INVALID,
        )


def _schema_is_invalid(
    name: str, tool: AgentToolSpec, tools: Mapping[str, AgentToolSpec], check_schema: CheckSchema | None
) -> Iterator[Violation]:
    if check_schema is None:
        return
    for field, holder in (("params", tool.params), ("result", tool.result)):
        for problem in check_schema(holder.schema_) if holder else ():
            at = f"spec.{field}.schema"
            yield Violation(
                f"{at}{'' if problem.path.startswith('[') or not problem.path else '.'}{problem.path}",
                problem.path or "schema",
                f"no usable JSON Schema: {problem.message}",
                "write draft 2020-12 without references to other documents",
                Reason.TOOL_INVALID,
            )


def _lookup_is_no_question(
    name: str, tool: AgentToolSpec, tools: Mapping[str, AgentToolSpec], check_schema: CheckSchema | None
) -> Iterator[Violation]:
    if tool.recovery is None:
        return
    asked = tool.recovery.lookup.tool
    field = "spec.recovery.lookup.tool"
    found = tools.get(asked)
    if asked == name:
        yield Violation(
            field, asked, "a tool cannot look itself up", "name a tool that only reads", Reason.TOOL_INVALID
        )
    elif found is None:
        yield Violation(
            field,
            asked,
            f"tool {asked} does not exist",
            "create the AgentTool in the same namespace",
            Reason.TOOL_NOT_FOUND,
            ViolationKind.PENDING,
        )
    elif found.side_effect is not SideEffect.NONE:
        yield Violation(
            field,
            asked,
            f"tool {asked} has sideEffect {found.side_effect}: asking must change nothing",
            "use a tool with sideEffect: None",
            Reason.TOOL_INVALID,
        )
    elif found.type is ToolType.CONTAINER:
        yield Violation(
            field,
            asked,
            f"tool {asked} is of type container: a worker that asks has no pod to make for it",
            "ask by a tool of type http or python",
            Reason.TOOL_INVALID,
        )
    try:
        parse_template(tool.recovery.lookup.params)
    except ReferenceSyntaxError as error:
        yield Violation(
            join_field("spec.recovery.lookup.params", error.at),
            error.text[:200],
            f"no reference at character {error.position + 1}: {error.problem}",
            error.remedy,
            Reason.INVALID_REFERENCE,
        )
    yield from _outcomes_never_match(tool.recovery.outcome)


def _outcomes_never_match(outcomes: LookupOutcomes) -> Iterator[Violation]:
    named = (
        ("completed", outcomes.completed),
        ("running", outcomes.running),
        ("notExecuted", outcomes.not_executed),
    )
    if all(outcome is None for _, outcome in named):
        yield Violation(
            "spec.recovery.outcome",
            "{}",
            "no answer of the lookup is recognised, so every outcome stays unknown",
            "give completed, running or notExecuted a when",
            Reason.TOOL_INVALID,
        )
    for field, outcome in named:
        if outcome is None:
            continue
        path = outcome.when.path
        if path != "result" and not path.startswith(("result.", "result[")):
            yield Violation(
                f"spec.recovery.outcome.{field}.when.path",
                path,
                "an outcome tests the lookup's result only",
                "begin the path with result",
                Reason.TOOL_INVALID,
            )
        if outcome.result is not None and field != "completed":
            yield Violation(
                f"spec.recovery.outcome.{field}.result",
                outcome.result,
                f"a call that is {field} has no result",
                "remove the field",
                Reason.TOOL_INVALID,
            )


def _step_down_leads_nowhere(
    name: str, tool: AgentToolSpec, tools: Mapping[str, AgentToolSpec], check_schema: CheckSchema | None
) -> Iterator[Violation]:
    for at, cheaper in enumerate(tool.degrade_to):
        field = f"spec.degradeTo[{at}]"
        if cheaper == name:
            yield Violation(field, cheaper, "a tool cannot replace itself", "remove it", Reason.TOOL_INVALID)
        elif cheaper not in tools:
            yield Violation(
                field,
                cheaper,
                f"tool {cheaper} does not exist",
                "create the AgentTool in the same namespace",
                Reason.TOOL_NOT_FOUND,
                ViolationKind.PENDING,
            )


def _scope_contradicts_effect(
    name: str, tool: AgentToolSpec, tools: Mapping[str, AgentToolSpec], check_schema: CheckSchema | None
) -> Iterator[Violation]:
    scope = tool.idempotency.scope if tool.idempotency else None
    if scope is IdempotencyScope.ATTEMPT and tool.side_effect is not SideEffect.NONE:
        yield Violation(
            "spec.idempotency.scope",
            str(scope),
            f"scope Attempt makes every attempt another call, which sideEffect {tool.side_effect} forbids",
            "use Run, Session or Namespace, or say sideEffect: None",
            Reason.TOOL_INVALID,
        )
