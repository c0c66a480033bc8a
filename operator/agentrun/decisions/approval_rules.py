"""When a call needs a human, and whether a human's answer may be applied.

The need comes from the tool's policy alone, judged on the final params; nothing a model wrote can lower it. An answer
counts for the question it was given to and no other, and says no more than its author may
(``decision_authority``). What an accepted answer leads to stands in ``human_step``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from agentrun.contract.approval import ALLOWED_VERDICTS, Decision, Verdict
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect
from agentrun.contract.node import Inbox
from agentrun.contract.tool import AgentToolSpec
from agentrun.contract.value_tests import Operator, ValueTest
from agentrun.decisions.conditions import ConditionError, NamedValues, evaluate_test
from agentrun.decisions.deadlines import has_passed
from agentrun.decisions.decision_authority import Authority, exceeds_authority, limit_verdicts
from agentrun.decisions.value_paths import show_value


@dataclass(frozen=True, slots=True)
class Accepted:
    """The decision answers the open question."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Refused:
    """The decision changes nothing; ``message`` tells its author why and what would be accepted."""

    message: str


AnswerVerdict: TypeAlias = Accepted | Refused


def call_needs_approval(tool: AgentToolSpec, params: JsonObject) -> str | None:
    """Return why a human must agree to this call, or None when nobody is asked.

    A test that cannot be judged (the param is missing or of another type) asks: an amount that is missing is not small.
    """
    rule = tool.approval
    if rule is None:
        return None
    if rule.required == "Always":
        return "the tool asks for it always"
    scope = NamedValues({"params": params})
    for test in rule.when:
        try:
            if evaluate_test(test, scope):
                return f"the tool asks for it where {_describe(test)}"
        except ConditionError as error:
            return f"the tool asks for it where {_describe(test)}, which cannot be judged: {error}"
    return None


def find_allowed_verdicts(inbox: Inbox, authority: Authority = Authority.EVERYTHING) -> tuple[Verdict, ...]:
    """Return which verdicts answer the question. What was executed is never released to be executed again."""
    allowed = ALLOWED_VERDICTS[inbox.kind]
    fitting = tuple(verdict for verdict in allowed if not (inbox.executed and verdict is Verdict.RELEASE))
    return limit_verdicts(fitting, authority)


def judge_decision(
    decision: Decision,
    inbox_id: str,
    inbox: Inbox | None,
    now: datetime,
    authority: Authority = Authority.EVERYTHING,
) -> AnswerVerdict:
    """Judge whether a decision about the question ``inbox_id`` may be applied to the node's open question."""
    # A question is answered once; afterwards, or when it has expired, there is nothing to answer.
    if inbox is None:
        return Refused(f"question {inbox_id} is not open any more: it was answered, expired or withdrawn")
    # Each question has its own id, so an answer never reaches a later question about the same node.
    if inbox.id != inbox_id:
        return Refused(f"question {inbox_id} is not open any more: the open one is {inbox.id}, answer that")
    # At the boundary one side wins: the expiry.
    if has_passed(inbox.expires_at, now):
        return Refused(f"question {inbox_id} has expired")
    if decision.verdict not in find_allowed_verdicts(inbox):
        return Refused(_not_allowed(decision.verdict, inbox, find_allowed_verdicts(inbox, authority)))
    beyond = exceeds_authority(decision, authority, inbox.params_digest)
    if beyond is not None:
        return Refused(beyond)
    # A decision is about the params its author saw.
    if decision.params_digest and inbox.params_digest and decision.params_digest != inbox.params_digest:
        return Refused(
            f"paramsDigest {decision.params_digest} is not that of the params in question ({inbox.params_digest}): "
            "look at them again and decide on those"
        )
    if decision.verdict is Verdict.RESOLVE and "result" not in decision.model_fields_set:
        return Refused("verdict Resolve needs result: the value that the nodes downstream go on with")
    return _judge_effect(decision, inbox, authority)


def _judge_effect(decision: Decision, inbox: Inbox, authority: Authority) -> AnswerVerdict:
    # What happened outside is known: the answer can confirm it, not change it.
    if inbox.executed:
        if decision.effect is Effect.NOT_EXECUTED:
            return Refused("effect NotExecuted contradicts what is known: the call was executed")
        return Accepted(decision)
    if not inbox.unknown_outcome:
        if decision.effect is Effect.EXECUTED:
            return Refused("effect Executed contradicts what is known: nothing was executed")
        return Accepted(decision)
    # Who may not say what happened may still give the node up: the record stays unknown, as when the question expires,
    # and an equal call is looked up or asked about, never made.
    if authority is Authority.YES_OR_NO and decision.verdict is Verdict.DISCARD:
        return Accepted(decision)
    # An unknown outcome is answered before anything else, and editing the params does not remove that duty.
    if decision.effect is None:
        return Refused("nobody knows whether the call was executed: say effect: NotExecuted or Executed")
    if decision.effect is Effect.EXECUTED and decision.verdict is Verdict.RELEASE:
        return Refused("effect Executed never leads to another execution: use Resolve with its result, or Discard")
    if decision.effect is Effect.NOT_EXECUTED and decision.verdict is Verdict.RESOLVE:
        return Refused(
            "Resolve goes on with the result of what was executed: with effect NotExecuted, Release or Discard"
        )
    return Accepted(decision)


def _not_allowed(verdict: Verdict, inbox: Inbox, allowed: tuple[Verdict, ...]) -> str:
    said = f"verdict {verdict} does not answer a question of kind {inbox.kind}"
    if inbox.executed and verdict is Verdict.RELEASE:
        said = "verdict Release would execute again what was executed already"
    return f"{said}: use {' or '.join(allowed) or 'none, decisions are not verified here'}"


def _describe(test: ValueTest) -> str:
    if test.op is Operator.EXISTS:
        return f"{test.path} {'does not exist' if test.value is False else 'exists'}"
    return f"{test.path} {test.op} {show_value(test.value, 60)}"
