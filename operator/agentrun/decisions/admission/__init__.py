"""Admission of a run: an ordered chain of checks, each named as the violation it finds.

Called before a run begins, and offline by whoever checks manifests. Pure: the answer depends on the spec and the tools
alone. It does not look at the cluster, and it does not judge what only the gate can (values that are not known yet).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from agentrun.contract.run import AgentRunSpec
from agentrun.contract.tool import AgentToolSpec
from agentrun.decisions.admission.beyond_policy import beyond_policy
from agentrun.decisions.admission.cycle_in_dependencies import cycle_in_dependencies
from agentrun.decisions.admission.default_is_never_read import default_is_never_read
from agentrun.decisions.admission.duplicate_node_name import duplicate_node_name
from agentrun.decisions.admission.join_cannot_be_met import join_cannot_be_met
from agentrun.decisions.admission.malformed_reference import malformed_reference
from agentrun.decisions.admission.reference_to_missing_input import reference_to_missing_input
from agentrun.decisions.admission.reference_to_node_not_upstream import reference_to_node_not_upstream
from agentrun.decisions.admission.reference_to_node_without_result import reference_to_node_without_result
from agentrun.decisions.admission.reference_to_unknown_node import reference_to_unknown_node
from agentrun.decisions.admission.self_dependence import self_dependence
from agentrun.decisions.admission.spec_too_large import spec_too_large
from agentrun.decisions.admission.spec_view import SpecView, view_spec
from agentrun.decisions.admission.tool_checks import CheckSchema, find_tool_violations
from agentrun.decisions.admission.tool_does_not_exist import tool_does_not_exist
from agentrun.decisions.admission.tool_is_invalid import tool_is_invalid
from agentrun.decisions.admission.unknown_dependency import unknown_dependency
from agentrun.decisions.admission.unknown_goto_target import unknown_goto_target
from agentrun.decisions.admission.value_out_of_scope import value_out_of_scope
from agentrun.decisions.admission.violation import Violation, ViolationKind
from agentrun.decisions.namespace_policy import UNBOUNDED, NamespacePolicy

__all__ = ["CheckSchema", "Violation", "ViolationKind", "find_tool_violations", "find_violations"]

_CHECKS: tuple[Callable[[SpecView], Iterator[Violation]], ...] = (
    spec_too_large,
    beyond_policy,
    duplicate_node_name,
    self_dependence,
    unknown_dependency,
    unknown_goto_target,
    cycle_in_dependencies,
    join_cannot_be_met,
    malformed_reference,
    value_out_of_scope,
    reference_to_missing_input,
    reference_to_unknown_node,
    reference_to_node_not_upstream,
    reference_to_node_without_result,
    default_is_never_read,
    tool_does_not_exist,
    tool_is_invalid,
)
"""In this order: what makes later checks meaningless comes first."""


def find_violations(
    spec: AgentRunSpec,
    tools: Mapping[str, AgentToolSpec],
    check_schema: CheckSchema | None = None,
    policy: NamespacePolicy = UNBOUNDED,
) -> tuple[Violation, ...]:
    """Return everything that is wrong with a run's spec, given its namespace's tools by name and what it may ask for.

    Tools that are missing or invalid make the run wait (kind PENDING); every other violation refuses it.
    """
    view = view_spec(spec, tools, check_schema, policy)
    return tuple(violation for check in _CHECKS for violation in check(view))
