"""AgentApproval: one decision asked of a human."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from agentrun.contract.failures import Effect
from agentrun.contract.model_base import (
    ContractModel,
    Digest,
    FreeObject,
    FreeValue,
    LongText,
    MediumText,
    NodePath,
    ShortText,
    Timestamp,
)
from agentrun.contract.node import InboxKind, RunRef
from agentrun.contract.object_meta import API_VERSION, ObjectMeta


class Verdict(StrEnum):
    """What a human decided."""

    APPROVE = "Approve"
    REJECT = "Reject"
    RELEASE = "Release"
    RESOLVE = "Resolve"
    DISCARD = "Discard"
    REDRIVE = "Redrive"


ALLOWED_VERDICTS: dict[InboxKind, tuple[Verdict, ...]] = {
    InboxKind.CALL: (Verdict.APPROVE, Verdict.REJECT),
    InboxKind.DUPLICATE: (Verdict.APPROVE, Verdict.REJECT),
    InboxKind.GRANT: (Verdict.APPROVE, Verdict.REJECT),
    InboxKind.QUARANTINE: (Verdict.RELEASE, Verdict.RESOLVE, Verdict.DISCARD),
    InboxKind.DEAD: (Verdict.REDRIVE, Verdict.DISCARD),
}
"""Which verdicts answer which question."""


class Decision(ContractModel):
    """A human's answer; set once."""

    verdict: Verdict
    reason: MediumText = ""
    params: FreeObject | None = None
    """Edited params, with Approve, Release or Redrive; they pass the gate again."""
    result: FreeValue = None
    """The result to go on with, with Resolve."""
    effect: Effect | None = None
    """What really happened outside, where the outcome was unknown: NotExecuted or Executed."""
    params_digest: Digest | None = None
    """The digest of the params that were looked at; a decision on others is refused."""
    decided_by: MediumText = ""
    decided_at: Timestamp | None = None

    @model_validator(mode="after")
    def _fields_fit_verdict(self) -> Decision:
        if self.params is not None and self.verdict not in (Verdict.APPROVE, Verdict.RELEASE, Verdict.REDRIVE):
            raise ValueError(f"params do not go with verdict {self.verdict}")
        if "result" in self.model_fields_set and self.verdict is not Verdict.RESOLVE:
            raise ValueError(f"result does not go with verdict {self.verdict}")
        if self.effect is Effect.UNKNOWN:
            raise ValueError("effect must say what happened: NotExecuted or Executed")
        return self


class AgentApprovalSpec(ContractModel):
    """Holds the decision and nothing else, so that the right to decide is the right to write this."""

    decision: Decision | None = None


class ApprovalRequest(ContractModel):
    """The question."""

    run: RunRef
    node: NodePath
    node_uid: ShortText = ""
    inbox_id: ShortText
    kind: InboxKind
    intent: MediumText = ""
    question: LongText = ""
    tool: ShortText = ""
    params_digest: Digest = ""
    params_preview: LongText = ""
    """The params as JSON text, cut; the digest is over all of them."""
    context: MediumText = ""
    """Where more is to be read."""
    unknown_outcome: bool = False
    allowed: tuple[Verdict, ...] = Field(default=(), max_length=8)
    asked_at: Timestamp
    expires_at: Timestamp | None = None


class AgentApprovalStatus(ContractModel):
    """The question, and what became of the answer."""

    request: ApprovalRequest | None = None
    state: Literal["Open", "Applied", "Refused", "Expired", "Withdrawn"] = "Open"
    message: LongText = ""
    applied_at: Timestamp | None = None


class AgentApproval(ContractModel):
    """One decision asked of a human about one node."""

    api_version: Literal["agentrun.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["AgentApproval"] = "AgentApproval"
    metadata: ObjectMeta
    spec: AgentApprovalSpec = AgentApprovalSpec()
    status: AgentApprovalStatus | None = None
