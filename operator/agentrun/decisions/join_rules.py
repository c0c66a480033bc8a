"""Join rules: what the ends of the upstream nodes mean for a node, and which branch conditions chose.

A pure count decides, so neither the order of ``dependsOn`` nor the order of events can change a verdict, and each end
costs O(1) (:class:`JoinCounter`). The same rules hold over the children of a fan-out.

| rule | Met | otherwise, once every upstream node ended |
|---|---|---|
| All | all ended, each Succeeded or dead and tolerated | Dead or Cancelled among them: Unsatisfiable; else Skip |
| Any | as soon as one Succeeded | all Skipped: Skip; else Unsatisfiable |
| AtLeast n | as soon as n Succeeded | all Skipped: Skip; else Unsatisfiable |
| NoFailureOneSuccess | all ended, none Dead or Cancelled, one Succeeded | all Skipped: Skip; else Unsatisfiable |
| Always | all ended | never |

A tolerated dead node is no failure, yet it is no success either: it satisfies All, and is not counted by Any and
AtLeast. Over no nodes at all every rule is met (an empty fan-out succeeds at once). A verdict other than Met and
Waiting is given only when every end is known; a dead node that may still be repaired (Suspend) counts as Pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from agentrun.contract.failures import Reason
from agentrun.contract.run import Join, JoinRule


class UpstreamEnd(StrEnum):
    """How an upstream node ended, as its dependants see it."""

    PENDING = "Pending"
    """It has not ended."""
    SUCCEEDED = "Succeeded"
    SKIPPED = "Skipped"
    TOLERATED_DEAD = "ToleratedDead"
    DEAD = "Dead"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class Met:
    """The node may go on."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """``pending`` upstream nodes have not ended, and the rule needs at least one of them."""

    pending: int = 0


@dataclass(frozen=True, slots=True)
class Skip:
    """The node is skipped because its upstream nodes were."""

    reason: Reason = Reason.UPSTREAM_SKIPPED


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """The rule cannot be met any more; ``problem`` says the counts."""

    problem: str
    reason: Reason = Reason.JOIN_UNSATISFIABLE


JoinVerdict: TypeAlias = Met | Waiting | Skip | Unsatisfiable


@dataclass(frozen=True, slots=True)
class JoinCounter:
    """The ends of a node's upstream nodes, counted."""

    pending: int = 0
    succeeded: int = 0
    skipped: int = 0
    tolerated: int = 0
    failed: int = 0
    """Dead or Cancelled."""

    @classmethod
    def of(cls, upstreams: int) -> JoinCounter:
        """Return the counter before any of so many upstream nodes ended."""
        return cls(pending=upstreams)

    def after(self, end: UpstreamEnd) -> JoinCounter:
        """Return the counter after one of the pending nodes ended. PENDING changes nothing."""
        return self._moved(end, 1)

    def reopened(self, end: UpstreamEnd) -> JoinCounter:
        """Return the counter after a node that had ended like this was driven again: the opposite of :meth:`after`."""
        return self._moved(end, -1)

    def verdict(self, join: Join | None) -> JoinVerdict:
        """Judge the rule (None: All)."""
        rule = join.rule if join else JoinRule.ALL
        count = join.count if join else None
        if self._is_met(rule, count or 1):
            return Met()
        if self.pending:
            return Waiting(self.pending)
        if self._hands_skip_on(rule):
            return Skip()
        return Unsatisfiable(self._describe(rule, count))

    @property
    def total(self) -> int:
        """All upstream nodes."""
        return self.pending + self.succeeded + self.skipped + self.tolerated + self.failed

    def _moved(self, end: UpstreamEnd, by: int) -> JoinCounter:
        match end:
            case UpstreamEnd.PENDING:
                return self
            case UpstreamEnd.SUCCEEDED:
                moved = replace(self, pending=self.pending - by, succeeded=self.succeeded + by)
            case UpstreamEnd.SKIPPED:
                moved = replace(self, pending=self.pending - by, skipped=self.skipped + by)
            case UpstreamEnd.TOLERATED_DEAD:
                moved = replace(self, pending=self.pending - by, tolerated=self.tolerated + by)
            case UpstreamEnd.DEAD | UpstreamEnd.CANCELLED:
                moved = replace(self, pending=self.pending - by, failed=self.failed + by)
            case _:
                assert_never(end)
        if min(moved.pending, moved.succeeded, moved.skipped, moved.tolerated, moved.failed) < 0:
            raise ValueError(f"{end} was counted more often than there are upstream nodes: {self}")
        return moved

    def _is_met(self, rule: JoinRule, count: int) -> bool:
        if self.total == 0:
            return True
        match rule:
            case JoinRule.ALL:
                return self.succeeded + self.tolerated == self.total
            case JoinRule.ANY:
                return self.succeeded >= 1
            case JoinRule.AT_LEAST:
                return self.succeeded >= count
            case JoinRule.NO_FAILURE_ONE_SUCCESS:
                return self.pending == 0 and self.failed == 0 and self.succeeded >= 1
            case JoinRule.ALWAYS:
                return self.pending == 0
            case _:
                assert_never(rule)

    def _hands_skip_on(self, rule: JoinRule) -> bool:
        if rule is JoinRule.ALL:
            return self.failed == 0
        return self.skipped == self.total

    def _describe(self, rule: JoinRule, count: int | None) -> str:
        wanted = f"{rule}({count})" if count is not None else str(rule)
        ends = (
            (self.succeeded, "succeeded"),
            (self.skipped, "skipped"),
            (self.tolerated, "dead and tolerated"),
            (self.failed, "dead or cancelled"),
        )
        return f"{wanted} of {self.total}: " + ", ".join(f"{number} {word}" for number, word in ends if number)


def judge_join(join: Join | None, ends: Sequence[UpstreamEnd]) -> JoinVerdict:
    """Judge the rule over all ends at once; equal to counting them one by one, in any order."""
    counter = JoinCounter.of(len(ends))
    for end in ends:
        counter = counter.after(end)
    return counter.verdict(join)


class Choice(StrEnum):
    """What a condition that may choose a node did about it."""

    PENDING = "Pending"
    """It has not ended."""
    CHOSE_IT = "ChoseIt"
    CHOSE_OTHER = "ChoseOther"
    """Another node, or none."""
    SKIPPED = "Skipped"
    FAILED = "Failed"
    """It ended without choosing: dead (tolerated or not), or cancelled."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """At least one condition chose the node, and all have ended; or no condition may choose it."""


@dataclass(frozen=True, slots=True)
class NotChosen:
    """All conditions ended and none chose the node."""

    reason: Reason


ChooserVerdict: TypeAlias = Chosen | NotChosen | Waiting


def judge_choosers(choices: Sequence[Choice]) -> ChooserVerdict:
    """Decide whether a node is chosen, once all its conditions ended."""
    pending = sum(choice is Choice.PENDING for choice in choices)
    if pending:
        return Waiting(pending)
    if not choices or Choice.CHOSE_IT in choices:
        return Chosen()
    # A condition that decided for another branch says more about the node than one that never decided.
    if Choice.CHOSE_OTHER in choices:
        return NotChosen(Reason.NOT_CHOSEN)
    if Choice.FAILED in choices:
        return NotChosen(Reason.JOIN_UNSATISFIABLE)
    return NotChosen(Reason.UPSTREAM_SKIPPED)
